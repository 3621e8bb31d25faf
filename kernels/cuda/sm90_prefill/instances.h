// The kernel's instances, as the host sees them: instances::bf16_d64_full and so on, by the rows of instances.def.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/contract/dtype.h"
#include "kernels/cuda/sm90_prefill/params.h"

namespace attnbench::sm90_prefill {

/// Of K or of V.
struct KvMaps {
  CUtensorMap whole;   ///< box_rows rows (KernelParams), all of a sequence
  CUtensorMap window;  ///< a group of 8 rows, some or all of which lie past a sequence's end
};

/// Tensor maps of one launch.
struct Maps {
  CUtensorMap q;
  KvMaps k;
  KvMaps v;
  CUtensorMap v_row;  ///< one chunk of one row of V, where the keys that a sequence's queries see begin
};

/// Keys of a sequence up to which an instantiation for short tiles is the faster one.
inline constexpr int32_t kShortKeys = 2048;

struct Instance {
  DType dtype;
  int head_dim;
  bool masked;       ///< handles causal and windows
  bool softcap;      ///< applies softcap, always
  bool short_tiles;  ///< of no window and at most kShortKeys keys per sequence
  int block_m;
  int block_n;
  /// Null: part of another kernel.
  cudaError_t (*launch)(const Maps&, const KernelParams&, int blocks, cudaStream_t);
};

#define INSTANCE(name, ...) extern const Instance bf16_##name, fp16_##name;
namespace instances {
#include "kernels/cuda/sm90_prefill/instances.def"
}
#undef INSTANCE

}  // namespace attnbench::sm90_prefill
