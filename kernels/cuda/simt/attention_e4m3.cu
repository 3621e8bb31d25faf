#include "kernels/cuda/simt/instantiate.cuh"

namespace attnbench::cuda_simt {

KernelStatus launch_attention_e4m3(const AttentionParams& p, const LaunchContext& context,
                                   KernelMessage* message) {
  return launch_types<DType::kE4m3, DType::kE4m3>(p, context, message);
}

}  // namespace attnbench::cuda_simt
