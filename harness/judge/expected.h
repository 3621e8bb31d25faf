// What the judge expects of a launch, as arrays: for kernels that run elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/facts/verdict.h"
#include "harness/tensors/workload.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

/// An output tensor, in the shape and the convention of the launch: its LSE is natural or to base 2, O in e4m3 is
/// O / out_scale. An element that is not compared, or that no query or key has, holds NaN in both. A row without
/// visible keys must be met exactly: its standard deviations are 0. Those of caches, whose bits are compared, are 0 where
/// `got` is right, and -1 where it is wrong.
struct ExpectedOutput {
  std::string name;            ///< as in the contract: "out", "lse", "probs", "dq", "k_cache", ...
  std::vector<int64_t> shape;  ///< caches: one dimension
  std::vector<double> value;
  std::vector<float> sigma;  ///< standard deviations of errors that the declared arithmetic explains
};

struct ExpectedOutputs {
  std::vector<ExpectedOutput> tensors;
  int64_t rows = 0, rows_total = 0;  ///< as in a verdict; attention and its gradients
};

/// An output of this shape of which nothing is compared.
ExpectedOutput not_compared(const char* name, std::vector<int64_t> shape);

/// Sets what is compared in bits: all elements but those in `holes`, or, where `to` has an element already, those that
/// differ from `got`.
void put_bits(ExpectedOutput& to, DType type, const unsigned char* expected, const unsigned char* got,
              const HostBytes* holes = nullptr);

/// Computes the rows that `check` compares; its mode must not be kOff. `got`: the outputs of a launch, which decide where
/// several roundings are right; without its caches, those are not among the outputs of attention. num_threads 0: all.
ExpectedOutputs expected_outputs(const Workload& workload, const HostOutputs& got, const Numerics& numerics,
                                 const Check& check, int num_threads = 0);

}  // namespace attnbench
