// Messages between a supervisor and its workers: one JSON object per line. One of its members names the message.
//
//   to the worker     {"open": {"device", "threads", "ceilings"}}   first; ceilings: null or known ones
//                     {"measure": true}                             the ceilings, before the first timed case
//                     {"run": {"case", "blocks", "tensors", "id", "sweep", "seed", "kernel", "index",
//                              "experiments", "alone"}}
//   to the supervisor {"ready": {"device": {...}}} or {"failed": "why the device cannot be opened"}
//                     {"ceilings": {...}}                           measured, or measured again
//                     {"phase": 1, "launch_s", "invariant"}         a Reached: set-up has ended; launches begin
//                     {"wrong": {...}}                              a record without all clues, if no other follows
//                     {"record": {...}, "lost": false}              lost: the device context is unusable
//
// Only the supervisor reads configuration files. A worker gets each case as the mapping that `run --case`
// reads.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "harness/cases/case.h"
#include "harness/results/record.h"
#include "harness/session/phase.h"

namespace attnbench {

using Message = nlohmann::ordered_json;

/// File descriptors of the pipes when a worker starts. It moves them at once (worker_pipe.h).
inline constexpr int kWorkerIn = 3;
inline constexpr int kWorkerOut = 4;

/// Splits the received bytes into lines.
class LineBuffer {
 public:
  void add(const char* data, std::size_t size) { text_.append(data, size); }
  /// The next whole line, without its newline.
  std::optional<std::string> next();
  const std::string& rest() const { return text_; }

 private:
  std::string text_;
};

/// Writes the whole line and its newline. Returns false if the other end is closed.
bool write_line(int fd, std::string text);

/// `alone`: the seed of the rows of an earlier check, which is repeated without timing; 0: all rows.
Message case_message(const Case& item, const std::string& kernel, int64_t index, bool experiments,
                     std::optional<uint64_t> alone = {});
/// Reads a case back. Throws Error if the mapping gives another case than was sent.
Case case_from_message(const Message& run);

Message phase_message(const Reached& reached);
Reached reached_from_message(const Message& message);

/// The record in an entry. Throws std::logic_error, which names the field, if reading it back loses
/// something.
Record whole_record(const Message& entry, const Case& item);

}  // namespace attnbench
