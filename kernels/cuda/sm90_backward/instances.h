// The kernel's instances, as the host sees them: instances::bf16_d64 and so on, by the rows of instances.def.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/contract/dtype.h"
#include "kernels/cuda/sm90_backward/params.h"

namespace attnbench::sm90_backward {

struct Instance {
  DType dtype;
  int head_dim;
  bool softcap;
  int block_m, block_n;
  /// Enqueues all kernels. `multiprocessors`: blocks of the main one.
  cudaError_t (*launch)(const Maps&, const KernelParams&, int multiprocessors, cudaStream_t);
};

#define INSTANCE(name, ...) extern const Instance bf16_##name, fp16_##name;
namespace instances {
#include "kernels/cuda/sm90_backward/instances.def"
}
#undef INSTANCE

}  // namespace attnbench::sm90_backward
