// The Shape of an instance, and what follows from it: warps and shared memory.
#pragma once

#include <type_traits>

#include "kernels/contract/dtype.h"
#include "kernels/cuda/common/partition.cuh"
#include "kernels/cuda/common/ring.cuh"
#include "kernels/cuda/common/tensor_map.h"
#include "kernels/cuda/sm90_decode/instances.h"
#include "kernels/cuda/sm90_decode/params.h"

namespace attnbench::sm90_decode {

/// The choices of an instance.
struct Shape {
  DType dtype;
  int head_dim;
  int row_tiles;  ///< tiles of 16 query rows: 1, 2 or 4
  int slots;      ///< slots of the ring of K and V tiles: they bound the bytes in flight
  int warps = 4;  ///< consumer warps; beyond 4 a third of the registers per thread is lost
  int tile_tokens = 64;
  bool eight_bit_kv =
      false;             ///< K and V in e4m3 or int8: products and weights in fp16, which holds both exactly
  bool int8_kv = false;  ///< in int8 (key_scales.cuh); requires eight_bit_kv
  Use use = Use::kAll;   ///< which launches the instance is chosen for
  int blocks_per_sm = 1;
  bool append = false;  ///< for launches that append (append.cuh)
  int rows = 0;         ///< query rows, if fewer than 16 * row_tiles
  /// All warps compute each tile together, by wgmma, which requires each chunk of a tile as one box of all
  /// its rows.
  bool joint = false;
  /// If not 0, the instance is a part of another kernel, whose blocks have this many warps. The consumer
  /// warps are the last of them, one other warp loads, and the rest do other work. No block of that kernel
  /// waits for others.
  int block_warps = 0;
  /// Decodes only the keys behind those that all sequences share, and leaves states: partial results that
  /// other warps of sm90_mixed merge with those of the shared keys (sm90_prefill/cascade.h).
  bool suffixes = false;
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
  /// Producer warps, the first warps of a block. A warp issues the copies of its lanes one after the other,
  /// at some 100 cycles each. So where a block must keep up with a fast stream, or copies are small, one warp
  /// loads K and another V.
  static constexpr int kProducerWarps =
      kShape.use == Use::kFewBlocks || kShape.use == Use::kLongSmallPages ? 2 : 1;
  /// The append warp (append_warp.cuh), behind the producer warps of instances that append.
  static constexpr int kAppendWarps = kShape.append ? 1 : 0;
  /// The warp that loads scales of keys (key_scales.cuh), behind the producer warps of int8 instances. It walks
  /// the part's sequences as they do.
  static constexpr int kScaleWarps = kShape.int8_kv ? 1 : 0;
  static constexpr int kWalkingWarps = kProducerWarps + kScaleWarps;
  static constexpr int kThreads =
      kOwnBlock ? kConsumerThreads + 32 * (kWalkingWarps + kAppendWarps) : 32 * kShape.block_warps;
  static constexpr int kFirstConsumerWarp = kThreads / 32 - kConsumerWarps;
  static constexpr int kWarpTokens = kShape.tile_tokens / kTokenGroups;
  static constexpr bool kKeepsStep = kShape.use == Use::kLong || kShape.use == Use::kLongSmallPages;
  static constexpr DType kMathType = kShape.eight_bit_kv ? DType::kFp16 : kShape.dtype;

  /// Whether the block of a sequence's first split may wait for the others (handover.cuh).
  static constexpr bool kFirstWaits = kShape.row_tiles == 1 && kOwnBlock;

  /// Whether all blocks of a sequence wait for each other and share the merge of its rows. Instances of 16 rows have
  /// two other ways, and code for a third makes their launches 1 us slower.
  static constexpr bool kSharesRows = kShape.row_tiles > 1 && kOwnBlock;
  static constexpr bool kWaits = kFirstWaits || kSharesRows;

