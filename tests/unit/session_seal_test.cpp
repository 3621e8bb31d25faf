// The seal of a worker's answers.
#include <gtest/gtest.h>

#include "harness/session/seal.h"

namespace attnbench {
namespace {

TEST(SessionSeal, HashIsThatOfItsPaper) {
  const SealKey key{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  std::string bytes;
  EXPECT_EQ(siphash(key, bytes), 0x726fdb47dd0e0e31u);
  for (char c = 0; c < 15; ++c) bytes += c;
  EXPECT_EQ(siphash(key, bytes), 0xa129ca6149be45e5u);
}

TEST(SessionSeal, ALineIsValidOnceAndInItsPlace) {
  const SealKey key = draw_key();
  EXPECT_NE(key, draw_key());
  Seal writer(key), reader(key);
  const std::string first = writer.next("{\"a\":1}");
  EXPECT_EQ(first, reader.next("{\"a\":1}"));
  EXPECT_NE(first, reader.next("{\"a\":1}"));
  EXPECT_NE(writer.next("{\"a\":10}"), Seal(key).next("{\"a\":1}"));
}

TEST(SessionSeal, KeysAreReadBack) {
  const SealKey key = draw_key();
  EXPECT_EQ(key_of_text(key_text(key)), key);
  for (const char* wrong : {"", "12", "{\"run\":", "0123456789abcdef0123456789abcdeg"})
    EXPECT_FALSE(key_of_text(wrong)) << wrong;
}

}  // namespace
}  // namespace attnbench
