// Empties the instruction caches of a GPU.
#pragma once

#include <cuda_runtime_api.h>

namespace attnbench {

/// Enqueues kernels that leave the caches of code as other kernels of a model leave them. L2 is not emptied.
/// attnbench_cold_calibration (tests/cost) compares this with real kernels. `sink`: device memory, one word.
void evict_code(unsigned* sink, int multiprocessors, cudaStream_t stream);

}  // namespace attnbench
