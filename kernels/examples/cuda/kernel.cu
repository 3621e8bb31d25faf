// Attention on the cuda device, written for reading: a start for your own (kernels/README.md says how).
#include "kernels/common/addressing.h"
#include "kernels/common/checks.h"
#include "kernels/common/mask.h"
#include "kernels/common/score.h"
#include "kernels/contract/plugin.h"

namespace attnbench::cuda_example {

extern const Kernel kAttention;  // defined at the end of this file

namespace {

constexpr int32_t kWidest = 256;
constexpr int32_t kLanes = 32;
constexpr int32_t kPerLane = kWidest / kLanes;

__device__ float sum_of_lanes(float x) {
  for (int distance = kLanes / 2; distance > 0; distance /= 2) x += __shfl_xor_sync(~0u, x, distance);
  return x;
}

/// Computes O and LSE of one query row and head with one warp: softmax over the keys that the row sees, in
/// one pass. Lane n has the channels n, n + 32, ...
__global__ void attend(AttentionParams p) {
  const auto i = static_cast<int32_t>(blockIdx.x), head = static_cast<int32_t>(blockIdx.y);
  const auto b = static_cast<int32_t>(blockIdx.z), lane = static_cast<int32_t>(threadIdx.x);
  const SeqRange seq = seq_range(p, b);
  if (i >= seq.q_len) return;
  const KeyBounds keys = visible_keys(p, i, seq.q_len, seq.k_len);
  const int32_t kv_head = head / (p.num_heads_q / p.num_heads_kv);
  const int64_t row = seq.q_begin + i;
  float q[kPerLane] = {}, out[kPerLane] = {};
  float max = -INFINITY, sum = 0;
#pragma unroll
  for (int n = 0; n < kPerLane; ++n) {
    const int32_t c = lane + n * kLanes;
    if (c < p.head_dim) q[n] = load_float(p.dtype_q, p.q, q_offset(p, row, head) + c);
  }
  for (int32_t j = keys.begin; j < keys.end; ++j) {
    const int64_t k = k_row_offset(p, b, j) + kv_head * p.k_stride_head;
    const int64_t v = v_row_offset(p, b, j) + kv_head * p.v_stride_head;
    float dot = 0;
#pragma unroll
    for (int n = 0; n < kPerLane; ++n) {
      const int32_t c = lane + n * kLanes;
      if (c < p.head_dim) dot += q[n] * load_float(p.dtype_k, p.k, k + c);
    }
    const float score = sum_of_lanes(dot) * p.softmax_scale;
    const float top = score > max ? score : max;
    const float kept = expf(max - top), weight = expf(score - top);
#pragma unroll
    for (int n = 0; n < kPerLane; ++n) {
      const int32_t c = lane + n * kLanes;
      if (c < p.head_dim) out[n] = out[n] * kept + weight * load_float(p.dtype_v, p.v, v + c);
    }
    sum = sum * kept + weight;
    max = top;
  }
#pragma unroll
  for (int n = 0; n < kPerLane; ++n) {
    const int32_t c = lane + n * kLanes;
    // The test is sum == 0, not sum > 0: a NaN that was read must reach the output.
    if (c < p.head_dim) {
      store_float(p.dtype_out, p.out, out_offset(p, row, head) + c, sum == 0 ? 0.0f : out[n] / sum);
    }
  }
  if (lane == 0) p.lse[lse_offset(p, row, head)] = lse_of(max, sum);
}

KernelStatus supports(const OpParams* op, const LaunchContext*, KernelMessage* message) {
  const AttentionParams& p = op->attention;
  if (const auto s = check_features(kAttention, *op, message); s != KernelStatus::kOk) return s;
  if (const auto s = check_attention_args(kAttention, p, message); s != KernelStatus::kOk) return s;
  if (p.head_dim > kWidest) {
    return refuse(message, KernelStatus::kUnsupported, "%s: head_dim 1..%d required, given %d",
                  kAttention.name, kWidest, p.head_dim);
  }
  if (p.batch > 65535) {
    return refuse(message, KernelStatus::kUnsupported, "%s: at most 65535 sequences required, given %d",
                  kAttention.name, p.batch);
  }
  return KernelStatus::kOk;
}

/// expf without fast-math options has an error of at most 2 ulp.
Numerics numerics(const OpParams*) {
  return {.p_type = DType::kFp32, .acc_type = DType::kFp32, .exp_rel_err = 0x1p-22};
}

std::size_t workspace_bytes(const OpParams*, const LaunchContext*) { return 0; }

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const AttentionParams& p = op->attention;
  if (const auto s = check_attention_pointers(kAttention, p, message); s != KernelStatus::kOk) return s;
  if (p.batch == 0 || p.max_seqlen_q == 0) return KernelStatus::kOk;
  const dim3 grid(static_cast<unsigned>(p.max_seqlen_q), static_cast<unsigned>(p.num_heads_q),
                  static_cast<unsigned>(p.batch));
  attend<<<grid, kLanes, 0, static_cast<cudaStream_t>(context->stream)>>>(p);
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return KernelStatus::kOk;
  return refuse(message, KernelStatus::kDeviceError, "%s: %s", kAttention.name, cudaGetErrorString(error));
}

}  // namespace

const Kernel kAttention{
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant,
    .name = "example",
    .summary = "a start for one's own: a warp per row and head",
    .shapes = "head_dim 1..256, any block_size",
    .op = Op::kAttention,
    .device = DeviceKind::kCuda,
    .min_compute_capability = 80,
    .features = kPackedKv | kPagedKv | kCausal | kBf16 | kFp16,
    .supports = supports,
    .numerics = numerics,
    .workspace_bytes = workspace_bytes,
    .plan = nullptr,
    .launch = launch,
};

}  // namespace attnbench::cuda_example

ATTNBENCH_PLUGIN(&attnbench::cuda_example::kAttention);
