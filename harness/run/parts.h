// A path's launches: the parts that one attention call is made up of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/cases/case.h"

namespace attnbench {

/// One launch of attention over a part of the queries or of the keys.
struct Part {
  std::string name;  ///< for messages: "prefix", "rank 1"
  /// Pointers are those of the whole call, moved to the part's first row; those whose arrays stand below are
  /// null, and so are out and lse of a part that writes a state.
  AttentionParams params{};
  std::vector<int32_t> cu_seqlens_q;  ///< from 0
  std::vector<int32_t> seqused_k;     ///< empty: those of the whole call
  int32_t state = -1;                 ///< partial state that it writes; -1: the output itself
};

/// The launches of a case's path other than one_call. `whole`: the call over all, whose pointers may be null;
/// `lead`: its rows before the first sequence's. Empty where there is no query.
std::vector<Part> parts_of(const CaseParams& params, const AttentionParams& whole, int32_t lead);

/// Merges `num_states` states (N, T, H, D) with LSEs (N, H, T) into the output of `whole`.
MergeStatesParams merge_of(const AttentionParams& whole, int32_t num_states, int32_t lead);

}  // namespace attnbench
