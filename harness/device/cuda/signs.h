// The functions of values/signs.h on a GPU, enqueued on a stream.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "harness/values/signs.h"

namespace attnbench {

void change_signs_cuda(const SignedTensor& t, cudaStream_t stream);
/// Adds unsigned_digest_host(t) * factor to *sum, in device memory. `clock`: takes the GPU's clock in ns as
/// the kernel begins; null: not read.
void unsigned_digest_cuda(const SignedTensor& t, uint64_t first, uint64_t factor, unsigned long long* sum,
                          unsigned long long* clock, cudaStream_t stream);
void poison_cuda(const WatchedOutput& o, cudaStream_t stream);

}  // namespace attnbench
