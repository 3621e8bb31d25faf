// Faults of merging partial states.
#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

constexpr const char* kMerging =
    "{op: merge_states, dtype: bf16, heads: 4, head_dim: 64, states: 3, empty_states: 0.3, batch: q37}";
constexpr const char* kTokenMajor =
    "{op: merge_states, dtype: bf16, heads: 4, head_dim: 64, states: 3, empty_states: 0.3, lse_layout: "
    "token_major, batch: q37}";
constexpr const char* kStrided =
    "{op: merge_states, dtype: bf16, heads: 4, head_dim: 64, states: 3, empty_states: 0.3, partial_lse: "
    "strided, batch: q37}";
constexpr const char* kMostlyEmpty =
    "{op: merge_states, dtype: bf16, heads: 4, head_dim: 64, states: 2, empty_states: 0.6, batch: q37}";

using States = std::vector<RowAnswer>;  ///< the partial states of one (row, head)

/// Elements from the first to the last one that a launch addresses.
int64_t extent(const MergeStatesParams& p, int64_t state, int64_t token, int64_t head) {
  return (p.num_states - 1) * state + (p.num_rows - 1) * token + (p.num_heads - 1) * head + 1;
}

/// The right launch; then all rows are merged again by `rule`.
Tamper::Fault with_merge_rule(RowAnswer (*rule)(const States& states, std::vector<double>& logs)) {
  return afterwards<&OpParams::merge_states>([rule](Tamper& t, const MergeStatesParams& p) {
    if (p.num_rows == 0) return;
    const auto bytes_of = [](int64_t n, DType type) { return n * static_cast<int64_t>(dtype_size(type)); };
    const auto o = t.read<unsigned char>(
        p.partial_out,
        bytes_of(
            extent(p, p.partial_stride_state, p.partial_stride_token, p.partial_stride_head) + p.head_dim - 1,
            p.dtype_partial));
    const auto lse =
        t.read<float>(p.partial_lse, extent(p, p.lse_stride_state, p.lse_stride_token, p.lse_stride_head));
    auto out = t.read<unsigned char>(p.out, bytes_of(p.num_rows * p.out_stride_token, p.dtype_out));
    auto out_lse = t.read<float>(p.out_lse, p.num_heads * p.out_lse_stride_head);
    for (int64_t row = 0; row < p.num_rows; ++row) {
      for (int32_t h = 0; h < p.num_heads; ++h) {
        States states;
        std::vector<double> logs;
        for (int32_t n = 0; n < p.num_states; ++n) {
          const int64_t at = n * p.lse_stride_state + row * p.lse_stride_token + h * p.lse_stride_head;
          logs.push_back(static_cast<double>(lse[static_cast<std::size_t>(at)]));
          const int64_t from =
              n * p.partial_stride_state + row * p.partial_stride_token + h * p.partial_stride_head;
          states.push_back({{}, logs.back()});
          for (int32_t c = 0; c < p.head_dim; ++c)
            states.back().o.push_back(static_cast<double>(load_float(p.dtype_partial, o.data(), from + c)));
        }
        const RowAnswer m = rule(states, logs);
        const int64_t to = row * p.out_stride_token + h * p.out_stride_head;
        for (int32_t c = 0; c < p.head_dim; ++c)
          store_float(p.dtype_out, out.data(), to + c, static_cast<float>(m.o[static_cast<std::size_t>(c)]));
        out_lse[static_cast<std::size_t>(h * p.out_lse_stride_head + row)] = static_cast<float>(m.lse);
      }
    }
    t.write(p.out, out);
    t.write(p.out_lse, out_lse);
  });
}

/// Merges states; a row all of whose states are empty gets this O and LSE.
RowAnswer merged_or(double o, double lse, const States& states, const std::vector<double>& logs) {
  RowAnswer m = merged(states, logs);
  if (m.lse == -INFINITY) m = {std::vector<double>(m.o.size(), o), lse};
  return m;
}

}  // namespace

FaultClass merge_faults() {
  return {
      "merge states",
      {{"lse_read_as_log2",
        "natural LSEs are taken as base 2, and the merged one is left in base 2",
        {kMerging},
        with_merge_rule([](const States& states, std::vector<double>& logs) {
          for (double& l : logs) l *= std::log(2.0);
          RowAnswer m = merged(states, logs);
          m.lse /= std::log(2.0);
          return m;
        }),
        {},
        "weights are powers of 2 of LSEs of base e"},
       {"o_of_an_empty_state_used",
        "an empty state's O is multiplied by zero instead of left out",
        {kMerging},
        with_merge_rule([](const States& states, std::vector<double>& logs) {
          RowAnswer m = merged(states, logs);
          for (const RowAnswer& s : states) {
            for (std::size_t c = 0; m.lse != -INFINITY && c < m.o.size(); ++c) m.o[c] += 0 * s.o[c];
          }
          return m;
        }),
        {"empty_states"},
        "O of empty states is used"},
       {"state_skipped",
        "the last state is left out",
        {kMerging},
        with_op([](Tamper&, OpParams& op) { op.merge_states.num_states -= op.merge_states.num_states > 1; }),
        {"op: merge_states", "states"},
        "the last state is left out"},
       {"lse_strides_ignored",
        "partial LSEs are taken as dense (state, head, token)",
        {kTokenMajor},
        with_op([](Tamper&, OpParams& op) {
          MergeStatesParams& p = op.merge_states;
          p.lse_stride_token = 1;
          p.lse_stride_head = p.num_rows;
          p.lse_stride_state = p.num_rows * p.num_heads;
        }),
        {"lse_layout: token_major"}},
       {"lse_padding_ignored",
        "states of the partial LSEs are taken to lie without padding between them",
        {kStrided},
        with_op([](Tamper&, OpParams& op) {
          MergeStatesParams& p = op.merge_states;
          p.lse_stride_state = p.num_heads * p.lse_stride_head;
        }),
        {"partial_lse: strided"}},
       {"empty_states_merge_to_nan",
        "exp(-inf - -inf) where all states are empty",
        {kMostlyEmpty},
        with_merge_rule([](const States& states, std::vector<double>& logs) {
          return merged_or(NAN, NAN, states, logs);
        }),
        {"empty_states"},
        "whose states are all empty become NaN"},
       {"empty_merge_gets_lse_plus_infinity",
        "LSE of a row whose states are all empty is +inf",
        {kMostlyEmpty},
        with_merge_rule([](const States& states, std::vector<double>& logs) {
          return merged_or(0, INFINITY, states, logs);
        }),
        {},
        "whose states are all empty is inf"},
       {"states_averaged",
        "states are averaged, not weighted by their LSE",
        {kMerging},
        with_merge_rule([](const States& states, std::vector<double>& logs) {
          const double lse = merged(states, logs).lse;
          for (double& l : logs) l = l == -INFINITY ? l : 0;
          return RowAnswer{merged(states, logs).o, lse};
        }),
        {},
        "states have equal weights"},
       {"lse_of_the_largest_state",
        "the merged LSE is the largest of the states'",
        {kMerging},
        with_merge_rule([](const States& states, std::vector<double>& logs) {
          return RowAnswer{merged(states, logs).o, *std::ranges::max_element(logs)};
        }),
        {},
        "that of the largest state"}}};
}

}  // namespace attnbench
