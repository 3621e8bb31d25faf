// The kernel that prefills and decodes on every multiprocessor (kernel.cuh), as the host sees it: at most 8 query
// heads per KV head, no softcap. Its instances are instances::bf16_d128 and so on, by the rows of instances.def.
#pragma once

#include "kernels/cuda/sm90_decode/instances.h"
#include "kernels/cuda/sm90_prefill/instances.h"

namespace attnbench::sm90_mixed {

/// By-value parameter of the kernel: what both parts get.
struct TogetherParams {
  sm90_prefill::Maps prefill_maps;
  sm90_decode::Maps decode_maps;
  sm90_prefill::KernelParams prefill;
  sm90_decode::KernelParams decode;
};

struct Instance {
  DType dtype;
  int head_dim;
  sm90_prefill::Instance prefill;
  sm90_decode::Instance decode;
  cudaError_t (*launch)(const TogetherParams&, int blocks, cudaStream_t);
};

#define INSTANCE(name, ...) extern const Instance bf16_##name, fp16_##name;
namespace instances {
#include "kernels/cuda/sm90_mixed/instances.def"
}
#undef INSTANCE

}  // namespace attnbench::sm90_mixed
