#include "kernels/cuda/simt/instantiate.cuh"

namespace attnbench::cuda_simt {

template KernelStatus launch_attention<32>(const AttentionParams&, const LaunchContext&, KernelMessage*);
template KernelStatus launch_attention<64>(const AttentionParams&, const LaunchContext&, KernelMessage*);

}  // namespace attnbench::cuda_simt
