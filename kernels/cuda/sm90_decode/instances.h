// The kernel's instantiations, each compiled in a file of its own:
// <dtype>[_e4m3]_d<head_dim>_r<rows>[_wide|_long|_long_small_pages][_append].cu.
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
  kFewBlocks,       ///< that have a part of the GPU, so that a block must keep up with a faster stream
  kLong,            ///< of many tiles: blocks keep in step (pace.cuh)
  kLongSmallPages,  ///< the same where a tile is four pages or more
};

struct Instance {
  DType dtype;        ///< of q and O
  bool eight_bit_kv;  ///< K and V in e4m3 instead of dtype
  int head_dim;
  int rows;  ///< query rows per KV head: at most this many
  int tile_tokens;
  Use use;
  bool append;  ///< for launches that append, and for no others
  int blocks_per_sm;
  bool first_waits;   ///< how splits are merged (handover.cuh), but where every unit is a split
  bool chunk_copies;  ///< a copy per chunk of 128 bytes, where boxes are smaller than tiles
  /// `started`, if not null, is recorded once all blocks have begun. Null: part of another kernel.
  cudaError_t (*launch)(const Maps&, const KernelParams&, cudaStream_t, cudaEvent_t started);
};

extern const Instance kBf16D64R16, kBf16D64R32, kBf16D64R64;
extern const Instance kBf16D128R16, kBf16D128R32, kBf16D128R64;
extern const Instance kBf16D256R16, kBf16D256R32, kBf16D256R64;
extern const Instance kBf16D128R16Wide, kFp16D128R16Wide;
extern const Instance kBf16D128R16Long, kFp16D128R16Long;
extern const Instance kBf16D128R16LongSmallPages, kFp16D128R16LongSmallPages;
extern const Instance kBf16E4m3D128R16LongSmallPages, kFp16E4m3D128R16LongSmallPages;
extern const Instance kBf16D64R16Append, kBf16D128R16Append, kBf16D256R16Append;
extern const Instance kFp16D64R16Append, kFp16D128R16Append, kFp16D256R16Append;
extern const Instance kBf16D128R16LongAppend, kFp16D128R16LongAppend;
extern const Instance kBf16D128R16LongSmallPagesAppend, kFp16D128R16LongSmallPagesAppend;
extern const Instance kFp16D64R16, kFp16D64R32, kFp16D64R64;
extern const Instance kFp16D128R16, kFp16D128R32, kFp16D128R64;
extern const Instance kFp16D256R16, kFp16D256R32, kFp16D256R64;
extern const Instance kBf16E4m3D128R16, kBf16E4m3D128R32, kBf16E4m3D128R64;
extern const Instance kBf16E4m3D256R16, kBf16E4m3D256R32, kBf16E4m3D256R64;
extern const Instance kFp16E4m3D128R16, kFp16E4m3D128R32, kFp16E4m3D128R64;
extern const Instance kFp16E4m3D256R16, kFp16E4m3D256R32, kFp16E4m3D256R64;

}  // namespace attnbench::sm90_decode
