// What an instantiation of the kernel is, and what follows from it: warps, shared memory.
#pragma once

#include <type_traits>

#include "kernels/contract/dtype.h"
#include "kernels/cuda/common/ring.cuh"
#include "kernels/cuda/common/tensor_map.h"
#include "kernels/cuda/sm90_decode/instances.h"
#include "kernels/cuda/sm90_decode/params.h"
#include "kernels/cuda/sm90_decode/partition.cuh"

namespace attnbench::sm90_decode {

/// Choices of an instantiation.
struct Shape {
  DType dtype;
  int head_dim;
  int row_tiles;  ///< 16 rows each: 1, 2 or 4
  int slots;      ///< of the ring of K and V tiles: the bytes in flight
  int warps = 4;  ///< that compute; beyond 4 a third of the registers per thread is lost
  int tile_tokens = 64;
  bool eight_bit_kv = false;  ///< K and V in e4m3: products and weights in fp16, which holds e4m3 exactly
  Use use = Use::kAll;        ///< which launches it is chosen for
  int blocks_per_sm = 1;
  bool append = false;  ///< for launches that append (append.cuh)
  int rows = 0;         ///< query rows, if fewer than 16 * row_tiles
  /// All warps compute each tile together, by wgmma, which wants a tile's chunks as one box of all its rows.
  bool joint = false;
  /// Not 0: the warps are the last ones of a block of so many, whose others do other work but for one that
  /// loads. The kernel is another's, then, and no block of it waits for others.
  int block_warps = 0;
};

inline constexpr int kQStages = 2;

template <Shape kShape>
struct Derived {
  static constexpr bool kOwnBlock = kShape.block_warps == 0;
  static constexpr int kRows = kShape.rows > 0 ? kShape.rows : 16 * kShape.row_tiles;
  /// Warps that share a row tile, each with its own tokens of every KV tile.
  static constexpr int kTokenGroups = kShape.joint ? 1 : kShape.warps / kShape.row_tiles;
  static constexpr int kConsumerWarps = kShape.warps;
  static constexpr int kConsumerThreads = 32 * kConsumerWarps;
  /// The first warps of a block. A warp issues the copies of its lanes one after the other, at some 100
  /// cycles each: where a block must keep up with a fast stream, or copies are small, one loads K and another
  /// V.
  static constexpr int kProducerWarps =
      kShape.use == Use::kFewBlocks || kShape.use == Use::kLongSmallPages ? 2 : 1;
  /// Behind them, of a launch that appends, the warp that does (append.cuh).
  static constexpr int kAppendWarps = kShape.append ? 1 : 0;
  static constexpr int kThreads =
      kOwnBlock ? kConsumerThreads + 32 * (kProducerWarps + kAppendWarps) : 32 * kShape.block_warps;
  static constexpr int kFirstConsumerWarp = kThreads / 32 - kConsumerWarps;
  static constexpr int kWarpTokens = kShape.tile_tokens / kTokenGroups;
  static constexpr bool kKeepsStep = kShape.use == Use::kLong || kShape.use == Use::kLongSmallPages;
  static constexpr DType kMathType = kShape.eight_bit_kv ? DType::kFp16 : kShape.dtype;

  /// Whether the block of a sequence's first split may wait for the others (handover.cuh).
  static constexpr bool kFirstWaits = kShape.row_tiles == 1 && kOwnBlock;

  static constexpr int kQChunks = kShape.head_dim / hopper::kChunkChannels;
  static constexpr int kQChunkBytes = kRows * hopper::kChunkBytes;
  static constexpr int kQBytes = kQChunks * kQChunkBytes;
  static constexpr int kKvChunks = kShape.eight_bit_kv ? kQChunks / 2 : kQChunks;
  static constexpr int kSlotBytes = kKvChunks * kShape.tile_tokens * hopper::kChunkBytes;

  /// Channels of O that the warps merge at a time, in 32 KB; in 16 KB where a block's ring is as large as can
  /// be.
  static constexpr int kMergeChannels =
      kShape.head_dim == 64 || kTokenGroups * kRows > 64 || kShape.use == Use::kFewBlocks ? 64 : 128;

