#include "kernels/cuda/simt/instantiate.cuh"

namespace attnbench::cuda_simt {

template KernelStatus launch_attention<576>(const AttentionParams&, const LaunchContext&, KernelMessage*);

}  // namespace attnbench::cuda_simt
