// Faults of 8-bit inputs, of K and V with different widths, of training features, and of num_splits.
#include <algorithm>
#include <cmath>

#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

#define LENGTHS "mask: causal, batch: q5s70_q3s100_q20s33}"
constexpr const char* kInt8Everything =
    "{kv: paged, block_size: 16, dtype: bf16, q_dtype: int8, kv_dtype: int8, heads: 8/2, head_dim: "
    "64, " LENGTHS;
constexpr const char* kE4m3Queries =
    "{kv: paged, block_size: 16, dtype: bf16, q_dtype: e4m3, kv_dtype: e4m3, heads: 8/2, head_dim: "
    "64, " LENGTHS;
constexpr const char* kWideV =
    "{kv: paged, block_size: 16, dtype: bf16, heads: 8/2, head_dim: 32, head_dim_v: 64, " LENGTHS;
constexpr const char* kLatent =
    "{kv: paged, block_size: 16, dtype: bf16, heads: 8/1, head_dim: 96, head_dim_v: 64, v_is_k_view: "
    "true, " LENGTHS;
constexpr const char* kDropped =
    "{kv: paged, block_size: 16, dtype: bf16, dropout: 0.3, heads: 8/2, head_dim: 64, " LENGTHS;
constexpr const char* kProbsOut =
    "{kv: paged, block_size: 16, dtype: bf16, probs: true, heads: 8/2, head_dim: 64, " LENGTHS;

constexpr const char* kParts =
    "{kv: paged, block_size: 16, dtype: bf16, heads: 8/2, head_dim: 64, mask: none, num_splits: 3, batch: "
    "q1s160_q2s97_q1s130}";

std::vector<float> ones(int64_t n) { return std::vector<float>(static_cast<std::size_t>(n), 1.0f); }

/// The right launch; then its probabilities, (Hq, total_q, max_seqlen_k), are changed.
Tamper::Fault with_probs(const std::function<void(const AttentionParams&, std::vector<float>&)>& change) {
  return afterwards<&OpParams::attention>([change](Tamper& t, const AttentionParams& p) {
    if (p.probs == nullptr) return;
    auto probs = t.read<float>(p.probs, p.num_heads_q * p.probs_stride_head);
    change(p, probs);
    t.write(p.probs, probs);
  });
}

}  // namespace

FaultClass input_faults() {
  return {"8-bit inputs",
          {{"int8_q_descale_ignored",
            "queries are taken as stored",
            {kInt8Everything},
            with_params([](Tamper& t, AttentionParams& p) {
              p.q_descale = t.put(ones(p.total_q * p.q_descale_stride_outer));
            }),
            {"q_dtype: int8"},
            "descales of Q are not applied"},
           {"int8_q_descale_of_head_0",
            "the descale of query head 0 for all heads of a token",
            {kInt8Everything},
            with_params([](Tamper&, AttentionParams& p) { p.q_descale_stride_head = 0; }),
            {"q_dtype: int8"},
            "Q has the descale of head 0"},
           {"int8_k_descale_of_a_block",
            "one descale of K per block, that of its first token",
            {kInt8Everything},
            with_params([](Tamper&, AttentionParams& p) { p.k_descale_stride_outer = 0; }),
            {"kv_dtype: int8"},
            "the first token of its page"},
           {"int8_k_descale_of_kv_head_0",
            "the descale of KV head 0 for all KV heads of a row",
            {kInt8Everything},
            with_params([](Tamper&, AttentionParams& p) { p.k_descale_stride_head = 0; }),
            {},
            "K has the descale of head 0"},
           {"int8_v_descale_of_channel_0",
            "one descale of V per KV head, that of its first channel",
            {kInt8Everything},
            with_params([](Tamper& t, AttentionParams& p) {
              auto scales = t.read<float>(p.v_descale, p.num_heads_kv * p.v_descale_stride_head);
              for (std::size_t i = 0; i < scales.size(); ++i)
                scales[i] = scales[i - i % static_cast<std::size_t>(p.v_descale_stride_head)];
              p.v_descale = t.put(scales);
            }),
            {"kv_dtype: int8"},
            "V has the descale of channel 0"},
           {"e4m3_q_descale_ignored",
            "queries are taken as stored",
            {kE4m3Queries},
            with_params([](Tamper& t, AttentionParams& p) {
              p.q_descale = t.put(ones(p.batch * p.q_descale_stride_outer));
            }),
            {"q_dtype: e4m3"},
            "descales of Q are not applied"},
           {"e4m3_q_descale_of_k",
            "queries have the descales of keys",
            {kE4m3Queries},
            with_params([](Tamper&, AttentionParams& p) { p.q_descale = p.k_descale; }),
            {},
            "Q has the descale of K"}}};
}

