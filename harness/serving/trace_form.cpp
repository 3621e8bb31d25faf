#include "harness/serving/trace_form.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace attnbench {
namespace {

/// The columns that a CSV form needs: time, prompt, output.
struct CsvForm {
  TraceForm form;
  const char* name;
  std::array<std::string_view, 3> columns;
};
constexpr CsvForm kCsvForms[] = {
    {TraceForm::kAzure, "Azure LLM inference CSV", {"TIMESTAMP", "ContextTokens", "GeneratedTokens"}},
    {TraceForm::kBurstGpt, "BurstGPT CSV", {"Timestamp", "Request tokens", "Response tokens"}},
    {TraceForm::kPlain, "CSV", {"arrival", "prompt", "output"}}};
constexpr std::string_view kPrefixColumn = "prefix";
constexpr std::size_t kMostColumns = 64;
constexpr int64_t kMostTraceTime = 7'000'000'000 * 1'000'000'000;  // ns: it fits 63 bits

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
std::string seen_at(const Cursor& c) {
  return c.done() ? "nothing" : fmt::format("'{}'", c.rest().substr(0, 20));
}

[[noreturn]] void fail_at(std::size_t offset, std::string what) { throw BadLine{offset, std::move(what)}; }

[[noreturn]] void fail_not_whole(Cursor c, std::string_view name) {
  if (c.peek() == '-') fail_at(c.at, fmt::format("{} is negative; mend or remove the line", name));
  const std::string seen = seen_at(c);
  const std::size_t colon = seen.find(':');  // the end of a prefix's id
  fail_at(c.at, fmt::format("{} is {}, a whole number is required", name,
                            colon == seen.npos ? seen : seen.substr(0, colon) + "'"));
}

[[noreturn]] void fail_too_large(std::size_t begin, std::string_view name, uint64_t most) {
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

/// A decimal number of units of 10^places nanoseconds, in nanoseconds.
int64_t read_time(Cursor& c, std::string_view name, int places) {
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
    if (!c.digit()) fail_at(begin, "a time such as 2023-11-16 18:15:46.6805900 is required");
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

/// A date part by part, with an error at the part that is wrong.
Date read_date_parts(Cursor& c) {
  Date d{};
  d.year = read_part(c, "year", 4, 1970, 2150);
  read_char(c, '-');
  d.month = read_part(c, "month", 2, 1, 12);
  read_char(c, '-');
  d.day = read_part(c, "day", 2, 1, days_of(d.year, d.month));
  read_char(c, c.peek() == 'T' ? 'T' : ' ');
  d.hour = read_part(c, "hour", 2, 0, 23);
  read_char(c, ':');
  d.minute = read_part(c, "minute", 2, 0, 59);
  read_char(c, ':');
  d.second = read_part(c, "second", 2, 0, 59);
  return d;
}

/// The same at once, without a branch for each byte. False, and nothing read: it is not right, or has a T.
bool read_right_date(Cursor& c, Date& d) {
  constexpr std::string_view kForm = "0000-00-00 00:00:00";
  if (c.line.size() - c.at < kForm.size()) return false;
  unsigned char v[kForm.size()];  // values of digits; 0: the other bytes that are as in the form
  bool wrong = false;
  for (std::size_t i = 0; i < kForm.size(); ++i) {
    v[i] = static_cast<unsigned char>(c.line[c.at + i] - kForm[i]);
    wrong |= v[i] > (kForm[i] == '0' ? 9 : 0);
  }
  const auto two = [&](std::size_t i) { return int64_t{v[i]} * 10 + v[i + 1]; };
  d = {two(0) * 100 + two(2), two(5), two(8), two(11), two(14), two(17)};
  wrong |= d.year < 1970 || d.year > 2150 || d.month < 1 || d.month > 12 || d.day < 1 || d.hour > 23 ||
           d.minute > 59 || d.second > 59;
  if (wrong || d.day > days_of(d.year, d.month)) return false;
  c.at += kForm.size();
  return true;
}

/// "2023-11-16 18:15:46.6805900", with "+00:00" or without.
int64_t read_date(Cursor& c, std::string_view name) {
  Date d{};
  if (!read_right_date(c, d)) d = read_date_parts(c);
  const int64_t ns = read_fraction(c, name, 9);
  constexpr std::string_view kUtc = "+00:00";
  if (c.peek() == '+' && c.rest() == kUtc) c.at += kUtc.size();
  const int64_t hours = days_since_1970(d.year, d.month, d.day) * 24 + d.hour;
  return ((hours * 60 + d.minute) * 60 + d.second) * 1'000'000'000 + ns;
}

void require_end(const Cursor& c, std::string_view name) {
  if (!c.done())
    fail_at(c.at, fmt::format("{} stands behind {}, where a comma or the line's end is required", seen_at(c),
                              name));
}

std::vector<std::string_view> columns_of(std::string_view header) {
  std::vector<std::string_view> names;
  for (std::size_t begin = 0;;) {
    const std::size_t comma = std::min(header.find(',', begin), header.size());
    names.push_back(header.substr(begin, comma - begin));
    if (comma == header.size() || names.size() > kMostColumns) return names;
    begin = comma + 1;
  }
}

void skip_spaces(Cursor& c) {
  while (c.peek() == ' ' || c.peek() == '\t') ++c.at;
}

void read_mark(Cursor& c, char wanted) {
  skip_spaces(c);
  if (c.peek() != wanted || c.done())
    fail_at(c.at, fmt::format("'{}' is required, there is {}", wanted, seen_at(c)));
  ++c.at;
}

constexpr std::string_view kFields[] = {"timestamp", "input_length", "output_length", "hash_ids"};

/// The index of a field's name, with its quotes and colon.
std::size_t read_field_name(Cursor& c) {
  read_mark(c, '"');
  const std::size_t begin = c.at;
  const std::size_t quote = c.line.find('"', begin);
  if (quote == std::string_view::npos) fail_at(begin - 1, "the name has no closing quote");
  const std::string_view name = c.line.substr(begin, quote - begin);
  const auto* const known = std::find(std::begin(kFields), std::end(kFields), name);
  if (known == std::end(kFields)) {
    fail_at(begin, fmt::format("unknown field '{}'; Mooncake's form has {}", name.substr(0, 40),
                               fmt::join(kFields, ", ")));
  }
  c.at = quote + 1;
  read_mark(c, ':');
  skip_spaces(c);
  return static_cast<std::size_t>(known - std::begin(kFields));
}

void read_ids(Cursor& c, std::vector<uint64_t>& ids) {
  read_mark(c, '[');
  skip_spaces(c);
  if (c.peek() == ']') {
    ++c.at;
    return;
  }
  while (true) {
    skip_spaces(c);
    ids.push_back(read_whole(c, "a hash id", UINT64_MAX));
    if (c.line.substr(c.at, 2) == ", ") {  // as published files have it
      c.at += 2;
      continue;
    }
    skip_spaces(c);
    if (c.peek() == ']') break;
    read_mark(c, ',');
  }
  ++c.at;
}

}  // namespace

const char* trace_form_name(TraceForm form) {
  for (const CsvForm& f : kCsvForms) {
    if (f.form == form) return f.name;
  }
  return "Mooncake JSONL";
}

TraceParser::TraceParser(std::string_view first_line) {
  if (first_line.starts_with('{')) {
    form_ = TraceForm::kMooncake;
    return;
  }
  const std::vector<std::string_view> names = columns_of(first_line);
  const auto has = [&](std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const auto* const form = std::find_if(std::begin(kCsvForms), std::end(kCsvForms), [&](const CsvForm& f) {
    return std::any_of(f.columns.begin(), f.columns.end(), has);
  });
  if (form == std::end(kCsvForms)) {
    std::string forms;
    for (const CsvForm& f : kCsvForms) forms += fmt::format("'{}', ", fmt::join(f.columns, ","));
    fail_at(0, fmt::format("no known form of a trace begins with this line; a header with {}or Mooncake's "
                           "JSON lines are required",
                           forms));
  }
  form_ = form->form;
  for (const std::string_view needed : form->columns) {
    if (!has(needed))
      fail_at(0, fmt::format("the column '{}' is missing; {} needs {}", needed, form->name,
                             fmt::join(form->columns, ", ")));
  }
  if (names.size() > kMostColumns) fail_at(0, fmt::format("there are more than {} columns", kMostColumns));
  for (const std::string_view name : names) {
    if (std::count(names.begin(), names.end(), name) > 1)
      fail_at(0, fmt::format("the column '{}' occurs twice", name.substr(0, 40)));
    const auto at = static_cast<std::size_t>(std::find(form->columns.begin(), form->columns.end(), name) -
                                             form->columns.begin());
    constexpr Column kKinds[] = {Column::kTime, Column::kPrompt, Column::kOutput, Column::kOther};
    const bool prefix = form_ == TraceForm::kPlain && name == kPrefixColumn;
    columns_.push_back(prefix ? Column::kPrefix : kKinds[at]);
    names_.emplace_back(name);
  }
}

const TraceLine& TraceParser::parse(std::string_view line) {
  line_ = {};
  if (form_ == TraceForm::kMooncake) {
    parse_object(line);
  } else {
    parse_columns(line);
  }
  return line_;
}

void TraceParser::parse_columns(std::string_view line) {
  Cursor c{line, ','};
  std::size_t prefix_offset = 0;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (i > 0) {
      if (c.at_line_end())
        fail_at(c.at,
                fmt::format("the line has {} of {} columns; '{}' is missing", i, columns_.size(), names_[i]));
      ++c.at;
    }
    switch (columns_[i]) {
      case Column::kOther:
        c.at += c.rest().size();
        continue;
      case Column::kTime:
        line_.time_offset = c.at;
        line_.time_ns = form_ == TraceForm::kAzure ? read_date(c, names_[i]) : read_time(c, names_[i], 9);
        break;
      case Column::kPrompt:
        line_.prompt_offset = c.at;
        line_.prompt_tokens = read_tokens(c, names_[i]);
        break;
      case Column::kOutput:
        line_.output_tokens = read_tokens(c, names_[i]);
        break;
      case Column::kPrefix:
        prefix_offset = c.at;
        if (c.done()) continue;
        line_.prefix_id = read_whole(c, "the prefix's id", UINT64_MAX);
        if (c.peek() != ':')
          fail_at(c.at, fmt::format("ID:TOKENS is required, such as 7:1024, there is {} behind the id",
                                    seen_at(c)));
        ++c.at;
        line_.prefix_tokens = read_tokens(c, "the prefix's number of tokens");
        break;
    }
    require_end(c, names_[i]);
  }
  if (!c.at_line_end())
    fail_at(c.at, fmt::format("the line has more than {} columns, which the header names", columns_.size()));
  if (line_.prefix_tokens > line_.prompt_tokens) {
    fail_at(prefix_offset,
            fmt::format("the prefix has {} tokens, and the prompt {}; a prefix is a part of its prompt",
                        line_.prefix_tokens, line_.prompt_tokens));
  }
}

void TraceParser::parse_object(std::string_view line) {
  Cursor c{line, '\n'};  // no line has one: a field ends at its mark
  ids_.clear();
  bool seen[std::size(kFields)] = {};
  std::size_t ids_offset = 0;
  read_mark(c, '{');
  while (true) {
    skip_spaces(c);
    const std::size_t begin = c.at;
    const std::size_t field = read_field_name(c);
    if (seen[field]) fail_at(begin, fmt::format("{} occurs twice", kFields[field]));
    seen[field] = true;
    if (field == 0) {
      line_.time_offset = c.at;
      line_.time_ns = read_time(c, kFields[0], 6);
    } else if (field == 1) {
      line_.prompt_offset = c.at;
      line_.prompt_tokens = read_tokens(c, kFields[1]);
    } else if (field == 2) {
      line_.output_tokens = read_tokens(c, kFields[2]);
    } else {
      ids_offset = c.at;
      read_ids(c, ids_);
    }
    skip_spaces(c);
    if (c.peek() == '}') break;
    read_mark(c, ',');
  }
  for (std::size_t i = 0; i < std::size(kFields); ++i) {
    if (!seen[i]) fail_at(c.at, fmt::format("the field {} is missing", kFields[i]));
  }
  ++c.at;
  skip_spaces(c);
  if (!c.done()) fail_at(c.at, fmt::format("{} stands behind the object", seen_at(c)));
  const auto pieces = static_cast<std::size_t>((line_.prompt_tokens + kMooncakePiece - 1) / kMooncakePiece);
  if (ids_.size() > pieces) {
    fail_at(ids_offset, fmt::format("there are {} hash ids, and {} tokens are {} pieces of {}", ids_.size(),
                                    line_.prompt_tokens, pieces, kMooncakePiece));
  }
  line_.ids = ids_;
}

}  // namespace attnbench
