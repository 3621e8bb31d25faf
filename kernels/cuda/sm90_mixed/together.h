// The kernel that prefills and decodes on every multiprocessor (together.cuh): head_dim 128, at most 8 query
// heads per KV head, no softcap; one instantiation per type, in a file of its own.
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

struct TogetherInstance {
  sm90_prefill::Instance prefill;
  sm90_decode::Instance decode;
  cudaError_t (*launch)(const TogetherParams&, int blocks, cudaStream_t);
};

extern const TogetherInstance kBf16Together, kFp16Together;

}  // namespace attnbench::sm90_mixed
