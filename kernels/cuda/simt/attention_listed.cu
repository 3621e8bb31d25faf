#include "kernels/cuda/simt/instantiate.cuh"

namespace attnbench::cuda_simt {

template KernelStatus launch_attention<128, Kind::kListed>(const AttentionParams&, const LaunchContext&,
                                                           KernelMessage*);
template KernelStatus launch_attention<576, Kind::kListed>(const AttentionParams&, const LaunchContext&,
                                                           KernelMessage*);

}  // namespace attnbench::cuda_simt
