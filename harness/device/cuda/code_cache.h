// Empties the instruction caches of a GPU.
#pragma once

#include <cuda_runtime_api.h>

namespace attnbench {

/// Enqueues a kernel of 384 KiB of code on every multiprocessor. After it, no instruction cache except L2
/// holds other code. `sink`: device memory, one word.
void evict_code(unsigned* sink, int multiprocessors, cudaStream_t stream);

}  // namespace attnbench
