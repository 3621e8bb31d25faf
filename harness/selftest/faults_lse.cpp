// Faults of the conventions of LSEs: their base, the order of what is written, +inf, states in one list.
#include <algorithm>

#include "harness/ops/op.h"
#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

#define LSE_SHAPE "dtype: bf16, heads: 4/2, head_dim: 64, mask: causal"
#define LSE_MERGE "op: merge_states, dtype: bf16, heads: 4, head_dim: 64"
constexpr const char* kBase2Lse[] = {
    "{kv: packed, " LSE_SHAPE ", lse_log: base2, batch: q20_q3s40}",
    "{kv: paged, block_size: 16, " LSE_SHAPE ", lse_log: base2, batch: q20_q3s40}",
};
constexpr const char* kTokenMajorLse[] = {
    "{kv: packed, " LSE_SHAPE ", out_lse_layout: token_major, batch: q20_q3s40}",
    "{kv: paged, block_size: 16, " LSE_SHAPE ", out_lse_layout: token_major, batch: q20_q3s40}",
};
constexpr const char* kMergedBase2 =
    "{" LSE_MERGE ", states: 3, empty_states: 0.3, lse_log: base2, batch: q37}";
constexpr const char* kMergedTokenMajor =
    "{" LSE_MERGE ", states: 3, empty_states: 0.3, out_lse_layout: token_major, batch: q37}";
constexpr const char* kVaried =
    "{" LSE_MERGE ", states: 9, states_per_row: varied, empty_states: 0.2, batch: q37}";
constexpr const char* kPlus =
    "{" LSE_MERGE ", states: 3, empty_states: 0.4, empty_lse: plus_inf, batch: q37}";
constexpr const char* kBoth = "{" LSE_MERGE ", states: 3, empty_states: 0.4, empty_lse: both, batch: q37}";

/// A launch that lacks a feature bit: what the bit requests is ignored.
Tamper::Fault without(Feature bit) {
  return with_op([bit](Tamper&, OpParams& op) {
    if (traits_of(op.op).forward()) op.attention.features &= ~uint64_t{bit};
    if (traits_of(op.op).merges) op.merge_states.features &= ~uint64_t{bit};
  });
}

/// Changes the list in which the states of ragged rows begin.
Tamper::Fault with_indptr(const std::function<void(std::vector<int32_t>&)>& change) {
  return with_op([change](Tamper& t, OpParams& op) {
    MergeStatesParams& p = op.merge_states;
    if (p.state_indptr == nullptr) return;
    auto indptr = t.read<int32_t>(p.state_indptr, p.num_rows + 1);
    change(indptr);
    p.state_indptr = t.put(indptr);
  });
}

}  // namespace

FaultClass lse_faults() {
  return {"LSE",
          {{"lse_written_in_natural_log",
            "the LSE is a natural logarithm, not one to base 2",
            {std::begin(kBase2Lse), std::end(kBase2Lse)},
            without(kLseBase2),
            {"lse_log: base2"},
            "of base e, where base 2"},
           {"lse_written_by_head",
            "the LSE is written as (head, token), not (token, head)",
            {std::begin(kTokenMajorLse), std::end(kTokenMajorLse)},
            with_params([](Tamper&, AttentionParams& p) {
              p.features &= ~uint64_t{kLseTokenMajor};
              p.lse_stride_head = p.total_q;
            }),
            {"out_lse_layout: token_major"},
            "where (total_q, Hq) is required"},
           {"base2_states_read_as_natural",
            "LSEs to base 2 are merged, and written, as natural ones",
            {kMergedBase2},
            without(kLseBase2),
            {"lse_log: base2"},
            "weights are powers of e of LSEs of base 2"},
           {"merged_lse_written_by_head",
            "the merged LSE is written as (head, token), not (token, head)",
            {kMergedTokenMajor},
            with_op([](Tamper&, OpParams& op) {
              op.merge_states.features &= ~uint64_t{kLseTokenMajor};
              op.merge_states.out_lse_stride_head = op.merge_states.num_rows;
            }),
            {"out_lse_layout: token_major"}},
           {"equal_numbers_of_states",
            "all rows are taken to have the same number of states",
            {kVaried},
            with_indptr([](std::vector<int32_t>& indptr) {
              const auto rows = static_cast<int64_t>(indptr.size()) - 1;
              const int64_t all = indptr.back();
              for (int64_t t = 0; t <= rows; ++t)
                indptr[static_cast<std::size_t>(t)] =
                    static_cast<int32_t>(t * all / std::max<int64_t>(rows, 1));
            }),
            {"states_per_row: varied"}},
           {"first_state_taken_for_the_row_before",
            "each row begins one state late in the list",
            {kVaried},
            with_indptr([](std::vector<int32_t>& indptr) {
              for (std::size_t t = 0; t + 1 < indptr.size(); ++t)
                indptr[t] = std::min(indptr[t] + 1, indptr[t + 1]);
            }),
            {"states_per_row: varied"}},
           {"plus_infinity_has_weight",
            "exp(+inf - +inf): a state with LSE = +inf is no empty one",
            {kPlus},
            without(kInfLse),
            {"empty_lse: plus_inf"},
            "with LSE = inf has a weight"},
           {"plus_infinity_beside_minus_infinity_has_weight",
            "only -inf means an empty state",
            {kBoth},
            without(kInfLse),
            {"empty_lse: both"},
            "with LSE = inf has a weight"}}};
}

}  // namespace attnbench
