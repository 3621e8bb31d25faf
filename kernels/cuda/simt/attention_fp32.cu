#include "kernels/cuda/simt/instantiate.cuh"

namespace attnbench::cuda_simt {

KernelStatus launch_attention_fp32(const AttentionParams& p, const LaunchContext& context,
                                   KernelMessage* message) {
  return launch_types<DType::kFp32, DType::kFp32>(p, context, message);
}

}  // namespace attnbench::cuda_simt
