// Between launch.cu, which checks, and the files that hold the device code.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/contract/kernel.h"

namespace attnbench::cuda_simt {

// One file each: all head dims of one type of K and of V, which is K's unless named after it. The arguments
// have passed `supports`.
KernelStatus launch_attention_bf16(const AttentionParams& p, const LaunchContext& context,
                                   KernelMessage* message);
KernelStatus launch_attention_fp16(const AttentionParams& p, const LaunchContext& context,
                                   KernelMessage* message);
KernelStatus launch_attention_fp32(const AttentionParams& p, const LaunchContext& context,
                                   KernelMessage* message);
KernelStatus launch_attention_e4m3(const AttentionParams& p, const LaunchContext& context,
                                   KernelMessage* message);
KernelStatus launch_attention_int8(const AttentionParams& p, const LaunchContext& context,
                                   KernelMessage* message);
KernelStatus launch_attention_int8_bf16(const AttentionParams& p, const LaunchContext& context,
                                        KernelMessage* message);
KernelStatus launch_attention_int8_fp16(const AttentionParams& p, const LaunchContext& context,
                                        KernelMessage* message);
KernelStatus launch_attention_int8_fp32(const AttentionParams& p, const LaunchContext& context,
                                        KernelMessage* message);

/// The new rows of a launch with kAppend, before it attends.
KernelStatus launch_append(const AttentionParams& p, const LaunchContext& context, KernelMessage* message);

/// Probabilities from q, k and the LSE that the attention kernel leaves: launched after it.
KernelStatus launch_probs(const AttentionParams& p, const LaunchContext& context, KernelMessage* message);

KernelStatus launch_kv_append(const KvAppendParams& p, const LaunchContext& context, KernelMessage* message);

/// Merges partial states; `sinks` (H) or null: one more term of each row's denominator, for splits of a
/// launch.
KernelStatus launch_merge_states(const MergeStatesParams& p, const float* sinks, const LaunchContext& context,
                                 KernelMessage* message);

inline KernelStatus cuda_status(cudaError_t error, KernelMessage* message) {
  if (error == cudaSuccess) return KernelStatus::kOk;
  return refuse(message, KernelStatus::kDeviceError, "cuda_simt: launch failed: %s: %s",
                cudaGetErrorName(error), cudaGetErrorString(error));
}

}  // namespace attnbench::cuda_simt
