// The kernel that prefills and decodes on every multiprocessor (kernel.cuh), as the host sees it: at most 8
// query heads per KV head, no softcap. Its instances are instances::bf16_d128 and so on, by the rows of
// instances.def.
//
// Words of this folder: a *step* is one launch over a server's batch. Its sequences are *decodes*, which have
// few query rows per KV head, and *chunks* of prompts, which have more. The *guests* are the warpgroup that
// decodes in a block beside sm90_prefill's warps (guest_consumer.cuh).
#pragma once

#include "kernels/cuda/sm90_decode/instances.h"
#include "kernels/cuda/sm90_prefill/instances.h"

namespace attnbench::sm90_mixed {

/// By-value parameter of the kernel: the arguments of both parts.
struct TogetherParams {
  sm90_prefill::Maps prefill_maps;
  sm90_decode::Maps decode_maps;
  sm90_prefill::KernelParams prefill;
  sm90_decode::KernelParams decode;
};

/// Most sequences of a launch of an instance for cascades.
inline constexpr int kMostSuffixes = 1024;

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
