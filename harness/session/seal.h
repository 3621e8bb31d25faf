// The seal of a worker's answers: a keyed hash (SipHash-2-4) of each line. A kernel that writes to the
// worker's pipe, or changes what the worker writes, does not have the key, so the supervisor sees it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace attnbench {

using SealKey = std::array<uint64_t, 2>;

/// A key from the system's random numbers. Throws Error if it has none.
SealKey draw_key();
/// As 32 hexadecimal digits, and back; nullopt if the text is not such a number.
std::string key_text(const SealKey& key);
std::optional<SealKey> key_of_text(std::string_view text);

/// SipHash-2-4 of Aumasson and Bernstein (2012).
uint64_t siphash(const SealKey& key, std::string_view bytes);

/// Counts the lines that are sealed by one key, so that each line is valid only once and in its place.
class Seal {
 public:
  Seal() = default;
  explicit Seal(const SealKey& key) : key_(key) {}
  /// The seal of the next line, 16 hexadecimal digits.
  std::string next(std::string_view line);

 private:
  SealKey key_{};
  uint64_t lines_ = 0;
};

}  // namespace attnbench
