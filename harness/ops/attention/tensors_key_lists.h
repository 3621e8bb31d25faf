// The tensors of sparse attention by indices, as a launch gets them.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/tensors/plan.h"
#include "harness/tensors/strides.h"

namespace attnbench {

/// What entries hold that do not count: those behind topk_length, of no query, and between padded lists. A kernel that
/// follows one leaves its memory, or takes the other sign for no key.
inline constexpr int32_t kJunkEntries[2] = {0x7ffffff0, -7};

TokenStrides key_list_strides(const CaseParams& p, bool padded);

struct KeyListTensors {
  std::vector<int32_t>
      indices;  ///< (total_q, Hkv, topk), with key_list_strides(); empty: the case has no lists
  std::vector<int32_t> lengths;  ///< (total_q); empty: all entries count
};

/// The lists of a case in this layout, which `plan` is of.
KeyListTensors key_list_tensors(const Case& c, const WorkloadPlan& plan, const LayoutVariant& variant);

/// Physical rows of the plan's K and V that some list of the case names. plan.kv_owners has its size only.
std::vector<bool> listed_rows(const Case& c, const WorkloadPlan& plan, const LayoutVariant& variant);

}  // namespace attnbench
