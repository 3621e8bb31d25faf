// The partial states of a merge_states case: their values by coordinate, and where they lie.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/cases/case.h"
#include "harness/values/fill.h"

namespace attnbench {

/// Natural log of the sum of exp(score) that state `state` of (row, head) stands for; -inf where the state is
/// empty. Within (-12, 12), 8 times that where `data` is peaked or large, 8192 times where it is huge.
float partial_lse_of(const Case& c, int state, int64_t row, int head);

/// Strides of the partial LSEs in elements. Rows, heads and states are padded apart, so that a kernel that
/// takes one stride for another reads the wrong number or NaN.
struct LseStrides {
  int64_t state, token, head;
};
LseStrides partial_lse_strides(const CaseParams& p);

/// The partial LSEs in memory, gaps NaN.
std::vector<float> partial_lse_tensor(const Case& c);

/// Which (state, row * H + head) the rows of the partial outputs (N, T, H) hold; empty states are poison.
std::vector<RowOwner> partial_out_owners(const Case& c);

int64_t merge_rows(const CaseParams& p);  ///< T

}  // namespace attnbench
