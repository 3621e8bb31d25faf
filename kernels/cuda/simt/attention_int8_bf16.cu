#include "kernels/cuda/simt/instantiate.cuh"

namespace attnbench::cuda_simt {

KernelStatus launch_attention_int8_bf16(const AttentionParams& p, const LaunchContext& context,
                                        KernelMessage* message) {
  return launch_types<DType::kInt8, DType::kBf16>(p, context, message);
}

}  // namespace attnbench::cuda_simt
