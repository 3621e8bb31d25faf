// The kernel's instances, as the host sees them: instances::bf16_d64_full and so on, by the rows of
// instances.def.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/contract/dtype.h"
#include "kernels/cuda/sm90_prefill/params.h"

namespace attnbench::sm90_prefill {

/// The tensor maps of K or of V.
struct KvMaps {
  CUtensorMap whole;   ///< box_rows rows (KernelParams), all of them the sequence's
  CUtensorMap window;  ///< a group of 8 rows that ends behind a sequence, or begins before the first key seen
};

/// Tensor maps of one launch.
struct Maps {
  CUtensorMap q;
  KvMaps k;
  KvMaps v;
  CUtensorMap v_row;  ///< one chunk of one row of V, where visible keys begin (KvLoader::copy_rows)
};

/// An instance for short tiles has less code, which cold caches bring sooner, but its steps take 3 % longer. It is the
/// faster one up to kShortKeys keys per sequence, and where neither a tile takes more than kShortSteps steps (of 128
/// query rows and 128 keys) nor a launch more than that for each multiprocessor.
inline constexpr int32_t kShortKeys = 1024;
inline constexpr int64_t kShortSteps = 45;

/// An instance with tiles of 192 rows is the faster one for launches of so many query rows, counted as tokens times
/// heads: they fill a GPU of 144 multiprocessors twice, and none idles for long at the end. Under a causal mask the
/// longest sequence has kWideSequenceRows of them per KV head or more: in shorter ones too much of the last tile is
/// empty.
inline constexpr int64_t kWideRows = 2 * 144 * 192;
inline constexpr int64_t kWideSequenceRows = 576;
inline constexpr int kNarrowTileRows = 128;  ///< of the instance that runs otherwise

/// Log2 of the weight in e4m3 of the greatest score of a row's first KV block. Below 2^-6 e4m3 has fewer digits.
inline constexpr int kE4m3Lift = 4;

/// The same of a row that sees fewer than kFewKeys keys of that block. Later blocks likely have greater scores, so there
/// is room for these: a reference that moves costs a warp half a step.
inline constexpr int kE4m3LiftOfFew = 2;
inline constexpr int kFewKeys = 16;

/// The least weight in e4m3 of a row's heaviest key. Where the reference moves later, the heaviest key weighs more: a
/// lane's 32 keys are heavy only if one weighs more than 448 / 32 = 14, and the reference moves to the greatest score,
/// or by a factor of 2 (OnlineSoftmax).
inline constexpr int kE4m3LeastWeight = 1 << kE4m3LiftOfFew;

struct Instance {
  DType dtype;
  int head_dim;
  int head_dim_v;
  bool masked;       ///< handles causal and windows
  bool softcap;      ///< applies softcap, always
  bool short_tiles;  ///< for launches without a window on the left, of few keys or steps (kShortKeys)
  bool split;        ///< for launches of few tiles, which it may split
  bool listed;       ///< for sm90_prefill_fixed; requires split
  bool cascade;      ///< for launches whose sequences share keys
  bool e4m3_kv;      ///< K and V in e4m3
  bool e4m3_q;       ///< q in e4m3, and P
  bool one_level;    ///< for sm90_prefill_one_level
  bool int8_qk;      ///< q and K in int8, V in 16 bits
  bool wide;         ///< for launches of many query rows, in long sequences (kWideRows)
  bool gathers;      ///< for small pages
  int block_m;
  int block_n;
  int part_rows;    ///< most keys per copy
  int chunk_bytes;  ///< of a swizzled row in shared memory
  bool hands_over;  ///< rows of split tiles are merged in the launch: sums are absent between launches
  /// Null where the instance is a part of another kernel.
  cudaError_t (*launch)(const Maps&, const KernelParams&, int blocks, cudaStream_t);
};

#define INSTANCE(name, ...) extern const Instance bf16_##name, fp16_##name;
namespace instances {
#include "kernels/cuda/sm90_prefill/instances.def"
}
#undef INSTANCE

}  // namespace attnbench::sm90_prefill
