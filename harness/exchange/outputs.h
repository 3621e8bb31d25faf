// Outputs of a kernel that ran elsewhere, read from files and judged.
#pragma once

#include <string>
#include <vector>

#include "harness/exchange/case_file.h"
#include "harness/record/record.h"

namespace attnbench {

/// Where the outputs are.
struct OutputFiles {
  std::string out;  ///< .npy with O alone, or .safetensors with tensors `out`, `lse` and so on
  std::string lse;  ///< .npy; empty: none
};

/// Reads the outputs and judges them as a run judges those of a kernel with this arithmetic. `workload` holds
/// the case, on the cpu device. Without an LSE, O alone is judged, and numerics->waived of the verdict has
/// kNoLse. Throws TensorFileError, which names file, tensor and the shape that is required.
Verdict judge_outputs(const OutputFiles& files, Workload& workload, const Numerics& numerics, CheckMode mode);

}  // namespace attnbench
