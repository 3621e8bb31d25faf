// Times of a trace: numbers, and dates as ISO 8601 and its relatives write them.
#include <fmt/format.h>

#include <algorithm>

#include "harness/serving/trace_value.h"

namespace attnbench::trace_value {
namespace {

constexpr int64_t kMostTraceTime = 7'000'000'000 * 1'000'000'000;  // ns: it fits 63 bits

/// Digits behind a decimal point, in units of 10^-places; those behind that are dropped.
int64_t read_fraction(Cursor& c, std::string_view name, int places) {
  if (c.peek() != '.') return 0;
  ++c.at;
  if (!c.digit()) fail_at(c.at, fmt::format("{} has no digit behind its point", name));
  constexpr int64_t kPowers[] = {1,       10,        100,        1000,        10'000,
                                 100'000, 1'000'000, 10'000'000, 100'000'000, 1'000'000'000};
  const Digits first = read_digits(c);
  auto value = static_cast<int64_t>(first.value);
  if (first.count > places) {
    value /= kPowers[first.count - places];
    places = 0;
  } else {
    places -= first.count;
  }
  for (; c.digit(); ++c.at) {
    if (places == 0) continue;
    value = value * 10 + (c.peek() - '0');
    --places;
  }
  return value * kPowers[places];
}

int64_t read_number(Cursor& c, std::string_view name, int places) {
  int64_t unit = 1;
  for (int i = 0; i < places; ++i) unit *= 10;
  const auto most = static_cast<uint64_t>(kMostTraceTime / unit);
  const auto whole = static_cast<int64_t>(read_whole(c, name, most));
  return whole * unit + read_fraction(c, name, places);
}

/// `digits` digits, from lo to hi.
int64_t read_part(Cursor& c, const char* part, int digits, int64_t lo, int64_t hi) {
  const std::size_t begin = c.at;
  int64_t value = 0;
  for (int i = 0; i < digits; ++i, ++c.at) {
    if (!c.digit()) {
      fail_at(begin, fmt::format("the {} is {}; a time such as 2023-11-16 18:15:46.6805900 or "
                                 "2023-11-16T18:15:46+01:00 is required",
                                 part, seen_at({c.line, c.stop, begin})));
    }
    value = value * 10 + (c.line[c.at] - '0');
  }
  if (value < lo || value > hi)
    fail_at(begin, fmt::format("the {} is {}, {} to {} is required", part, value, lo, hi));
  return value;
}

void read_char(Cursor& c, char wanted) {
  if (c.peek() != wanted || c.done())
    fail_at(c.at, fmt::format("'{}' is required in the time, there is {}", wanted, seen_at(c)));
  ++c.at;
}

/// Days since 1970-01-01 (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").
int64_t days_since_1970(int64_t y, int64_t m, int64_t d) {
  y -= m <= 2 ? 1 : 0;
  const int64_t era = y / 400, year = y - era * 400;
  const int64_t day = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;
  return era * 146097 + year * 365 + year / 4 - year / 100 + day - 719468;
}

struct Date {
  int64_t year, month, day, hour, minute, second;
};

int64_t days_of(int64_t year, int64_t month) {
  const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  return kDays[month - 1] + (leap && month == 2 ? 1 : 0);
}

/// Between a day and its hour.
bool is_day_end(char c) { return c == ' ' || c == 'T' || c == 't'; }

/// A date part by part, with an error at the part that is wrong.
Date read_date_parts(Cursor& c) {
  Date d{};
  d.year = read_part(c, "year", 4, 1970, 2150);
  read_char(c, '-');
  d.month = read_part(c, "month", 2, 1, 12);
  read_char(c, '-');
  d.day = read_part(c, "day", 2, 1, days_of(d.year, d.month));
  read_char(c, is_day_end(c.peek()) ? c.peek() : 'T');
  d.hour = read_part(c, "hour", 2, 0, 23);
  read_char(c, ':');
  d.minute = read_part(c, "minute", 2, 0, 59);
  read_char(c, ':');
  d.second = read_part(c, "second", 2, 0, 59);
  return d;
}

/// The same at once, without a branch for each byte. False, and nothing read: it is not right.
bool read_right_date(Cursor& c, Date& d) {
  constexpr std::string_view kForm = "0000-00-00 00:00:00";
  constexpr std::size_t kDayEnd = 10;
  if (c.line.size() - c.at < kForm.size()) return false;
  unsigned char v[kForm.size()];  // values of digits; 0: the other bytes that are as in the form
  bool wrong = false;
  for (std::size_t i = 0; i < kForm.size(); ++i) {
    v[i] = static_cast<unsigned char>(c.line[c.at + i] - kForm[i]);
    wrong |= i != kDayEnd && v[i] > (kForm[i] == '0' ? 9 : 0);
  }
  const auto two = [&](std::size_t i) { return int64_t{v[i]} * 10 + v[i + 1]; };
  d = {two(0) * 100 + two(2), two(5), two(8), two(11), two(14), two(17)};
  wrong |= !is_day_end(c.line[c.at + kDayEnd]) || d.year < 1970 || d.year > 2150 || d.month < 1 ||
           d.month > 12 || d.day < 1 || d.hour > 23 || d.minute > 59 || d.second > 59;
  if (wrong || d.day > days_of(d.year, d.month)) return false;
  c.at += kForm.size();
  return true;
}

/// "Z", " UTC", "+05:30", "-0800", " +01" or nothing: the minutes by which the clock is ahead of UTC.
int64_t read_zone(Cursor& c) {
  const std::string_view rest = c.rest();
  if (rest.empty()) return 0;
  for (const std::string_view utc : {"Z", "z", " UTC"}) {
    if (!rest.starts_with(utc)) continue;
    c.at += utc.size();
    return 0;
  }
  if (rest.starts_with(" +") || rest.starts_with(" -")) ++c.at;
  if (c.peek() != '+' && c.peek() != '-') return 0;
  const int64_t sign = c.line[c.at++] == '-' ? -1 : 1;
  const int64_t hours = read_part(c, "offset's hour", 2, 0, 23);
  if (c.peek() == ':') ++c.at;
  return sign * (hours * 60 + (c.digit() ? read_part(c, "offset's minute", 2, 0, 59) : 0));
}

int64_t read_date(Cursor& c, std::string_view name) {
  Date d{};
  if (!read_right_date(c, d)) d = read_date_parts(c);
  const int64_t ns = read_fraction(c, name, 9);
  const int64_t hours = days_since_1970(d.year, d.month, d.day) * 24 + d.hour;
  return ((hours * 60 + d.minute - read_zone(c)) * 60 + d.second) * 1'000'000'000 + ns;
}

/// Whether the value begins as "2023-" does.
bool looks_like_date(const Cursor& c) {
  constexpr std::size_t kYear = 4;
  return c.line.size() - c.at > kYear && c.line[c.at + kYear] == '-' &&
         std::all_of(c.line.begin() + static_cast<std::ptrdiff_t>(c.at),
                     c.line.begin() + static_cast<std::ptrdiff_t>(c.at + kYear),
                     [](char digit) { return digit >= '0' && digit <= '9'; });
}

}  // namespace

int64_t read_time(Cursor& c, std::string_view name, int places, bool date_only) {
  return date_only || looks_like_date(c) ? read_date(c, name) : read_number(c, name, places);
}

}  // namespace attnbench::trace_value
