// What merging partial states adds to the error of a path's output.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/contract/kernel.h"

namespace attnbench {

/// Partial states as the launches left them, and what their kernels promise.
struct PartialStates {
  std::vector<unsigned char> out;  ///< (N, T, H, D)
  std::vector<float> lse;          ///< (N, H, T)
  Numerics numerics;               ///< of the launches
  Numerics merge_numerics;
  int64_t keys = 0;  ///< most keys of a state
};

/// Variance of each element of the merged output, (T, H, D), beyond that of one launch over all keys. With
/// weights w_s: each state's O is rounded once more, w_s O_s by u^2 / 3, and an error of w_s, from the LSE's
/// own and from the merge's exponential, moves the output by w_s (O_s - O).
std::vector<double> merge_variance(const MergeStatesParams& merge, const PartialStates& states);

}  // namespace attnbench
