#include "kernels/cuda/simt/instantiate.cuh"

namespace attnbench::cuda_simt {

KernelStatus launch_attention_int8(const AttentionParams& p, const LaunchContext& context,
                                   KernelMessage* message) {
  return launch_types<DType::kInt8, DType::kInt8>(p, context, message);
}

}  // namespace attnbench::cuda_simt
