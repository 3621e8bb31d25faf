#include "kernels/cuda/simt/instantiate.cuh"

namespace attnbench::cuda_simt {

template KernelStatus launch_attention<64, true>(const AttentionParams&, const LaunchContext&,
                                                 KernelMessage*);
template KernelStatus launch_attention<256, true>(const AttentionParams&, const LaunchContext&,
                                                  KernelMessage*);
template KernelStatus launch_attention<576, true>(const AttentionParams&, const LaunchContext&,
                                                  KernelMessage*);

}  // namespace attnbench::cuda_simt