FaultClass width_faults() {
  return {"widths",
          {{"v_addressed_as_k",
            "rows of V are looked for at the width of K",
            {kWideV},
            with_params([](Tamper&, AttentionParams& p) {
              p.v_stride_block = p.k_stride_block;
              p.v_stride_token = p.k_stride_token;
              p.v_stride_head = p.k_stride_head;
            }),
            {"head_dim_v"},
            "must not be read"},
           {"scale_of_head_dim_v",
            "1 / sqrt(Dv)",
            {kWideV, kLatent},
            with_params([](Tamper&, AttentionParams& p) {
              p.softmax_scale = 1.0f / std::sqrt(static_cast<float>(p.head_dim_v));
            }),
            {"head_dim_v"},
            "1/sqrt(head_dim_v)"},
           {"v_is_the_end_of_k",
            "values are the last channels of the keys instead of the first",
            {kLatent},
            with_params([](Tamper&, AttentionParams& p) {
              p.features &= ~uint64_t{kVIsK};
              p.v = static_cast<const char*>(p.k) +
                    (p.head_dim - p.head_dim_v) * static_cast<int64_t>(dtype_size(p.dtype_k));
            }),
            {"v_is_k_view: true"},
            "last head_dim_v channels of K"}}};
}

FaultClass training_faults() {
  return {"training",
          {known("dropout_ignored", "nothing is dropped", {kDropped}, {"dropout"}),
           {"dropout_not_rescaled",
            "weights that are kept are not divided by 1 - p",
            {kDropped},
            with_output([](const HostView& v, OutView& out) {
              for (const HostRow& r : v.rows()) {
                for (int c = 0; c < v.p().head_dim; ++c)
                  out.set_o(r.token, r.head, c, out.o(r.token, r.head, c) * (1.0f - v.p().p_dropout));
              }
            }),
            {},
            "not divided by 1 - dropout"},
           {"dropout_of_another_seed",
            "the mask of another seed",
            {kDropped},
            with_params([](Tamper&, AttentionParams& p) { ++p.dropout_seed; }),
            {"dropout"},
            "seed + 1"},
           {"dropout_offset_cut_to_32_bits",
            "the upper half of the offset does not count",
            {kDropped},
            with_params([](Tamper&, AttentionParams& p) { p.dropout_offset &= 0xffffffffu; }),
            {},
            "offset of dropout is cut to 32 bits"},
           {"probs_not_normalised",
            "probabilities are relative to the row's largest",
            {kProbsOut},
            with_probs([](const AttentionParams& p, std::vector<float>& probs) {
              for (std::size_t row = 0; row < probs.size();
                   row += static_cast<std::size_t>(p.probs_stride_token)) {
                const auto first = probs.begin() + static_cast<std::ptrdiff_t>(row);
                const float top = *std::max_element(first, first + p.max_seqlen_k);
                for (auto x = first; x != first + p.max_seqlen_k && top > 0; ++x) *x /= top;
              }
            })},
           {"probs_of_masked_keys_unwritten",
            "only probabilities of visible keys are written",
            {kProbsOut},
            with_probs([](const AttentionParams&, std::vector<float>& probs) {
              for (float& x : probs) x = x == 0 ? NAN : x;
            }),
            {"probs: true"}}}};
}

FaultClass num_splits_faults() {
  const auto longest = [](Tamper& t, const AttentionParams& p) {
    int32_t n = 0;
    if (p.seqused_k == nullptr) return p.max_seqlen_k;
    for (const int32_t k : t.read<int32_t>(p.seqused_k, p.batch)) n = std::max(n, k);
    return n;
  };
  return {"num_splits",
          {{"parts_past_the_planned_lost",
            "there is room for the states of four parts; keys of others are left out",
            {kParts},
            with_params([](Tamper& t, AttentionParams& p) {
              if (p.num_splits <= 4) return;
              const int32_t n = p.num_splits;
              change_lengths(t, p, [n](int, int32_t k) { return std::min(k, (k + n - 1) / n * 4); });
            }),
            {"num_splits"}},
           {"part_without_keys_counted",
            "a part that is left over adds exp(0) to the denominator",
            {kParts},
            afterwards<&OpParams::attention>([longest](Tamper& t, const AttentionParams& p) {
              if (p.num_splits < 2) return;
              const int32_t keys = longest(t, p);
              const int32_t share = (keys + p.num_splits - 1) / p.num_splits;
              const int32_t empty = share > 0 ? p.num_splits - (keys + share - 1) / share : p.num_splits;
              if (empty == 0) return;
              t.edit(p, [&](OutView& out) {
                for (float& lse : out.lse) lse += std::log1p(static_cast<float>(empty) * std::exp(-lse));
              });
            })},
           {"one_part_counted_twice",
            "with an odd number of parts the first one enters the merged LSE twice",
            {kParts},
            afterwards<&OpParams::attention>([](Tamper& t, const AttentionParams& p) {
              const int32_t n = p.num_splits;
              if (n < 2 || n % 2 == 0) return;
              t.edit(p, [&](OutView& out) {
                for (float& lse : out.lse) lse += std::log1p(1.0f / static_cast<float>(n));
              });
            }),
            {},
            "one of 3 parts counts twice"}}};
}

}  // namespace attnbench
