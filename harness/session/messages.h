// What a supervisor and its workers say to each other: one JSON object a line, each with one member that
// names it.
//
//   to the worker     {"open": {"device", "threads", "ceilings"}}   first; ceilings: null or those before
//                     {"measure": true}                             the ceilings, before the first timed case
//                     {"run": {"case", "id", "sweep", "seed", "kernel", "index"}}
//   to the supervisor {"ready": {"device": {...}}} or {"failed": "why the device cannot be opened"}
//                     {"ceilings": {...}}                           measured, or measured again
//                     {"record": {...}, "lost": false}              lost: the device context is unusable
//
// Configuration files are read by the supervisor alone: a worker gets cases, as the mapping that `run --case`
// reads.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "harness/cases/case.h"
#include "harness/record/record.h"

namespace attnbench {

using Message = nlohmann::ordered_json;

/// The file descriptors of a worker's pipe.
inline constexpr int kWorkerIn = 3;
inline constexpr int kWorkerOut = 4;

/// Splits what arrives into lines.
class LineBuffer {
 public:
  void add(const char* data, std::size_t size) { text_.append(data, size); }
  /// The next whole line, without its end.
  std::optional<std::string> next();
  const std::string& rest() const { return text_; }

 private:
  std::string text_;
};

/// Writes all of it; false where the other end is gone.
bool send_line(int fd, const Message& message);

Message case_message(const Case& item, const std::string& kernel, int64_t index);
/// Reads a case back. Throws Error where the mapping gives another case than was sent.
Case case_from_message(const Message& run);

/// The record in an entry; std::logic_error, naming the field, where reading it back loses something: then
/// record/json_read.cpp lacks what record/json.cpp has.
Record whole_record(const Message& entry, const Case& item);

}  // namespace attnbench
