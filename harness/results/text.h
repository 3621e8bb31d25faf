// Text that is safe anywhere: valid UTF-8, on one line, cut to a width. Numbers for people and for machines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "harness/facts/two_speeds.h"

namespace attnbench {

/// Decodes to code points. Each byte that is not valid UTF-8 (overlong forms and surrogates too) becomes
/// U+FFFD.
std::u32string decode_utf8(std::string_view s);
void append_utf8(std::string& out, char32_t c);

/// The same text with invalid bytes replaced by U+FFFD.
std::string valid_utf8(std::string_view s);

/// Valid UTF-8 that steers no terminal: control characters, and those that turn the direction of text, are
/// shown as \x1b or \u202e. Newlines and tabs stay.
std::string printable(std::string_view s);

/// The same on one line: each run of newlines, tabs and the like becomes one space.
std::string one_line(std::string_view s);

/// One line of an error: what is quoted in it may be of any length. At most kLongestError columns, cut in the
/// middle, so that its begin (what is wrong, where) and its end (what to do) stay.
inline constexpr std::size_t kLongestError = 500;
std::string error_line(std::string_view s);

/// Columns on a terminal: the number of code points, because all printed characters are one column wide.
std::size_t display_width(std::string_view s);

/// At most `width` columns. The excess is cut from the middle or from the end and replaced by "…".
std::string shorten_middle(std::string_view s, std::size_t width);
std::string shorten_end(std::string_view s, std::size_t width);

/// A word for a shell line, quoted if it is not plain.
std::string shell_word(std::string_view s);

/// A number for people: `significant` digits, no exponent from 0.001 to 10^9: "12.34", "1234", "0.0123". "-"
/// if it is not finite.
std::string digits(double value, int significant = 4);

/// "1 case", "2 cases".
std::string counted(int64_t count, const char* noun);

/// A time for people, in the unit that fits: "47.29 us", "519.2 ms" from 10 ms on, "1.234 s" from 1 s on.
std::string time_text(double us);

/// Two groups of samples for people: "81.02 us in 33 % of the samples, 91.52 us in the others".
std::string two_speeds_text(const TwoSpeeds& speeds_us);

/// Without brackets at its end, which may hold others.
std::string_view without_last_brackets(std::string_view text);

/// Each run of digits as one '#': reasons that differ in numbers alone become equal.
std::string without_numbers(std::string_view text);

/// A number for machines: the shortest text that reads back equal; empty if it is not finite.
std::string exact(double value);

}  // namespace attnbench
