// The forms of traces: a line of each, as numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/config/trace_columns.h"

namespace attnbench {

namespace trace_value {
struct Cursor;
}

enum class TraceForm { kAzure, kMooncake, kBurstGpt, kPlain, kVidur, kSplitwise, kJson };

/// "Azure LLM inference CSV".
const char* trace_form_name(TraceForm form);

/// Tokens of a hash id of Mooncake's form.
inline constexpr int32_t kMooncakePiece = 512;
/// Most tokens of a prompt, and of an output.
inline constexpr int64_t kMostTraceTokens = 1 << 24;

/// What is wrong with a line, where in it, and the mend.
struct BadLine {
  std::size_t offset = 0;  ///< bytes in front of the place
  std::string what;
};

/// A line without its shared prefix.
struct TraceLine {
  int64_t time_ns = 0;  ///< since any one moment
  int32_t prompt_tokens = 0, output_tokens = 0;
  std::size_t time_offset = 0, prompt_offset = 0;  ///< bytes in front of these values
  std::span<const uint64_t> ids;                   ///< Mooncake's: of the pieces of 512 tokens, in order
  uint64_t prefix_id = 0;  ///< plain: the prompt begins with prefix_tokens of this prefix
  int32_t prefix_tokens = 0;
};

/// Knows the form of a file by its first line.
class TraceParser {
 public:
  /// Throws BadLine if the line begins no known form, or a column is missing.
  explicit TraceParser(std::string_view first_line, const TraceColumns& columns = {});

  TraceForm form() const { return form_; }
  /// Whether the first line is a header, and no request.
  bool has_header() const { return form_ != TraceForm::kMooncake && form_ != TraceForm::kJson; }
  /// Reads a line; no byte outside of it is looked at. Valid until the next call. Throws BadLine.
  const TraceLine& parse(std::string_view line);
  /// Columns, or fields so far, that are not read and may add to the load: "NumImages". At most 64.
  const std::vector<std::string>& not_read() const { return not_read_; }

 private:
  enum class Column { kTime, kPrompt, kOutput, kPrefix, kIds, kOther };
  void read_header(std::string_view header, const TraceColumns& given);
  void parse_columns(std::string_view line);
  void parse_object(std::string_view line);
  std::size_t read_field_name(trace_value::Cursor& c);
  void read_value(trace_value::Cursor& c, Column column, std::string_view name);
  void note_not_read(std::string_view name);

  TraceForm form_ = TraceForm::kPlain;
  int time_places_ = 9;          // times are in units of 10^time_places_ nanoseconds
  std::vector<Column> columns_;  // of a CSV
  std::vector<std::string>
      names_;  // of the columns; JSON: of the fields that are read, in the order of Column
  std::vector<std::string> not_read_;
  std::vector<uint64_t> ids_;
  TraceLine line_;
  std::size_t prefix_offset_ = 0;  // of the line's prefix or ids
};

}  // namespace attnbench
