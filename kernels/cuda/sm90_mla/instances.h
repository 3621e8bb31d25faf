// The kernel's instances, as the host sees them: instances::bf16_r64 and so on, by the rows of instances.def.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/contract/dtype.h"
#include "kernels/cuda/sm90_mla/params.h"

namespace attnbench::sm90_mla {

struct Instance {
  DType dtype;
  cudaError_t (*launch)(const Maps&, const KernelParams&, cudaStream_t);
};

#define INSTANCE(name, ...) extern const Instance bf16_##name, fp16_##name;
namespace instances {
#include "kernels/cuda/sm90_mla/instances.def"
}
#undef INSTANCE

}  // namespace attnbench::sm90_mla
