#include "kernels/cuda/simt/instantiate.cuh"

namespace attnbench::cuda_simt {

template KernelStatus launch_attention<32, false>(const AttentionParams&, const LaunchContext&,
                                                  KernelMessage*);
template KernelStatus launch_attention<64, false>(const AttentionParams&, const LaunchContext&,
                                                  KernelMessage*);

}  // namespace attnbench::cuda_simt
