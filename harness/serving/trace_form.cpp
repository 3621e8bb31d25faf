#include "harness/serving/trace_form.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "harness/serving/trace_value.h"

namespace attnbench {
namespace {

using trace_value::Cursor;
using trace_value::fail_at;
using trace_value::read_time;
using trace_value::read_tokens;
using trace_value::read_whole;
using trace_value::seen_at;
using trace_value::skip_spaces;

/// The columns that a CSV form needs: time, prompt, output. `harmless`: others that do not add to the load.
struct CsvForm {
  TraceForm form;
  const char* name;
  std::array<std::string_view, 3> columns;
  std::vector<std::string_view> harmless;
};

const std::vector<CsvForm>& csv_forms() {
  static const std::vector<CsvForm> forms = {
      {TraceForm::kAzure, "Azure LLM inference CSV", {"TIMESTAMP", "ContextTokens", "GeneratedTokens"}, {}},
      {TraceForm::kBurstGpt,
       "BurstGPT CSV",
       {"Timestamp", "Request tokens", "Response tokens"},
       {"Model", "Total tokens", "Log Type", "Session ID", "Elapsed time"}},
      {TraceForm::kVidur,
       "Vidur CSV",
       {"arrived_at", "num_prefill_tokens", "num_decode_tokens"},
       {"num_total_tokens", "pd_ratio"}},
      {TraceForm::kSplitwise,
       "SplitwiseSim CSV",
       {"arrival_timestamp", "prompt_size", "token_size"},
       {"request_id", "request_type", "application_id"}},
      {TraceForm::kPlain, "CSV", {"arrival", "prompt", "output"}, {}}};
  return forms;
}

constexpr std::string_view kPrefixColumn = "prefix";
constexpr std::string_view kIdsField = "hash_ids";
constexpr std::size_t kMostColumns = 64;
constexpr int kNanosecondsOfMs = 6, kNanosecondsOfS = 9;  // as powers of ten

bool same_name(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

/// Blanks, and a quote that begins a value. A value in quotes ends at the next one.
[[gnu::always_inline]] inline bool begin_value(Cursor& c) {
  skip_spaces(c);
  if (c.peek() != '"') return false;
  ++c.at;
  c.stop = '"';
  skip_spaces(c);
  return true;
}

/// The end of a value: its quote, and blanks. `stop` ends the next one.
[[gnu::always_inline]] inline void end_value(Cursor& c, bool quoted, char stop) {
  skip_spaces(c);
  if (!quoted) return;
  if (c.peek() != '"') fail_at(c.at, fmt::format("{} stands where a closing quote is required", seen_at(c)));
  ++c.at;
  c.stop = stop;
  skip_spaces(c);
}

void require_end(const Cursor& c, std::string_view name) {
  if (!c.done())
    fail_at(c.at, fmt::format("{} stands behind {}, where a comma or the line's end is required", seen_at(c),
                              name));
}

/// Skips a value that is not read, up to its closing quote.
void skip_value(Cursor& c, bool quoted) {
  if (!quoted) {
    c.at += c.rest().size();
    return;
  }
  const std::size_t begin = c.at;
  while (true) {
    c.at += c.rest().size();
    if (c.at_line_end())
      fail_at(begin - 1, "the quote is not closed on this line; a value of one line is required");
    if (c.line.substr(c.at, 2) != "\"\"") return;  // two stand for one that is part of the value
    c.at += 2;
  }
}

std::vector<std::string_view> columns_of(std::string_view header) {
  std::vector<std::string_view> names;
  Cursor c{header, ','};
  while (true) {
    const bool quoted = begin_value(c);
    const std::size_t begin = c.at;
    skip_value(c, quoted);
    const std::string_view name = header.substr(begin, c.at - begin);
    names.push_back(name.substr(0, name.find_last_not_of(" \t") + 1));
    end_value(c, quoted, ',');
    require_end(c, "the name of a column");
    if (c.at_line_end()) return names;
    if (names.size() == kMostColumns)
      fail_at(c.at, fmt::format("there are more than {} columns", kMostColumns));
    ++c.at;
  }
}

void read_mark(Cursor& c, char wanted) {
  skip_spaces(c);
  if (c.peek() != wanted || c.done())
    fail_at(c.at, fmt::format("'{}' is required, there is {}", wanted, seen_at(c)));
  ++c.at;
}

/// Skips what stands behind `c.at`, a quote, up to the closing quote of a JSON text.
void skip_json_text(Cursor& c) {
  const std::size_t begin = c.at++;
  while (c.peek() != '"') {
    c.at += c.peek() == '\\' ? 2 : 1;
    if (c.at >= c.line.size()) fail_at(begin, "the text has no closing quote");
  }
  ++c.at;
}

/// Skips a JSON value of any kind. What is in it is not checked.
void skip_json(Cursor& c) {
  const std::size_t begin = c.at;
  for (int depth = 0; !c.at_line_end();) {
    const char next = c.peek();
    const bool closes = next == '}' || next == ']';
    if (depth == 0 && (closes || next == ',')) break;
    if (next == '"') {
      skip_json_text(c);
      continue;
    }
    depth += next == '{' || next == '[' ? 1 : closes ? -1 : 0;
    ++c.at;
  }
  if (c.at == begin) fail_at(begin, fmt::format("a value is required, there is {}", seen_at(c)));
}

void read_ids(Cursor& c, std::vector<uint64_t>& ids) {
  constexpr std::string_view kNull = "null";
  if (c.line.substr(c.at, kNull.size()) == kNull) {
    c.at += kNull.size();
    return;
  }
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
  for (const CsvForm& f : csv_forms()) {
    if (f.form == form) return f.name;
  }
  return form == TraceForm::kMooncake ? "Mooncake JSONL" : "JSON lines";
}

TraceParser::TraceParser(std::string_view first_line, const TraceColumns& columns) {
  const std::size_t begin = std::min(first_line.find_first_not_of(" \t"), first_line.size());
  if (!first_line.substr(begin).starts_with('{')) {
    read_header(first_line, columns);
    return;
  }
  if (!columns.prefix.empty())
    fail_at(begin, "prefix names a column of a CSV, and these are JSON lines; leave it out");
  const bool has_ids = first_line.find(fmt::format("\"{}\"", kIdsField)) != std::string_view::npos;
  form_ = has_ids ? TraceForm::kMooncake : TraceForm::kJson;
  time_places_ = columns.arrival.empty() ? kNanosecondsOfMs : kNanosecondsOfS;
  const auto name = [](const std::string& given, const char* usual) { return given.empty() ? usual : given; };
  names_ = {name(columns.arrival, "timestamp"), name(columns.prompt, "input_length"),
            name(columns.output, "output_length")};
}

void TraceParser::read_header(std::string_view header, const TraceColumns& given) {
  const std::vector<std::string_view> names = columns_of(header);
  const auto needed_by = [&](const CsvForm& f) {
    std::array<std::string_view, 4> needed = {
        f.columns[0], f.columns[1], f.columns[2],
        f.form == TraceForm::kPlain || given.any() ? kPrefixColumn : ""};
    const std::string* const own[] = {&given.arrival, &given.prompt, &given.output, &given.prefix};
    for (std::size_t i = 0; i < needed.size(); ++i) {
      if (!own[i]->empty()) needed[i] = *own[i];
    }
    return needed;
  };
  const auto count = [&](std::string_view name) {
    return std::ranges::count_if(names, [&](auto n) { return same_name(n, name); });
  };
  /// How many of the needed columns are there. BurstGPT and Azure share one.
  const auto found = [&](const CsvForm& f) {
    const auto needed = needed_by(f);
    return std::count_if(needed.begin(), needed.begin() + 3, [&](auto n) { return count(n) > 0; });
  };
  const CsvForm& form = *std::ranges::max_element(
      csv_forms(), [&](const CsvForm& a, const CsvForm& b) { return found(a) < found(b); });
  if (found(form) == 0) {
    std::string forms;
    for (const CsvForm& f : csv_forms()) forms += fmt::format("'{}', ", fmt::join(f.columns, ","));
    fail_at(0, fmt::format(
                   "no known form of a trace begins with this line; JSON lines are required, or a header "
                   "with {}or columns that you name (--columns arrival=NAME,prompt=NAME,output=NAME; in a "
                   "sweep, columns)",
                   forms));
  }
  form_ = given.any() ? TraceForm::kPlain : form.form;
  const auto needed = needed_by(form);
  for (std::size_t i = 0; i < needed.size(); ++i) {
    const bool required = i < form.columns.size() || !given.prefix.empty();
    if (required && count(needed[i]) == 0) {
      fail_at(0, fmt::format("the column '{}' is missing; {} needs {}; the file has {}", needed[i],
                             trace_form_name(form_), fmt::join(needed.begin(), needed.begin() + 3, ", "),
                             fmt::format("{}", fmt::join(names, ", ")).substr(0, 200)));
    }
    if (!needed[i].empty() && count(needed[i]) > 1)
      fail_at(0, fmt::format("the column '{}' occurs twice", needed[i].substr(0, 40)));
  }
  for (const std::string_view name : names) {
    const auto* const at =
        std::ranges::find_if(needed, [&](auto n) { return !n.empty() && same_name(n, name); });
    const bool is_read = at != needed.end();
    columns_.push_back(is_read ? static_cast<Column>(at - needed.begin()) : Column::kOther);
    names_.emplace_back(name);
    const bool harmless =
        std::ranges::any_of(form.harmless, [&](auto known) { return same_name(known, name); });
    if (!is_read && !harmless && !name.empty()) note_not_read(name);
  }
}

void TraceParser::note_not_read(std::string_view name) {
  const bool known = std::ranges::find(not_read_, name) != not_read_.end();
  if (!known && not_read_.size() < kMostColumns) not_read_.emplace_back(name.substr(0, 40));
}

const TraceLine& TraceParser::parse(std::string_view line) {
  line_ = {};
  prefix_offset_ = 0;
  if (has_header()) {
    parse_columns(line);
  } else {
    parse_object(line);
  }
  return line_;
}

/// The value of a column or field, without blanks and quotes around it.
inline void TraceParser::read_value(Cursor& c, Column column, std::string_view name) {
  switch (column) {
    case Column::kTime:
      line_.time_offset = c.at;
      line_.time_ns = read_time(c, name, time_places_, form_ == TraceForm::kAzure);
      break;
    case Column::kPrompt:
      line_.prompt_offset = c.at;
      line_.prompt_tokens = read_tokens(c, name);
      break;
    case Column::kOutput:
      line_.output_tokens = read_tokens(c, name);
      break;
    case Column::kPrefix:
      prefix_offset_ = c.at;
      if (c.done()) break;
      line_.prefix_id = read_whole(c, "the prefix's id", UINT64_MAX);
      if (c.peek() != ':')
        fail_at(c.at,
                fmt::format("ID:TOKENS is required, such as 7:1024, there is {} behind the id", seen_at(c)));
      ++c.at;
      line_.prefix_tokens = read_tokens(c, "the prefix's number of tokens");
      break;
    case Column::kIds:
      prefix_offset_ = c.at;
      read_ids(c, ids_);
      break;
    case Column::kOther:
      break;
  }
}

void TraceParser::parse_columns(std::string_view line) {
  Cursor c{line, ','};
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    if (i > 0) {
      if (c.at_line_end())
        fail_at(c.at,
                fmt::format("the line has {} of {} columns; '{}' is missing", i, columns_.size(), names_[i]));
      ++c.at;
    }
    const bool quoted = begin_value(c);
    if (columns_[i] == Column::kOther) {
      skip_value(c, quoted);
    } else {
      read_value(c, columns_[i], names_[i]);
    }
    end_value(c, quoted, ',');
    require_end(c, names_[i]);
  }
  if (!c.at_line_end())
    fail_at(c.at, fmt::format("the line has more than {} columns, which the header names", columns_.size()));
  if (line_.prefix_tokens > line_.prompt_tokens) {
    fail_at(prefix_offset_,
            fmt::format("the prefix has {} tokens, and the prompt {}; a prefix is a part of its prompt",
                        line_.prefix_tokens, line_.prompt_tokens));
  }
}

/// The index of the field whose name and colon are read: of names_, behind those kIdsField, or else any larger one.
std::size_t TraceParser::read_field_name(Cursor& c) {
  skip_spaces(c);
  if (c.peek() != '"') read_mark(c, '"');
  const std::size_t begin = c.at + 1;
  skip_json_text(c);
  const std::string_view name = c.line.substr(begin, c.at - 1 - begin);
  read_mark(c, ':');
  skip_spaces(c);
  const auto known = std::ranges::find(names_, name);
  if (known != names_.end()) return static_cast<std::size_t>(known - names_.begin());
  if (name == kIdsField && form_ == TraceForm::kMooncake) return names_.size();
  note_not_read(name);
  return names_.size() + 1;
}

void TraceParser::parse_object(std::string_view line) {
  constexpr char kNone = '\n';  // no line has one: a value ends at its mark
  constexpr Column kColumns[] = {Column::kTime, Column::kPrompt, Column::kOutput, Column::kIds};
  Cursor c{line, kNone};
  ids_.clear();
  bool seen[std::size(kColumns)] = {};
  read_mark(c, '{');
  while (true) {
    skip_spaces(c);
    const std::size_t begin = c.at;
    const std::size_t field = read_field_name(c);
    if (field < std::size(kColumns)) {
      const std::string_view name = field < names_.size() ? std::string_view(names_[field]) : kIdsField;
      if (seen[field]) fail_at(begin, fmt::format("{} occurs twice", name));
      seen[field] = true;
      const bool quoted = begin_value(c);
      read_value(c, kColumns[field], name);
      end_value(c, quoted, kNone);
    } else {
      skip_json(c);
    }
    skip_spaces(c);
    if (c.peek() == '}') break;
    read_mark(c, ',');
  }
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (!seen[i]) fail_at(c.at, fmt::format("the field {} is missing", names_[i]));
  }
  ++c.at;
  skip_spaces(c);
  if (!c.done()) fail_at(c.at, fmt::format("{} stands behind the object", seen_at(c)));
  const auto pieces = static_cast<std::size_t>((line_.prompt_tokens + kMooncakePiece - 1) / kMooncakePiece);
  if (ids_.size() > pieces) {
    fail_at(prefix_offset_, fmt::format("there are {} hash ids, and {} tokens are {} pieces of {}",
                                        ids_.size(), line_.prompt_tokens, pieces, kMooncakePiece));
  }
  line_.ids = ids_;
}

}  // namespace attnbench
