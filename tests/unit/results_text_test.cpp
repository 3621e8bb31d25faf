#include "harness/results/text.h"

#include <gtest/gtest.h>

#include "tests/unit/results_fixtures.h"

namespace attnbench {
namespace {

using test::kInf;
using test::kNan;

TEST(RecordText, Digits) {
  EXPECT_EQ(digits(0), "0");
  EXPECT_EQ(digits(1.23456), "1.235");
  EXPECT_EQ(digits(12.3456), "12.35");
  EXPECT_EQ(digits(999.96), "1000");
  EXPECT_EQ(digits(9.9996), "10.00");
  EXPECT_EQ(digits(123456), "123456");
  EXPECT_EQ(digits(0.01234567), "0.01235");
  EXPECT_EQ(digits(-2.5, 2), "-2.5");
  EXPECT_EQ(digits(1e-6, 3), "1.00e-06");
  EXPECT_EQ(digits(kNan), "-");
  EXPECT_EQ(digits(kInf), "-");
}

TEST(RecordText, Utf8) {
  EXPECT_EQ(valid_utf8("é…😀"), "é…😀");
  EXPECT_EQ(valid_utf8("\xc0\xaf"), "\xef\xbf\xbd\xef\xbf\xbd") << "overlong";
  EXPECT_EQ(valid_utf8("\xe2\x80"), "\xef\xbf\xbd\xef\xbf\xbd") << "cut off";
  EXPECT_EQ(valid_utf8("\xf4\x90\x80\x80").substr(0, 3), "\xef\xbf\xbd") << "past U+10FFFF";
  EXPECT_EQ(one_line(" a\r\n\tb\x1b[0m\n"), " a b\\x1b[0m");
  EXPECT_EQ(one_line("x\xe2\x80\xaey\xc2\x9bz\xe2\x80\xa8"), "x\\u202ey\\u009bz");
  EXPECT_EQ(printable("a\n\tb\r\x7f\xe2\x81\xa6é\xff"), "a\n\tb\\x0d\\u007f\\u2066é\xef\xbf\xbd");
  EXPECT_EQ(shorten_middle("abcdefgh", 5), "ab…gh");
  EXPECT_EQ(shorten_middle("abc", 5), "abc");
  EXPECT_EQ(shorten_middle("abc", 0), "");
  EXPECT_EQ(shorten_end("abcdefgh", 5), "abcd…");
}

TEST(RecordText, ALongErrorKeepsItsBeginAndItsEnd) {
  const std::string line = error_line("a.yaml: error: '" + std::string(9000, 'x') + "' is unknown; give\nq4");
  EXPECT_EQ(display_width(line), kLongestError);
  EXPECT_TRUE(line.starts_with("a.yaml: error: 'xxx")) << line;
  EXPECT_TRUE(line.ends_with("xxx' is unknown; give q4")) << line;
  EXPECT_EQ(error_line("short\n"), "short");
}

TEST(RecordText, TimesHaveTheUnitThatFits) {
  EXPECT_EQ(time_text(0.5), "0.5000 us");
  EXPECT_EQ(time_text(9999), "9999 us");
  EXPECT_EQ(time_text(519200), "519.2 ms");
  EXPECT_EQ(time_text(1.2345e6), "1.234 s");
}

TEST(RecordText, NumbersMakeNoDifference) {
  EXPECT_EQ(without_last_brackets("(T, H), where (H, T) is required"), "(T, H), where (H, T) is required");
  EXPECT_EQ(without_last_brackets("as (T, H) (8 rows (of 9) tried)"), "as (T, H)");
  EXPECT_EQ(without_last_brackets("(a)"), "");
  EXPECT_EQ(without_last_brackets("a)"), "a)");
  EXPECT_EQ(without_numbers("head_dim 64, 128 required, given 7"), "head_dim #, # required, given #");
}

}  // namespace
}  // namespace attnbench
