// What the judge expects of a launch, as arrays: for kernels that run elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "harness/facts/verdict.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

/// An output tensor, in the shape and the convention of the launch: its LSE is natural or to base 2, O in e4m3 is
/// O / out_scale. An element that is not compared, or that no query or key has, holds NaN in both. A row without
/// visible keys must be met exactly: its standard deviations are 0.
struct ExpectedOutput {
  std::string name;  ///< as in the contract: "out", "lse", "probs", "dq", "dk", "dv", "dsinks"
  std::vector<int64_t> shape;
  std::vector<double> value;
  std::vector<float> sigma;  ///< standard deviations of errors that the declared arithmetic explains
};

struct ExpectedOutputs {
  std::vector<ExpectedOutput> tensors;
  int64_t rows = 0, rows_total = 0;  ///< as in a verdict
};

/// An output of this shape of which nothing is compared.
ExpectedOutput not_compared(const char* name, std::vector<int64_t> shape);

/// Computes the rows that `mode` compares of a case of attention or attention_backward; it must not be kOff.
/// num_threads 0: all.
ExpectedOutputs expected_outputs(const Case& c, const Numerics& numerics, CheckMode mode,
                                 int num_threads = 0);

}  // namespace attnbench
