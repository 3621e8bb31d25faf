// fill_host, digest_host and take_returned_host on a GPU: they give the same bits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "harness/values/fill.h"
#include "harness/values/returned.h"

namespace attnbench {

/// Enqueues a fill. job.base and job.owners are device memory. Throws DeviceError.
void fill_cuda(const FillJob& job, cudaStream_t stream);

/// Enqueues the digest of data[0, bytes). The result is added to *sum (device memory).
void digest_cuda(const void* data, int64_t bytes, unsigned long long* sum, cudaStream_t stream);

/// Enqueues take_returned_host.
void take_returned_cuda(const ReturnedTensor& t, cudaStream_t stream);

}  // namespace attnbench
