// What the judge expects of a launch, as arrays: for kernels that run elsewhere.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/cases/case.h"
#include "harness/verify/verdict.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

/// Expected outputs of an attention case, and the standard deviations of errors that the declared arithmetic
/// explains. A row that is not compared, or that no query has, holds NaN in all four. A row without visible keys must be met exactly:
/// its standard deviations are 0.
struct ExpectedOutputs {
  std::vector<double> out;       ///< (total_q, Hq, Dv)
  std::vector<double> lse;       ///< (Hq, total_q)
  std::vector<float> sigma_out;  ///< shaped like out
  std::vector<float> sigma_lse;  ///< shaped like lse
  int64_t rows = 0, rows_total = 0;
};

/// Computes the rows that `mode` compares; it must not be kOff. num_threads 0: all.
ExpectedOutputs expected_outputs(const Case& c, const Numerics& numerics, CheckMode mode,
                                 int num_threads = 0);

}  // namespace attnbench