  static_assert(kShape.row_tiles == 1 || kShape.row_tiles == 2 || kShape.row_tiles == 4);
  static_assert(kShape.warps == 4 || kShape.warps == 8);
  static_assert(!kShape.joint || (kShape.row_tiles == 1 && !kShape.eight_bit_kv));
  static_assert(kShape.head_dim == 64 || kShape.head_dim == 128 || kShape.head_dim == 256);
  static_assert(kShape.slots >= 2 && kWarpTokens % 16 == 0);
  static_assert(!kShape.eight_bit_kv || kShape.head_dim >= 128);  // rows of at least 128 bytes
  // Appended rows have the type of q.
  static_assert(!kShape.append || (kOwnBlock && !kShape.eight_bit_kv));
};

/// The rows of one sequence: its lengths in tokens, its first row in the packed q, and where its keys begin:
/// row `kv_row` of block `kv_block` (packed: block 0; paged: not used).
struct Sequence {
  int32_t q_begin;
  int32_t q_len;
  int32_t k_len;
  int32_t kv_block;
  int32_t kv_row;
};

/// Where a block begins: the sequence that holds its first unit, and the unit that sequence begins with.
struct Start {
  int32_t b;
  int32_t first_unit;
  Sequence sequence;
};

/// One segment, as the producer hands it to the consumers together with the queries.
struct alignas(16) Item {
  int32_t b;  ///< number of the sequence
  int32_t q_begin;
  int32_t q_len;
  int32_t k_len;
  int32_t tile_begin;  ///< tiles [begin, end) from the sequence's key 0 on
  int32_t tile_end;
  int32_t split;
  int32_t num_splits;     ///< 0: there are no more items
  int32_t first_partial;  ///< the number of split 0's partial result; below 0: its block merges, and waits
                          ///< for the others (handover.cuh)
  int32_t other_partial;  ///< that of split s > 0 is this + s times the step of partial_of_split()
};

/// An Item of a launch that appends.
struct AppendItem : Item {
  int32_t old_len;  ///< the sequence's first new row
  int32_t new_end;  ///< the end of its new tokens in k_new and v_new
};

/// What the warp that appends has beside the rings. It hands on what others wait for: items come to it by
/// item_full, queries by q_landed and tiles with new rows by kv_landed, and it is the one to arrive at q_full
/// and at these tiles' kv_full.
template <Shape kShape>
struct AppendMemory {
  alignas(128) uint8_t key[kShape.head_dim * 2];  ///< a new one, while it is rotated
  hopper::Mbarrier item_full[kQStages], q_landed[kQStages], kv_landed[kShape.slots];
};

template <Shape kShape>
using ItemOf = std::conditional_t<kShape.append, AppendItem, Item>;

/// Shared memory. A slot holds a tile of K or of V: one box of box_rows tokens after another, each [chunks of
/// 128 bytes][rows][128 bytes] in the 128-byte swizzle; where warps work jointly, one such box of all tokens,
/// as wgmma reads it. q: [chunks][kRows][128 bytes], likewise.
template <Shape kShape>
struct alignas(1024) SharedMemory {
  using D = Derived<kShape>;
  uint8_t kv[kShape.slots][D::kSlotBytes];
  uint8_t q[kQStages][D::kQBytes];

  // The warps' results of a segment, on their way to one.
  float merge_out[D::kTokenGroups][D::kRows][D::kMergeChannels];
  float merge_max[D::kTokenGroups][D::kRows];
  float merge_sum[D::kTokenGroups][D::kRows];
  int32_t is_last;  ///< this block merges the splits

  ItemOf<kShape> item[kQStages];  ///< travels with q
  Start start;
  int32_t warp_units[D::kThreads / 32];

  // full: the producer's arrival and the bytes of the copy; empty: one arrival per consumer warp.
  hopper::Ring<kShape.slots> kv_ring;
  hopper::Ring<kQStages> q_ring;

  /// One lane of each consumer warp, each its share: a barrier takes some 60 cycles.
  __device__ void init_barriers(int warp) {
#pragma unroll
    for (int i = 0; i < kShape.slots; ++i) {
      if (i % D::kConsumerWarps == warp) kv_ring.init(i, D::kConsumerWarps);
    }
#pragma unroll
    for (int i = 0; i < kQStages; ++i) {
      if (D::kConsumerWarps - 1 - i == warp) q_ring.init(i, D::kConsumerWarps);
    }
  }
};

template <Shape kShape>
constexpr Instance describe(decltype(Instance::launch) launch) {
  using D = Derived<kShape>;
  return {kShape.dtype,       kShape.eight_bit_kv, kShape.head_dim, D::kRows,
          kShape.tile_tokens, kShape.use,          kShape.append,   kShape.blocks_per_sm,
          D::kFirstWaits,     kShape.joint,        launch};
}

/// It lies behind the rest.
template <Shape kShape>
__device__ __forceinline__ AppendMemory<kShape>& append_memory(SharedMemory<kShape>& smem) {
  return *reinterpret_cast<AppendMemory<kShape>*>(&smem + 1);
}

/// Bytes to ask for: the structures, and the slack to align them.
template <Shape kShape>
inline constexpr std::size_t kSmemBytes = sizeof(SharedMemory<kShape>) +
                                          (kShape.append ? sizeof(AppendMemory<kShape>) : 0) + 1024;

}  // namespace attnbench::sm90_decode
