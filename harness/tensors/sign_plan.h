// Which signs of a case's inputs can be changed so that the outputs keep their bits, apart from known signs
// (values/signs.h).
#pragma once

#include <cstdint>
#include <vector>

#include "harness/cases/case.h"

namespace attnbench {

/// Signs of one launch, 1: changed. A table has a row per KV head (merge_states: per head). q uses the table
/// of K, O that of V.
struct SignPlan {
  std::vector<uint8_t> qk;  ///< (Hkv, D)
  std::vector<uint8_t> v;   ///< (Hkv, Dv); merge_states: (H, D)
  bool operator==(const SignPlan&) const = default;
};

/// For fp8_ds_mla: which bytes of a row of K hold a sign that is changed, (Hkv, bytes of a row). Else empty.
std::vector<uint8_t> row_signs(const CaseParams& p, const SignPlan& signs);

/// No sign is changed.
SignPlan plain_signs(const CaseParams& p);

/// `signs` with random changes in up to 16 neighbouring channels of each head (32 if a rotary embedding turns
/// pairs of channels, whose signs stay equal), at least one per head. Rows that are rounded to int8 with a given
/// scale keep their signs, because int8 saturates at -128 and at 127.
SignPlan other_signs(const CaseParams& p, SignPlan signs, uint64_t seed);

/// A few channels of V of one head. If their signs change, the outputs become others, and nearly all inputs
/// stay as they are.
struct FewChannels {
  int32_t head = 0, first = 0, count = 0;
};
FewChannels few_channels(const CaseParams& p, uint64_t seed);
/// `signs` with other signs in these channels.
SignPlan changed_in(const CaseParams& p, SignPlan signs, const FewChannels& few);

}  // namespace attnbench
