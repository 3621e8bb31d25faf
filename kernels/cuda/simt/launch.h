// Functions of the files with device code. launch.cu checks the arguments and calls them.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/contract/kernel.h"

namespace attnbench::cuda_simt {

/// Attention with head_dim and head_dim_v padded to kD: 32, 64, 128, 256 or 576 (512 for V), instantiated in
/// attention_d*.cu. kWithQv: 64, 256 and 576 in attention_qv.cu, for launches with kQv. The arguments have passed
/// `supports`.
template <int kD, bool kWithQv = false>
KernelStatus launch_attention(const AttentionParams& p, const LaunchContext& context, KernelMessage* message);

/// Writes the new rows of a launch with kAppend, before it attends.
KernelStatus launch_append(const AttentionParams& p, const LaunchContext& context, KernelMessage* message);

/// Computes probabilities from q, k and the LSE of the attention kernel, after which it is launched.
KernelStatus launch_probs(const AttentionParams& p, const LaunchContext& context, KernelMessage* message);

KernelStatus launch_kv_append(const KvAppendParams& p, const LaunchContext& context, KernelMessage* message);

/// What the merge of a launch's own parts needs beyond merge_states.
struct SplitMerge {
  const float* sinks = nullptr;  ///< (H): one more term of each row's denominator
  /// (batch + 1) or null: rows before its first entry and from its last on are padding, which nothing writes.
  const int32_t* cu_seqlens_q = nullptr;
  const int32_t* seqused_q = nullptr;  ///< (batch) or null: rows behind a sequence's are padding, too
  int32_t batch = 0;
};

KernelStatus launch_merge_states(const MergeStatesParams& p, const SplitMerge& split,
                                 const LaunchContext& context, KernelMessage* message);

/// attention_backward. The workspace holds delta, (Hq, total_q) in fp32.
KernelStatus launch_backward(const AttentionBackwardParams& p, const LaunchContext& context,
                             KernelMessage* message);

/// With num_splits the workspace holds, in fp32, O (num_splits, total_q, Hq, Dv), then LSE (num_splits, Hq,
/// total_q).
struct PartialShape {
  int64_t out_stride;  ///< elements of O of one part
  int64_t lse_stride;
};
inline PartialShape partial_shape(const AttentionParams& p) {
  const int64_t rows = p.total_q * p.num_heads_q;
  return {rows * p.head_dim_v, rows};
}
inline std::size_t partial_bytes(const AttentionParams& p) {
  const PartialShape s = partial_shape(p);
  return static_cast<std::size_t>(p.num_splits) * static_cast<std::size_t>(s.out_stride + s.lse_stride) * 4;
}

inline KernelStatus cuda_status(cudaError_t error, KernelMessage* message) {
  if (error == cudaSuccess) return KernelStatus::kOk;
  return refuse(message, KernelStatus::kDeviceError, "cuda_simt: launch failed: %s: %s",
                cudaGetErrorName(error), cudaGetErrorString(error));
}

}  // namespace attnbench::cuda_simt
