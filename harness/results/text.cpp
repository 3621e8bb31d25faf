#include "harness/results/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>

namespace attnbench {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

/// Begins a line, moves to a column, or separates lines.
bool is_gap(char32_t c) { return (c >= '\t' && c <= '\r') || c == 0x85 || c == 0x2028 || c == 0x2029; }

/// C0, DEL, C1, line separators, and characters that change the direction of text and so disguise it.
bool is_control(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

void append_shown(std::string& out, char32_t c) {
  if (!is_control(c)) return append_utf8(out, c);
  const auto number = static_cast<uint32_t>(c);
  out += c < 0x7f ? fmt::format("\\x{:02x}", number) : fmt::format("\\u{:04x}", number);  // \u: also in JSON
}

std::string encode(std::u32string_view s) {
  std::string out;
  for (const char32_t c : s) append_utf8(out, c);
  return out;
}

}  // namespace

std::u32string decode_utf8(std::string_view s) {
  std::u32string out;
  out.reserve(s.size());
  for (std::size_t i = 0; i < s.size();) {
    const auto lead = static_cast<unsigned char>(s[i]);
    // Length by the lead byte, and the least code point that may need so many bytes (RFC 3629, section 3).
    const int length = lead < 0x80                   ? 1
                       : lead >= 0xc2 && lead < 0xe0 ? 2
                       : lead >= 0xe0 && lead < 0xf0 ? 3
                       : lead >= 0xf0 && lead < 0xf5 ? 4
                                                     : 0;
    constexpr char32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    char32_t c = length == 1 ? lead : lead & (0x7fu >> length);
    bool good = length > 0 && i + static_cast<std::size_t>(length) <= s.size();
    for (int k = 1; good && k < length; ++k) {
      const auto next = static_cast<unsigned char>(s[i + static_cast<std::size_t>(k)]);
      good = (next & 0xc0) == 0x80;
      c = (c << 6) | (next & 0x3fu);
    }
    good = good && c >= kLeast[length] && c <= 0x10ffff && !(c >= 0xd800 && c < 0xe000);
    out.push_back(good ? c : kReplacement);
    i += good ? static_cast<std::size_t>(length) : 1;
  }
  return out;
}

void append_utf8(std::string& out, char32_t c) {
  const auto tail = [&](int shift) { out.push_back(static_cast<char>(0x80 | ((c >> shift) & 0x3f))); };
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xc0 | (c >> 6)));
    tail(0);
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xe0 | (c >> 12)));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xf0 | (c >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string valid_utf8(std::string_view s) { return encode(decode_utf8(s)); }

std::string printable(std::string_view s) {
  std::string out;
  for (const char32_t c : decode_utf8(s)) {
    if (c == '\n' || c == '\t') {
      out.push_back(static_cast<char>(c));
    } else {
      append_shown(out, c);
    }
  }
  return out;
}

std::string one_line(std::string_view s) {
  std::string out;
  bool gap = false;
  for (const char32_t c : decode_utf8(s)) {
    if (is_gap(c)) {
      gap = !out.empty();
      continue;
    }
    if (gap && out.back() != ' ') out.push_back(' ');
    gap = false;
    append_shown(out, c);
  }
  return out;
}

std::string error_line(std::string_view s) { return shorten_middle(one_line(s), kLongestError); }

std::size_t display_width(std::string_view s) { return decode_utf8(s).size(); }

std::string shorten_middle(std::string_view s, std::size_t width) {
  const std::u32string text = decode_utf8(s);
  if (text.size() <= width) return encode(text);
  if (width == 0) return "";
  const std::size_t head = (width - 1) / 2;
  const std::size_t tail = width - 1 - head;
  return encode(text.substr(0, head)) + "…" + encode(text.substr(text.size() - tail));
}

std::string shorten_end(std::string_view s, std::size_t width) {
  const std::u32string text = decode_utf8(s);
  if (text.size() <= width) return encode(text);
  return width == 0 ? "" : encode(text.substr(0, width - 1)) + "…";
}

std::string shell_word(std::string_view s) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@";
  if (!s.empty() && s.find_first_not_of(plain) == std::string_view::npos) return std::string(s);
  std::string word = "'";
  for (const char c : s) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

std::string digits(double value, int significant) {
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0";
  const double size = std::fabs(value);
  if (size < 1e-3 || size >= 1e9) return fmt::format("{:.{}e}", value, significant - 1);
  // Digits after the point. Called twice, because rounding may carry into a new digit: 9.9996 -> 10.00.
  const auto decimals = [&](double v) {
    return std::max(0, significant - 1 - static_cast<int>(std::floor(std::log10(v))));
  };
  const double unit = std::pow(10.0, -decimals(size));
  const double rounded = std::round(size / unit) * unit;
  return fmt::format("{:.{}f}", value, decimals(rounded * (1 + 1e-12)));
}

std::string counted(int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string time_text(double us) {
  if (us >= 1e6) return digits(us / 1e6) + " s";
  if (us >= 1e4) return digits(us / 1e3) + " ms";
  return digits(us) + " us";
}

std::string two_speeds_text(const TwoSpeeds& s) {
  return fmt::format("{} in {:.0f} % of the samples, {} in the others", time_text(s.quick),
                     100 * s.quick_share, time_text(s.slow));
}

std::string_view without_last_brackets(std::string_view text) {
  int open = 0;
  for (std::size_t at = text.ends_with(')') ? text.size() : 0; at-- > 0;) {
    open += (text[at] == ')') - (text[at] == '(');
    if (open > 0) continue;
    text.remove_suffix(text.size() - at);
    return text.substr(0, text.find_last_not_of(' ') + 1);
  }
  return text;
}

std::string without_numbers(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (!std::isdigit(static_cast<unsigned char>(c))) {
      out += c;
    } else if (out.empty() || out.back() != '#') {
      out += '#';
    }
  }
  return out;
}

std::string exact(double value) { return std::isfinite(value) ? fmt::format("{}", value) : ""; }

}  // namespace attnbench
