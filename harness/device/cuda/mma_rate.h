// A matrix rate without cuBLAS: tensor-core instructions on registers. This is what a kernel of mma.sync can
// reach; on sm_90 and later, warp-group instructions reach more.
#pragma once

#include <cuda_runtime_api.h>

#include "harness/device/device.h"

namespace attnbench {

/// FLOP of one launch of mma_cuda.
double mma_flop(int multiprocessors, DType dtype);

/// Enqueues the loop for bf16 and fp16 (mma.sync m16n8k16, fp32 accumulation) or fp32 (FMA). `sink` is device
/// memory and is never written.
void mma_cuda(DType dtype, float* sink, int multiprocessors, cudaStream_t stream);

}  // namespace attnbench
