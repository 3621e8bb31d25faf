// Empties the instruction caches of a GPU.
#pragma once

#include <cuda_runtime_api.h>

namespace attnbench {

/// Enqueues a kernel of 384 KiB of code, which every multiprocessor runs through, so that no cache of
/// instructions but L2 holds any other. `sink`: device memory, one word.
void evict_code(unsigned* sink, int multiprocessors, cudaStream_t stream);

}  // namespace attnbench
