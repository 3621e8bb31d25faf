// Attention probabilities, exp(score - LSE). A row's denominator is known only after its last key, so this
// kernel runs after the attention kernel, reads its LSE, and computes the scores a second time.
#include <algorithm>

#include "kernels/common/addressing.h"
#include "kernels/common/block_scales.h"
#include "kernels/common/checks.h"
#include "kernels/common/descale.h"
#include "kernels/common/mask.h"
#include "kernels/common/rotary.h"
#include "kernels/common/score.h"
#include "kernels/cuda/simt/launch.h"

namespace attnbench::cuda_simt {
namespace {

constexpr int kProbsThreads = 128;

/// Grid: x query tokens, y query heads, z sequences, each with a stride. A CTA takes one row of q at a time;
/// its threads take keys.
__global__ void __launch_bounds__(kProbsThreads) probs_kernel(const __grid_constant__ AttentionParams p) {
  __shared__ float q_row[kMaxHeadDim];
  __shared__ float qv_row[kMaxHeadDimV];
  const int thread = static_cast<int>(threadIdx.x);
  for (int b = static_cast<int>(blockIdx.z); b < p.batch; b += static_cast<int>(gridDim.z)) {
    const SeqRange seq = seq_range(p, b);
    for (int head = static_cast<int>(blockIdx.y); head < p.num_heads_q; head += static_cast<int>(gridDim.y)) {
      const int kv_head = head / (p.num_heads_q / p.num_heads_kv);
      const float scale = p.softmax_scale * k_descale(p, b, kv_head);
      for (int i = static_cast<int>(blockIdx.x); i < seq.q_len; i += static_cast<int>(gridDim.x)) {
        const int64_t row = int64_t{seq.q_begin} + i;
        __syncthreads();  // the previous row is no longer read
        for (int c = thread; c < p.head_dim; c += kProbsThreads) {
          const auto load = [&](int32_t i_c) {
            return load_float(p.dtype_q, p.q, q_offset(p, row, head) + i_c);
          };
          const int64_t position = p.features & kRotary ? query_position(p, b, seq, i) : -1;
          const bool turns = position >= 0 && position < p.rotary.positions;
          const float x = turns ? round_to(p.dtype_q, rotated(p.rotary, position, c, load)) : load(c);
          q_row[c] = x * q_descale(p, b, row, head);
        }
        const bool second = p.features & kQv;
        for (int c = thread; second && c < p.head_dim_v; c += kProbsThreads)
          qv_row[c] = load_float(p.dtype_q, p.qv, row * p.qv_stride_token + head * p.qv_stride_head + c);
        __syncthreads();
        const KeyBounds seen = visible_keys(p, i, seq.q_len, seq.k_len);
        const float lse = p.lse[any_lse_offset(p, row, head)] / lse_unit<float>(p.features);
        float* out = p.probs + head * p.probs_stride_head + row * p.probs_stride_token;
        for (int key = thread; key < p.max_seqlen_k; key += kProbsThreads) {
          const bool visible = key >= seen.begin && key < seen.end &&
                               (!(p.features & kCustomMask) || mask_bit(p, b, i, key, seq.k_len));
          if (!visible) {
            out[key] = 0.0f;
            continue;
          }
          const int64_t k = k_row_offset(p, b, key) + kv_head * p.k_stride_head;
          float dot = 0.0f;
          const bool scaled = (p.features & kBlockScales) != 0;
          const ScaledRow row_of_k =
              scaled_row(p, kv_head, false, [&](int64_t stride_block, int64_t stride_token) {
                return kv_row_offset(p, b, key, stride_block, stride_token);
              });
          const auto load = [&](int32_t c) {
            return scaled ? scaled_channel(p, false, row_of_k, c) : load_float(p.dtype_k, p.k, k + c);
          };
          const bool key_turns = (p.features & kRotaryCached) && key < p.rotary.positions;
          for (int c = 0; c < p.head_dim; ++c)
            dot = fmaf(q_row[c], key_turns ? turned_key(p, key, c, load) : load(c), dot);
          const int64_t v = v_row_offset(p, b, key) + kv_head * p.v_stride_head;
          for (int c = 0; second && c < p.head_dim_v; ++c)
            dot = fmaf(qv_row[c], load_float(p.dtype_v, p.v, v + c), dot);
          float score = dot * (scale * row_descale(p, false, b, key, kv_head));
          if (p.softcap > 0.0f) score = softcap_score(score, p.softcap);
          if (p.features & kAlibi) {
            score += alibi_bias(alibi_slope(p, b, head), ::abs(i + seq.k_len - seq.q_len - key),
                                p.alibi_sqrt != 0);
          }
          out[key] = expf(score - lse);
        }
      }
    }
  }
}

}  // namespace

KernelStatus launch_probs(const AttentionParams& p, const LaunchContext& context, KernelMessage* message) {
  constexpr int kMaxGridYZ = 65535;
  const dim3 grid(static_cast<unsigned>(std::max(p.max_seqlen_q, 1)),
                  static_cast<unsigned>(std::min(p.num_heads_q, kMaxGridYZ)),
                  static_cast<unsigned>(std::min(p.batch, kMaxGridYZ)));
  probs_kernel<<<grid, kProbsThreads, 0, static_cast<cudaStream_t>(context.stream)>>>(p);
  return cuda_status(cudaGetLastError(), message);
}

}  // namespace attnbench::cuda_simt
