// Kernels that end or stop their process or GPU, or take all its memory.
#pragma once

#include <vector>

#include "kernels/registry.h"

namespace attnbench::faults {

/// The `supports` of these kernels: a single head dimension, so that a sweep may hold them among good cases.
KernelStatus only_head_dim_24(const OpParams* p, const LaunchContext* c, KernelMessage* m);

#if ATTNBENCH_FAULTS_CUDA
/// illegal_address, hangs and overallocates, on the GPU.
std::vector<Kernel> broken_cuda_kernels();

/// reads_past_the_end, races, reads_unset and diverging_barrier. Their results are right, but each fails one
/// tool of compute-sanitizer (scripts/sanitize_gpu.py).
std::vector<Kernel> unclean_cuda_kernels();
#endif

}  // namespace attnbench::faults
