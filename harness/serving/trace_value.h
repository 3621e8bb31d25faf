// Values in a line of a trace. For trace_form.cpp and trace_time.cpp.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "harness/serving/trace_form.h"

namespace attnbench::trace_value {

/// A place in a line. It never looks behind the line's end.
struct Cursor {
  std::string_view line;
  char stop;  ///< ends a value, as the line's end does
  std::size_t at = 0;

  bool at_line_end() const { return at == line.size(); }
  bool done() const { return at_line_end() || line[at] == stop; }
  char peek() const { return at_line_end() ? '\0' : line[at]; }
  bool digit() const { return static_cast<unsigned char>(peek() - '0') < 10; }
  /// What is left of the value.
  std::string_view rest() const { return line.substr(at, std::min(line.find(stop, at), line.size()) - at); }
};

/// What the line has from `at` on, for a message.
inline std::string seen_at(const Cursor& c) {
  return c.done() ? "nothing" : fmt::format("'{}'", c.rest().substr(0, 20));
}

[[noreturn]] inline void fail_at(std::size_t offset, std::string what) {
  throw BadLine{offset, std::move(what)};
}

[[noreturn]] inline void fail_not_whole(Cursor c, std::string_view name) {
  if (c.peek() == '-') fail_at(c.at, fmt::format("{} is negative; mend or remove the line", name));
  const std::string seen = seen_at(c);
  const std::size_t colon = seen.find(':');  // the end of a prefix's id
  fail_at(c.at, fmt::format("{} is {}, a whole number is required", name,
                            colon == seen.npos ? seen : seen.substr(0, colon) + "'"));
}

[[noreturn]] inline void fail_too_large(std::size_t begin, std::string_view name, uint64_t most) {
  fail_at(begin, fmt::format("{} is more than {}", name, most));
}

/// The 8 bytes of the line from `at` on, the first one lowest; zeros behind the line's end.
[[gnu::always_inline]] inline uint64_t eight_bytes(const Cursor& c) {
  static_assert(std::endian::native == std::endian::little);
  constexpr std::size_t kBytes = 8;
  const std::size_t size = c.line.size();
  uint64_t bytes = 0;
  if (size >= kBytes) {  // without a branch on `at`, which would be mispredicted
    const std::size_t from = std::min(c.at, size - kBytes), half = 4 * (c.at - from);
    std::memcpy(&bytes, c.line.data() + from, kBytes);
    return bytes >> half >> half;
  }
  for (std::size_t i = c.at; i < size; ++i)
    bytes |= uint64_t{static_cast<unsigned char>(c.line[i])} << (8 * (i - c.at));
  return bytes;
}

/// Up to 8 digits as a number, and how many they are. Most numbers of a trace have fewer. A loop over digits would
/// mispredict its end at each of them, and that costs more than all else.
struct Digits {
  uint64_t value = 0;
  int count = 0;
};
[[gnu::always_inline]] inline Digits read_digits(Cursor& c) {
  const uint64_t bytes = eight_bytes(c) ^ 0x3030303030303030;  // digits are 0 to 9 now
  const uint64_t others = (bytes | (bytes + 0x7676767676767676)) & 0x8080808080808080;
  const int count =
      std::countr_zero(others) / 8;  // carries reach only bytes behind the first that is no digit
  if (count == 0) return {};
  c.at += static_cast<std::size_t>(count);
  uint64_t v = bytes << (64 - 8 * count);  // zeros in front
  v = v * 10 + (v >> 8);                   // pairs, then fours, then all
  constexpr uint64_t kPairs = 0x000000ff000000ff;
  v = ((v & kPairs) * 0x000f424000000064 + ((v >> 16) & kPairs) * 0x0000271000000001) >> 32;
  return {v, count};
}

/// Digits as a number up to `most`. Messages are made in functions of their own, so that this one is small.
[[gnu::always_inline]] inline uint64_t read_whole(Cursor& c, std::string_view name, uint64_t most) {
  const std::size_t begin = c.at;
  const Digits first = read_digits(c);
  if (first.count == 0) fail_not_whole(c, name);
  uint64_t value = first.value;
  bool fits = value <= most;
  for (; fits && c.digit(); ++c.at) {
    const auto digit = static_cast<uint64_t>(c.peek() - '0');
    fits = value <= (most - digit) / 10;
    value = value * 10 + digit;
  }
  if (!fits) fail_too_large(begin, name, most);
  return value;
}

[[gnu::always_inline]] inline int32_t read_tokens(Cursor& c, std::string_view name) {
  const std::size_t begin = c.at;
  const auto tokens = static_cast<int32_t>(read_whole(c, name, kMostTraceTokens));
  if (tokens == 0) fail_at(begin, fmt::format("{} is 0, at least 1 is required; remove the line", name));
  return tokens;
}

inline void skip_spaces(Cursor& c) {
  while (c.peek() == ' ' || c.peek() == '\t') ++c.at;
}

/// A date, or else a decimal number of units of 10^places nanoseconds, in nanoseconds since any one moment.
int64_t read_time(Cursor& c, std::string_view name, int places, bool date_only);

}  // namespace attnbench::trace_value
