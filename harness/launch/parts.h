// The launches of a path: the parts of one attention call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/cases/case.h"

namespace attnbench {

/// One launch of attention over a part of the queries or of the keys.
struct Part {
  std::string name;  ///< for messages: "prefix", "rank 1"
  /// Pointers are those of the whole call, moved to the part's first row. Pointers to the arrays below are
  /// null. out and lse are null, too, if the part writes a state.
  AttentionParams params{};
  std::vector<int32_t> cu_seqlens_q;  ///< (batch of the part + 1), begins with 0
  std::vector<int32_t> seqused_k;     ///< empty: params has the pointer of the whole call
  int32_t state = -1;                 ///< partial state that it writes; -1: the output itself
};

/// The launches of a path other than one_call; empty if there is no query. `whole` is the one call, whose
/// pointers may be null; `lead` is its number of unused rows before the first sequence.
std::vector<Part> parts_of(const CaseParams& params, const AttentionParams& whole, int32_t lead);

/// Parameters that merge `num_states` states (N, T, H, D) with LSEs (N, H, T) into the output of `whole`. The
/// caller sets the pointers to the states.
MergeStatesParams merge_of(const AttentionParams& whole, int32_t num_states, int32_t lead);

}  // namespace attnbench
