#include "kernels/cuda/append/quantise.h"
#include "kernels/cuda/append/quantise_launch.cuh"

namespace attnbench::cuda_append {

void quantise_fp16(const KvAppendParams& p, const LaunchContext& context) {
  launch_quantise<DType::kFp16>(p, context);
}

}  // namespace attnbench::cuda_append
