#include "harness/session/seal.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "harness/error.h"

namespace attnbench {
namespace {

constexpr std::size_t kDigits = 16;  ///< of a 64-bit number

struct SipState {
  uint64_t v0, v1, v2, v3;

  void rounds(int n) {
    for (int i = 0; i < n; ++i) {
      v0 += v1;
      v1 = std::rotl(v1, 13) ^ v0;
      v0 = std::rotl(v0, 32);
      v2 += v3;
      v3 = std::rotl(v3, 16) ^ v2;
      v0 += v3;
      v3 = std::rotl(v3, 21) ^ v0;
      v2 += v1;
      v1 = std::rotl(v1, 17) ^ v2;
      v2 = std::rotl(v2, 32);
    }
  }
  void add(uint64_t word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
};

}  // namespace

SealKey draw_key() {
  SealKey key;
  if (getrandom(key.data(), sizeof key, 0) != static_cast<ssize_t>(sizeof key))
    throw Error(std::string("the system gives no random numbers: ") + std::strerror(errno), kExitFailure);
  return key;
}

std::string key_text(const SealKey& key) { return fmt::format("{:016x}{:016x}", key[0], key[1]); }

std::optional<SealKey> key_of_text(std::string_view text) {
  if (text.size() != 2 * kDigits) return std::nullopt;
  SealKey key;
  for (std::size_t i = 0; i < key.size(); ++i) {
    const char* begin = text.data() + i * kDigits;
    const auto [end, error] = std::from_chars(begin, begin + kDigits, key[i], 16);
    if (error != std::errc() || end != begin + kDigits) return std::nullopt;
  }
  return key;
}

uint64_t siphash(const SealKey& key, std::string_view bytes) {
  SipState s{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d, key[0] ^ 0x6c7967656e657261,
             key[1] ^ 0x7465646279746573};
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);  // the host is little-endian, as the hash wants it
    s.add(word);
  }
  uint64_t last = static_cast<uint64_t>(bytes.size()) << 56;
  for (std::size_t i = 0; i < bytes.size() % 8; ++i) {
    last |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[bytes.size() / 8 * 8 + i])) << (8 * i);
  }
  s.add(last);
  s.v2 ^= 0xff;
  s.rounds(4);
  return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

std::string Seal::next(std::string_view line) {
  return fmt::format("{:016x}", siphash(key_, fmt::format("{} {}", lines_++, line)));
}

}  // namespace attnbench
