// The variance that merging partial states adds to a path's output.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/contract/kernel.h"

namespace attnbench {

/// Partial states that launches have written, and the declared arithmetic of their kernels.
struct PartialStates {
  MergeStatesParams layout{};      ///< shapes, types and strides; no pointers
  std::vector<unsigned char> out;  ///< (N, T, H, D)
  std::vector<float> lse;          ///< (N, H, T)
  Numerics numerics;               ///< of the launches that wrote the states
  Numerics merge_numerics;         ///< of the merge
  int64_t keys = 0;                ///< most keys of a state
  /// Sums of weighted O that are rounded to the states' type, as each term is: 0 if sums are float.
  int32_t rounded_sums = 0;
};

/// Variance of each element of the merged output, (T, H, D), in addition to that of one launch over all keys.
/// Each state's O is rounded once more, which adds u^2 / 3 (w_s O_s)^2 with its weight w_s, and (w_s q)^2 / 12 where
/// its type's least spacing q is felt, as under a heavy sink in fp16. An error of w_s
/// comes from the LSE and from the merge's exponential; it moves the output by w_s (O_s - O).
std::vector<double> merge_variance(const PartialStates& states);

}  // namespace attnbench
