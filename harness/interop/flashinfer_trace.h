// Traces of FlashInfer (its schema "FlashInfer Trace"): a folder with definitions/**/*.json, which say what is
// computed, and workloads/**/*.jsonl, which say on which lengths and pages. Workloads of the op types gqa_paged,
// gqa_ragged and mla_paged become cases. Their index tensors are read; q, K and V are drawn as in other cases.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "harness/error.h"
#include "harness/results/record.h"

namespace attnbench {

/// What cannot be read of a trace: "FILE:LINE: error: field 'workload.axes': ...".
class TraceError : public Error {
 public:
  explicit TraceError(const std::string& what) : Error(what, kExitUsage, "") {}
};

struct TraceWorkload {
  std::string definition;
  std::string workload;  ///< the object as JSON, which goes back into the evaluations
  std::string case_id;
};

struct FlashinferTrace {
  std::vector<Case> cases;               ///< distinct; workloads of equal lengths, pages and shapes share one
  std::vector<TraceWorkload> workloads;  ///< those that became cases, in the order of the files
  std::map<std::string, int64_t> skipped;  ///< how many workloads did not, by reason
  std::vector<std::string>
      errors;  ///< files and lines that cannot be read: "FILE:LINE: error: WHAT"; the rest is read
};

/// Whether the path is a folder with definitions/ and workloads/.
bool is_flashinfer_trace(const std::string& path);

/// Reads the trace. What attnbench does not know (op types, axes, inputs, types) is skipped with a reason. A file or a
/// line that cannot be read, or that contradicts the schema or itself, is one of the errors.
FlashinferTrace read_flashinfer_trace(const std::string& dir, uint64_t seed);

/// Results of a run, as lines of `{definition, workload, solution, evaluation}`.
struct Evaluations {
  std::string lines;  ///< JSON, one a line
  int64_t written = 0;
  int64_t untimed = 0;  ///< right results without a valid time, which the schema cannot hold: left out
};

/// The evaluations of the trace's workloads; `solution` is the kernel. Skipped cases have none.
Evaluations evaluations_of(const FlashinferTrace& trace, std::span<const Record> records,
                           const RunContext& context);

}  // namespace attnbench
