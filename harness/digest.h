// A digest of values that is the same on every machine. It tells inputs apart; it does not detect forgery.
#pragma once

#include <cstdint>
#include <string_view>

namespace attnbench {

/// FNV-1a of 64 bits.
class Digest {
 public:
  /// One step for each character.
  void add_text(std::string_view text) {
    for (const char c : text) add_word(static_cast<unsigned char>(c));
  }
  /// One step for each of the four bytes, the lowest first.
  void add_bytes(int32_t n) {
    for (int byte = 0; byte < 4; ++byte) add_word((static_cast<uint32_t>(n) >> (8 * byte)) & 0xff);
  }
  /// One step for the whole word: eight times as fast as its bytes.
  void add_word(uint64_t word) { state_ = (state_ ^ word) * 1099511628211ull; }

  uint64_t value() const { return state_; }
  /// Both halves folded into one.
  uint32_t value32() const { return static_cast<uint32_t>(state_ ^ (state_ >> 32)); }

 private:
  // Not FNV's own basis, 14695981039346656037: ids in committed results were made with this one.
  uint64_t state_ = 1469598103934665603ull;
};

}  // namespace attnbench
