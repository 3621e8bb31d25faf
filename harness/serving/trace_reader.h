// Requests of a trace file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/config/trace_columns.h"
#include "harness/serving/arrivals.h"
#include "harness/serving/trace_form.h"
#include "harness/serving/trace_lines.h"

namespace attnbench {

struct TraceOptions {
  int32_t block_size = 16;                 ///< of the hashes; 0: 512 for Mooncake's form, 16 for others
  bool skip_bad = false;                   ///< lines that are wrong are counted, and left out
  const char* skip_option = "--skip-bad";  ///< what errors call `skip_bad`
  int64_t cache_tokens =
      0;  ///< a request that needs more is wrong; 0: none is. It is rounded down to whole blocks
  int64_t prompt_tokens = 0;  ///< a prompt that is longer is wrong; 0: none is
  double speed_up = 1;        ///< times are divided by it
  TraceColumns columns = {};  ///< names of columns that differ from those of the form
};

/// Reads a file in constant memory. It can be a NextRequest, by reference. The first request arrives at 0. Requests are
/// sorted by time as far as they are read ahead: logs are often written in the order of the ends.
class TraceReader {
 public:
  /// Reads the first line. Throws Error, or BadTraceError if the form is unknown or has no blocks of this size.
  TraceReader(const std::string& path, const TraceOptions& options);
  /// `path` is for messages.
  TraceReader(const std::string& path, LineReader lines, const TraceOptions& options);
  TraceReader(const TraceReader&) = delete;  // a line lies in the buffer
  TraceReader& operator=(const TraceReader&) = delete;

  /// Throws BadTraceError at a line that is wrong, unless such lines are skipped.
  bool operator()(Request& r);

  TraceForm form() const { return parser_->form(); }
  int32_t block_size() const { return options_.block_size; }
  int64_t skipped() const { return skipped_; }  ///< lines
  /// "columns not read: NumImages (...); 2 lines skipped; the first: ITS ERROR"; empty: nothing was left out so far.
  std::string note() const;

 private:
  /// A request that is read ahead.
  struct Ahead {
    TraceLine line;
    std::vector<uint64_t> ids;
    int64_t number = 0;  // of its line
  };

  bool read_line();
  void read_ahead();
  void insert(const TraceLine& line);
  void check(const TraceLine& line) const;
  void add_hashes(const TraceLine& line, Request& r);
  std::string message(const BadLine& bad) const;
  static constexpr std::size_t kMostAhead = 4096;
  Ahead& ahead(std::size_t i) { return ring_[(ring_begin_ + i) % kMostAhead]; }

  std::string path_;
  LineReader lines_;
  TraceOptions options_;
  std::optional<TraceParser> parser_;
  TextLine line_;
  bool line_is_read_ = false,
       at_end_ = false;                    // line_is_read_: the first line is a request, and not yet read
  std::optional<int64_t> first_ns_;        // of the first request that is returned
  int64_t last_ns_ = 0, last_number_ = 0;  // of the last one that is returned, and its line
  std::vector<Ahead> ring_;                // in the order of times
  std::size_t ring_begin_ = 0, ring_size_ = 0, ring_ids_ = 0;
  std::string failed_;  // the error that is thrown after the requests in front of it
  int64_t skipped_ = 0;
  std::string first_skipped_;
};

}  // namespace attnbench
