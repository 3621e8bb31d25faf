#include "harness/serving/trace_form.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

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

/// A place in a line. It never looks behind the end.
struct Cursor {
  std::string_view line;
  std::size_t at = 0;
  std::size_t end = 0;  ///< of the value

  bool done() const { return at == end; }
  char peek() const { return at < end ? line[at] : '\0'; }
  bool digit() const { return at < end && static_cast<unsigned char>(line[at] - '0') < 10; }
};

/// What the line has from `at` on, for a message.
std::string seen_at(const Cursor& c) {
  if (c.done()) return "nothing";
  return fmt::format("'{}'", c.line.substr(c.at, std::min<std::size_t>(c.end - c.at, 20)));
}

[[noreturn]] void fail_at(std::size_t offset, std::string what) { throw BadLine{offset, std::move(what)}; }

/// Digits as a number up to `most`.
uint64_t read_whole(Cursor& c, std::string_view name, uint64_t most) {
  const std::size_t begin = c.at;
  if (!c.digit()) {
    if (c.peek() == '-') fail_at(begin, fmt::format("{} is negative; mend or remove the line", name));
    fail_at(begin, fmt::format("{} is {}, a whole number is required", name, seen_at(c)));
  }
  uint64_t value = 0;
  for (; c.digit(); ++c.at) {
    const auto next = static_cast<uint64_t>(c.line[c.at] - '0');
    if (value > (most - next) / 10) fail_at(begin, fmt::format("{} is more than {}", name, most));
    value = value * 10 + next;
  }
  return value;
}

int32_t read_tokens(Cursor& c, std::string_view name) {
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
  int64_t value = 0;
  for (; c.digit(); ++c.at) {
    if (places == 0) continue;
    value = value * 10 + (c.line[c.at] - '0');
    --places;
  }
  for (; places > 0; --places) value *= 10;
  return value;
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

/// "2023-11-16 18:15:46.6805900", with "+00:00" or without.
int64_t read_date(Cursor& c, std::string_view name) {
  const int64_t year = read_part(c, "year", 4, 1970, 2150);
  read_char(c, '-');
  const int64_t month = read_part(c, "month", 2, 1, 12);
  read_char(c, '-');
  const bool leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const int64_t days = kDays[month - 1] + (leap && month == 2 ? 1 : 0);
  const int64_t day = read_part(c, "day", 2, 1, days);
  read_char(c, c.peek() == 'T' ? 'T' : ' ');
  const int64_t hour = read_part(c, "hour", 2, 0, 23);
  read_char(c, ':');
  const int64_t minute = read_part(c, "minute", 2, 0, 59);
  read_char(c, ':');
  const int64_t second = read_part(c, "second", 2, 0, 59);
  const int64_t ns = read_fraction(c, name, 9);
  if (c.line.substr(c.at, c.end - c.at) == "+00:00") c.at = c.end;
  return ((((days_since_1970(year, month, day) * 24 + hour) * 60) + minute) * 60 + second) * 1'000'000'000 +
         ns;
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
    ids.push_back(read_whole(c, "a hash id", UINT64_MAX));
    skip_spaces(c);
    if (c.peek() == ']') break;
    read_mark(c, ',');
    skip_spaces(c);
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
  Cursor c{line};
  std::size_t prefix_offset = 0;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (i > 0) {
      if (c.end == line.size())
        fail_at(c.end,
                fmt::format("the line has {} of {} columns; '{}' is missing", i, columns_.size(), names_[i]));
      c.at = c.end + 1;
    }
    c.end = std::min(line.find(',', c.at), line.size());
    switch (columns_[i]) {
      case Column::kOther:
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
  if (c.end != line.size())
    fail_at(c.end, fmt::format("the line has more than {} columns, which the header names", columns_.size()));
  if (line_.prefix_tokens > line_.prompt_tokens) {
    fail_at(prefix_offset,
            fmt::format("the prefix has {} tokens, and the prompt {}; a prefix is a part of its prompt",
                        line_.prefix_tokens, line_.prompt_tokens));
  }
}

void TraceParser::parse_object(std::string_view line) {
  Cursor c{line, 0, line.size()};
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
