// Merges partial states into one: the op merge_states, and the second step of an attention launch with
// num_splits.
#include <algorithm>
#include <cstdint>

#include "kernels/common/descale.h"
#include "kernels/common/merge.h"
#include "kernels/common/score.h"
#include "kernels/cuda/simt/launch.h"

namespace attnbench::cuda_simt {
namespace {

constexpr int kWarps = 4;  ///< warps of a CTA; each takes a row of its own
constexpr int kMaxGrid = 1 << 16;

/// Whether row `row` of a launch's outputs belongs to no query, so that nothing may write it.
__device__ bool is_unused(const SplitMerge& split, int64_t row) {
  const int32_t* cu = split.cu_seqlens_q;
  if (cu == nullptr) return false;
  if (row < cu[0] || row >= cu[split.batch]) return true;
  if (split.seqused_q == nullptr) return false;
  int lo = 0, hi = split.batch;  // the last sequence that begins at or before the row
  while (hi - lo > 1) {
    const int mid = lo + (hi - lo) / 2;
    (cu[mid] <= row ? lo : hi) = mid;
  }
  return row - cu[lo] >= split.seqused_q[lo];
}

/// One warp per (row, head). All lanes read the same LSEs; lane l takes channels l, l + 32, ...
template <DType kPartial>
__global__ void __launch_bounds__(32 * kWarps)
    merge_kernel(const __grid_constant__ MergeStatesParams p, const SplitMerge split) {
  const bool base2 = p.features & kLseBase2;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t items = p.num_rows * p.num_heads;
  const int64_t stride = int64_t{gridDim.x} * kWarps;
  for (int64_t i = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32; i < items; i += stride) {
    const int64_t row = i / p.num_heads;
    const int head = static_cast<int>(i % p.num_heads);
    if (is_unused(split, row)) continue;
    const RowStates of = states_of_row(p, row);
    const float* lse =
        p.partial_lse + of.first * p.lse_stride_state + row * p.lse_stride_token + head * p.lse_stride_head;
    const int64_t from =
        of.first * p.partial_stride_state + row * p.partial_stride_token + head * p.partial_stride_head;
    const auto weight = [&](float x, float top) { return base2 ? exp2f(x - top) : expf(x - top); };

    float top = -INFINITY;
    for (int s = 0; s < of.count; ++s) {
      const float x = lse[s * p.lse_stride_state];
      if (!is_empty_state(p, x) && !(x <= top))
        top = x;  // a NaN gets in here or through its weight, and stays
    }
    float sum = 0.0f;
    for (int s = 0; s < of.count; ++s) {
      const float x = lse[s * p.lse_stride_state];
      if (!is_empty_state(p, x)) sum += weight(x, top);
    }
    const float sink = split.sinks != nullptr ? split.sinks[head] : -INFINITY;
    const auto [divisor, natural] = end_row(base2 ? top * kLn2 : top, sum, sink);
    float end = natural;
    if (base2) end = sink == -INFINITY && sum != 0.0f ? top + log2f(sum) : natural * kLog2E;
    if (lane == 0) p.out_lse[out_lse_offset(p, row, head)] = end;
    const int64_t to = row * p.out_stride_token + head * p.out_stride_head;
    for (int c = lane; c < p.head_dim; c += 32) {
      float o = 0.0f;
      for (int s = 0; s < of.count; ++s) {
        const float x = lse[s * p.lse_stride_state];
        if (is_empty_state(p, x)) continue;  // its O may be NaN, and 0 * NaN is NaN
        o = fmaf(weight(x, top), load_float(kPartial, p.partial_out, from + s * p.partial_stride_state + c),
                 o);
      }
      store_float(p.dtype_out, p.out, to + c, sum == 0.0f ? 0.0f : o / divisor / out_divisor(p));
    }
  }
}

template <DType kPartial>
void enqueue(const MergeStatesParams& p, const SplitMerge& split, const LaunchContext& context) {
  const int64_t items = p.num_rows * p.num_heads;
  const auto grid = static_cast<unsigned>(std::min<int64_t>((items + kWarps - 1) / kWarps, kMaxGrid));
  merge_kernel<kPartial><<<grid, 32 * kWarps, 0, static_cast<cudaStream_t>(context.stream)>>>(p, split);
}

}  // namespace

KernelStatus launch_merge_states(const MergeStatesParams& p, const SplitMerge& split,
                                 const LaunchContext& context, KernelMessage* message) {
  if (p.num_rows == 0) return KernelStatus::kOk;
  switch (p.dtype_partial) {
    case DType::kBf16:
      enqueue<DType::kBf16>(p, split, context);
      break;
    case DType::kFp16:
      enqueue<DType::kFp16>(p, split, context);
      break;
    default:
      enqueue<DType::kFp32>(p, split, context);
      break;
  }
  return cuda_status(cudaGetLastError(), message);
}

}  // namespace attnbench::cuda_simt
