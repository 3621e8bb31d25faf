// Attention on the cpu device, written for reading: a start for your own (kernels/README.md says how).
//
// To make it fast, first convert rows of K and V to float once, by a loop typed on the element (load_float
// decides the type for each element); then work on blocks of keys, so that loops vectorise; then share rows
// among context->num_threads threads.
#include <algorithm>
#include <cmath>

#include "kernels/common/addressing.h"
#include "kernels/common/checks.h"
#include "kernels/common/mask.h"
#include "kernels/common/score.h"
#include "kernels/contract/plugin.h"

namespace attnbench::example {

extern const Kernel kAttention;  // defined at the end of this file

namespace {

constexpr int32_t kWidest = 256;

KernelStatus supports(const OpParams* op, const LaunchContext*, KernelMessage* message) {
  const AttentionParams& p = op->attention;
  if (const auto s = check_features(kAttention, *op, message); s != KernelStatus::kOk) return s;
  if (const auto s = check_attention_args(kAttention, p, message); s != KernelStatus::kOk) return s;
  if (p.head_dim > kWidest) {
    return refuse(message, KernelStatus::kUnsupported, "%s: head_dim 1..%d required, given %d",
                  kAttention.name, kWidest, p.head_dim);
  }
  return KernelStatus::kOk;
}

/// std::exp of a float is accurate to 1 ulp.
Numerics numerics(const OpParams*) {
  return {.p_type = DType::kFp32, .acc_type = DType::kFp32, .exp_rel_err = 0x1p-23};
}

std::size_t workspace_bytes(const OpParams*, const LaunchContext*) { return 0; }

/// O and LSE of query `i` of sequence `b`, query head `head`: softmax over its visible keys in one pass.
void attend(const AttentionParams& p, int32_t b, int32_t i, int32_t head) {
  const SeqRange seq = seq_range(p, b);
  const KeyBounds keys = visible_keys(p, i, seq.q_len, seq.k_len);
  const int32_t kv_head = head / (p.num_heads_q / p.num_heads_kv);
  const int64_t row = seq.q_begin + i;
  const int64_t q = q_offset(p, row, head);
  float out[kWidest] = {};
  float max = -INFINITY, sum = 0;
  for (int32_t j = keys.begin; j < keys.end; ++j) {
    const int64_t k = k_row_offset(p, b, j) + kv_head * p.k_stride_head;
    const int64_t v = v_row_offset(p, b, j) + kv_head * p.v_stride_head;
    float dot = 0;
    for (int32_t c = 0; c < p.head_dim; ++c) {
      dot += load_float(p.dtype_q, p.q, q + c) * load_float(p.dtype_k, p.k, k + c);
    }
    const float score = dot * p.softmax_scale;
    const float top = std::max(max, score);
    const float kept = std::exp(max - top), weight = std::exp(score - top);
    for (int32_t c = 0; c < p.head_dim; ++c) {
      out[c] = out[c] * kept + weight * load_float(p.dtype_v, p.v, v + c);
    }
    sum = sum * kept + weight;
    max = top;
  }
  for (int32_t c = 0; c < p.head_dim; ++c) {
    // Tests sum == 0 and not sum > 0, so that a NaN that was read shows in O.
    store_float(p.dtype_out, p.out, out_offset(p, row, head) + c, sum == 0 ? 0.0f : out[c] / sum);
  }
  p.lse[lse_offset(p, row, head)] = lse_of(max, sum);
}

KernelStatus launch(const OpParams* op, const LaunchContext*, KernelMessage* message) {
  const AttentionParams& p = op->attention;
  if (const auto s = check_attention_pointers(kAttention, p, message); s != KernelStatus::kOk) return s;
  for (int32_t b = 0; b < p.batch; ++b) {
    for (int32_t i = 0; i < seq_range(p, b).q_len; ++i) {
      for (int32_t head = 0; head < p.num_heads_q; ++head) attend(p, b, i, head);
    }
  }
  return KernelStatus::kOk;
}

}  // namespace

const Kernel kAttention{
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant,
    .name = "example",
    .summary = "a start for one's own: one thread, a loop over rows",
    .shapes = "head_dim 1..256, any block_size",
    .op = Op::kAttention,
    .device = DeviceKind::kCpu,
    .min_compute_capability = 0,
    .features = kPackedKv | kPagedKv | kCausal | kBf16 | kFp16,
    .supports = supports,
    .numerics = numerics,
    .workspace_bytes = workspace_bytes,
    .plan = nullptr,
    .launch = launch,
};

}  // namespace attnbench::example

ATTNBENCH_PLUGIN(&attnbench::example::kAttention);