  static constexpr int kQChunks = kShape.head_dim / hopper::kChunkChannels;
  static constexpr int kQChunkBytes = kRows * hopper::kChunkBytes;
  static constexpr int kQBytes = kQChunks * kQChunkBytes;
  /// A chunk of K and V is a swizzled row: 128 bytes, or 64 at head_dim 64 in 8 bits.
  static constexpr int kKvChunkBytes =
      kShape.head_dim == 64 && kShape.eight_bit_kv ? hopper::kChunkBytes / 2 : hopper::kChunkBytes;
  static constexpr int kKvChunks = kShape.head_dim * (kShape.eight_bit_kv ? 1 : 2) / kKvChunkBytes;
  static constexpr int kSlotBytes = kKvChunks * kShape.tile_tokens * kKvChunkBytes;

  /// Channels of O that the warps merge at a time, in at most 32 KB of shared memory. A block whose ring is
  /// as large as possible (kFewBlocks) has 16 KB left for them.
  static constexpr int kMergeChannels =
      kShape.head_dim == 64 || kTokenGroups * kRows > 64 || kShape.use == Use::kFewBlocks ? 64 : 128;

  static_assert(kShape.row_tiles == 1 || kShape.row_tiles == 2 || kShape.row_tiles == 4);
  static_assert(kShape.warps == 4 || kShape.warps == 8);
  static_assert(!kShape.joint || (kShape.row_tiles == 1 && !kShape.eight_bit_kv));
  static_assert(kShape.head_dim == 64 || kShape.head_dim == 128 || kShape.head_dim == 256);
  static_assert(kShape.slots >= 2 && kWarpTokens % 16 == 0);
  static_assert(!kShape.int8_kv || (kShape.eight_bit_kv && kOwnBlock && kShape.tile_tokens % 32 == 0));
  // Appended rows have the type of q.
  static_assert(!kShape.append || (kOwnBlock && !kShape.eight_bit_kv));
  static_assert(!kShape.suffixes || !kOwnBlock);
};

/// The rows of one sequence: its first row in the packed q, its lengths in tokens, and where its keys begin.
/// That is row `kv_row` of block `kv_block` (packed: block 0; paged: not used).
struct Sequence {
  int32_t q_begin;
  int32_t q_len;
  int32_t k_len;
  int32_t kv_block;
  int32_t kv_row;
};

/// Where a block begins: the sequence that holds its first unit, and that sequence's own first unit.
struct Start {
  int32_t b;
  int32_t first_unit;
  Sequence sequence;
};

/// One segment, as the producer publishes it to the consumers together with the queries.
struct alignas(16) Item {
  int32_t b;  ///< number of the sequence
  int32_t q_begin;
  int32_t q_len;
  int32_t k_len;
  int32_t tile_begin;  ///< tiles [tile_begin, tile_end), counted from the sequence's key 0
  int32_t tile_end;
  int32_t split;          ///< number of this split of the sequence
  int32_t num_splits;     ///< 0: there are no more items
  int32_t first_partial;  ///< split 0's partial result; below 0: its block waits and merges (handover.cuh)
  int32_t other_partial;  ///< split s > 0 has this + s times the step of partial_of_split()
};

/// The splits of a block whose sequences' rows are merged when the block has done all else: at most that of the
/// sequence in which its part begins, and that of the sequence in which it ends.
struct LeftSplits {
  Item item[2];
};
struct NoLeftSplits {};

/// An Item in a launch that appends.
struct AppendItem : Item {
  int32_t old_len;  ///< the sequence's first new row
  int32_t new_end;  ///< the end of its new tokens in k_new and v_new
};

/// The append warp's shared memory besides the rings. The warp stands between producer and consumers: items
/// reach it by item_full, queries by q_landed and tiles with new rows by kv_landed. It arrives at the full
/// barriers of q_ring, and at those of kv_ring for such tiles.
template <Shape kShape>
struct AppendMemory {
  alignas(128) uint8_t key[kShape.head_dim * 2];  ///< a new key while it is rotated
  hopper::Mbarrier item_full[kQStages], q_landed[kQStages], kv_landed[kShape.slots];
};

template <Shape kShape>
using ItemOf = std::conditional_t<kShape.append, AppendItem, Item>;

inline constexpr int kScaleStages = 8;

/// The scales of int8 keys in shared memory, one per key; a stage holds those of a tile.
template <Shape kShape>
struct KeyScales {
  float scale[kScaleStages][kShape.tile_tokens];
  // full: one arrival per lane of the scale warp; empty: one per consumer warp.
  hopper::Ring<kScaleStages> ring;
};
struct NoScales {};

/// Shared memory. A slot holds a tile of K or of V: one box of box_rows tokens after another, each
/// [chunks][rows][128 bytes] in the 128-byte swizzle, or with 64 bytes in the 64-byte swizzle. Where warps work jointly (Shape::joint), it is one
/// such box of all tokens, as wgmma reads it. q is [chunks][kRows][128 bytes] in the same swizzle.
template <Shape kShape>
struct alignas(1024) SharedMemory {
  using D = Derived<kShape>;
  uint8_t kv[kShape.slots][D::kSlotBytes];
  uint8_t q[kQStages][D::kQBytes];

