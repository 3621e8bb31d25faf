// The partial states of a merge_states case: their values by coordinate, and their layout.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/cases/case.h"
#include "harness/values/fill.h"

namespace attnbench {

/// States of a row: `states`, or, if they are ragged, 0 to `states`. Row 0 has all of them.
int32_t states_of_row(const Case& c, int64_t row);

/// (T + 1): where the states of a row begin in the list of all; [T] is their number. Throws TooLarge if that
/// exceeds 32 bits.
std::vector<int32_t> state_indptr_of(const Case& c);

/// LSE of state `state` of (row, head), as the launch reads it: with lse_log base2 it is to base 2. An empty
/// state has -inf or +inf, as `empty_lse` says. Others lie within (-12, 12). With `data` peaked or large the
/// interval is 8 times as wide, with huge 8192 times.
float partial_lse_of(const Case& c, int state, int64_t row, int head);

/// Strides of the partial LSEs in elements. Rows, heads and states are padded, unless the case has dense ones and
/// `padded` is not given, so that a kernel that mixes up two strides reads a wrong number or NaN.
struct LseStrides {
  int64_t state, token, head;
};
LseStrides partial_lse_strides(const CaseParams& p, bool padded);

/// The partial LSEs with partial_lse_strides; gaps hold NaN.
std::vector<float> partial_lse_tensor(const Case& c, bool padded);

/// Owners {state, row * H + head} of the rows of the partial outputs (N, T, H), or of the list of ragged
/// states, by row, state and head. Empty states are poison.
/// Throws TooLarge if T * H exceeds 32 bits.
std::vector<RowOwner> partial_out_owners(const Case& c);

int64_t merge_rows(const CaseParams& p);  ///< T, the number of rows of each state

}  // namespace attnbench
