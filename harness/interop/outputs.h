// Outputs of a kernel that ran elsewhere, read from files and judged.
#pragma once

#include <optional>
#include <string>

#include "harness/interop/case_file.h"
#include "harness/results/record.h"

namespace attnbench {

/// Where the outputs are.
struct OutputFiles {
  std::string out;        ///< .npy with O alone, or .safetensors with tensors `out`, `lse` and so on
  std::string lse = {};   ///< .npy; empty: none
  bool plus_inf = false;  ///< the LSE of a row without keys is +inf (kInfEmptyLse)
};

/// Reads the outputs and judges them as a run judges those of a kernel with this arithmetic. `workload` holds
/// the case, on the cpu device. Without an LSE, O alone is judged, and declared->waived of the verdict has
/// kNoLse. Throws TensorFileError, which names file, tensor and the shape that is required.
Verdict judge_outputs(const OutputFiles& files, Workload& workload, const Numerics& numerics, CheckMode mode);

/// Judges the `out` (and `lse`) that the file of a captured case has, as outputs of a usual kernel; nullopt: it has none.
/// Throws as judge_outputs.
std::optional<Verdict> judge_captured(const Case& c, CheckMode mode);

}  // namespace attnbench