  // The warps' results of a segment, to be merged.
  float merge_out[D::kTokenGroups][D::kRows][D::kMergeChannels];
  float merge_max[D::kTokenGroups][D::kRows];
  float merge_sum[D::kTokenGroups][D::kRows];
  int32_t is_last;  ///< nonzero: this block merges the splits
  [[no_unique_address]] std::conditional_t<D::kSharesRows, LeftSplits, NoLeftSplits> left;
  ItemOf<kShape> item[kQStages];  ///< is published together with q
  Start start;
  int32_t warp_units[D::kThreads / 32];  ///< find_start_in_block: units of each warp's sequences
  [[no_unique_address]] std::conditional_t<kShape.int8_kv, KeyScales<kShape>, NoScales> key_scales;
  int32_t shared_keys;  ///< of each sequence that the instance leaves out: Shape::suffixes

  // full: the producer's arrival and the bytes of the copy; empty: one arrival per consumer warp.
  hopper::Ring<kShape.slots> kv_ring;
  hopper::Ring<kQStages> q_ring;

  /// Initialises the barriers. One lane of each consumer warp does a share of them, because a barrier takes
  /// some 60 cycles.
  __device__ void init_barriers(int warp) {
#pragma unroll
    for (int i = 0; i < kShape.slots; ++i) {
      if (i % D::kConsumerWarps == warp) kv_ring.init(i, D::kConsumerWarps);
    }
#pragma unroll
    for (int i = 0; i < kQStages; ++i) {
      if (D::kConsumerWarps - 1 - i == warp) q_ring.init(i, D::kConsumerWarps);
    }
    if constexpr (kShape.int8_kv) {
#pragma unroll
      for (int i = 0; i < kScaleStages; ++i) {
        if (i % D::kConsumerWarps == warp) key_scales.ring.init(i, D::kConsumerWarps, 32);
      }
    }
  }
};

template <Shape kShape>
constexpr Instance describe(decltype(Instance::launch) launch) {
  using D = Derived<kShape>;
  constexpr DType kKv = kShape.int8_kv ? DType::kInt8 : kShape.eight_bit_kv ? DType::kE4m3 : kShape.dtype;
  return {kShape.dtype,       kKv,          kShape.head_dim,  D::kRows,
          kShape.tile_tokens, kShape.use,   kShape.append,    kShape.blocks_per_sm,
          D::kFirstWaits,     kShape.joint, D::kKvChunkBytes, launch};
}

/// The append warp's memory, which lies behind SharedMemory.
template <Shape kShape>
__device__ __forceinline__ AppendMemory<kShape>& append_memory(SharedMemory<kShape>& smem) {
  return *reinterpret_cast<AppendMemory<kShape>*>(&smem + 1);
}

/// Dynamic shared memory to request: the structures, and the slack to align them.
template <Shape kShape>
inline constexpr std::size_t kSmemBytes = sizeof(SharedMemory<kShape>) +
                                          (kShape.append ? sizeof(AppendMemory<kShape>) : 0) + 1024;

}  // namespace attnbench::sm90_decode
