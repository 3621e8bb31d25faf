// The kernel's instances, as the host sees them: instances::bf16_d64_r16 and so on, by the rows of
// instances.def.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/contract/dtype.h"
#include "kernels/cuda/sm90_decode/params.h"

namespace attnbench::sm90_decode {

/// Tensor maps of one launch.
struct Maps {
  CUtensorMap q;
  CUtensorMap k;
  CUtensorMap v;
};

/// Which launches an instance is for.
enum class Use : int32_t {
  kAll,
  kFewBlocks,       ///< launches on a part of the GPU, where a block must keep up with a faster stream
  kLong,            ///< launches of many tiles: blocks keep in step (pace.cuh)
  kLongSmallPages,  ///< the same where a tile takes four copies or more
};

struct Instance {
  DType dtype;     ///< of q and O
  DType dtype_kv;  ///< of K and V: dtype, e4m3 or int8
  int head_dim;
  int rows;  ///< most query rows per KV head
  int tile_tokens;
  Use use;
  bool append;  ///< for launches that append, and for no others
  int blocks_per_sm;
  bool first_waits;    ///< first split's block may wait for the others (handover.cuh); not split_every_unit
  bool chunk_copies;   ///< a copy per chunk, where boxes are smaller than tiles
  int kv_chunk_bytes;  ///< of a chunk of K and V: 128 or 64
  /// `started`, if not null, is recorded once all blocks have begun. The pointer is null where the instance
  /// is a part of another kernel.
  cudaError_t (*launch)(const Maps&, const KernelParams&, cudaStream_t, cudaEvent_t started);
};

#define INSTANCE(name, ...) extern const Instance bf16_##name, fp16_##name;
namespace instances {
#include "kernels/cuda/sm90_decode/instances.def"
}
#undef INSTANCE

}  // namespace attnbench::sm90_decode
