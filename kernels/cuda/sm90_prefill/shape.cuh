// The Shape of an instance, and what follows from it: threads, registers, shared memory.
#pragma once

#include <type_traits>

#include "kernels/contract/dtype.h"
#include "kernels/cuda/common/ring.cuh"
#include "kernels/cuda/common/tensor_map.h"
#include "kernels/cuda/sm90_prefill/few_sequences.cuh"
#include "kernels/cuda/sm90_prefill/instances.h"
#include "kernels/cuda/sm90_prefill/params.h"

namespace attnbench::sm90_prefill {

/// The choices of an instance.
struct Shape {
  DType dtype;
  int head_dim;
  int block_m;           ///< query rows of a tile
  int block_n;           ///< keys of a KV block
  int q_stages;          ///< Q tiles in shared memory; with 2, the next tile's arrives during this one's work
  bool masked;           ///< takes causal masks and windows; otherwise only the end of the keys is masked
  bool windows = true;   ///< takes windows on the left, if masked; see WithoutWindows (kernel.cuh)
  bool softcap = false;  ///< requires masked
  bool turns = true;     ///< consumer warpgroups take turns at the tensor cores
  bool short_tiles =
      false;  ///< for few KV blocks or steps (kShortKeys), without left windows: less code, slower where they are many
  bool split = false;      ///< tiles may be split (split.h)
  bool listed = false;     ///< works come from a list (prepare.cu); see FromList (kernel.cuh)
  bool cascade = false;    ///< keys that all sequences share are read once (cascade.h); requires split
  int head_dim_v = 0;      ///< channels of V and O, if not head_dim
  bool e4m3_kv = false;    ///< K and V in e4m3; products are in fp16, which holds e4m3 exactly, unless:
  bool e4m3_q = false;     ///< q in e4m3, and P and both products too; requires e4m3_kv
  bool one_level = false;  ///< P V sums over all keys in the matrix unit; requires e4m3_q
  bool int8_qk = false;    ///< q and K in int8 and Q K^T too, V in 16 bits (key_scales.cuh)
  bool wide = false;       ///< for launches of many query rows, in long sequences (kWideRows)
  bool gathers = false;    ///< for small pages: several warps load K and V, also row by row (gather.cuh)
  /// If not 0, the block has one more warpgroup for other work (sm90_mixed), with so many registers per
  /// thread.
  int guest_registers = 0;
};

inline constexpr int kSharedBytes = 227 * 1024;  ///< most shared memory of a block

template <Shape kShape>
struct Derived {
  static constexpr int kDimV = kShape.head_dim_v > 0 ? kShape.head_dim_v : kShape.head_dim;
  /// choose_instance() splits no launch with a window on the left, and takes no short tiles for it.
  static constexpr bool kTakesWindows =
      kShape.masked && kShape.windows && !kShape.short_tiles && !kShape.split;
  /// Whether warpgroups pass over KV blocks that none of their rows sees. Under a causal mask alone, a tile with no more
  /// rows than a block has keys would not end sooner by it, and small launches take 3 % longer for the code.
  static constexpr bool kPasses = kTakesWindows || (kShape.masked && kShape.block_m > kShape.block_n);
  static constexpr int kConsumers = kShape.block_m / 64;  ///< warpgroups of 64 rows each
  static constexpr bool kHasGuests = kShape.guest_registers > 0;
  /// Whether rows of split tiles are merged in the same launch: sums are absent until their state is complete,
  /// and between launches (sm90_mixed/row_merger.cuh).
  static constexpr bool kHandsOver = kShape.cascade && kHasGuests;
  /// Warps that convert e4m3 tiles. Four widen faster than two, where registers allow: three warpgroups of consumers
  /// leave none for a fifth warpgroup, and for a product with 256 columns ptxas has too few in a block of 512 threads
  /// (C7602).
  static constexpr int kConverters = !kShape.e4m3_kv                                               ? 0
                                     : kShape.head_dim <= 128 && kConsumers == 2 && !kShape.e4m3_q ? 4
                                                                                                   : 2;
  /// Warps that load small pages; four where registers allow.
  static constexpr int kGatherers = !kShape.gathers ? 0 : kShape.head_dim == 128 ? 4 : 2;
  /// Whether two warps gather for three warpgroups. They seldom keep up, so more stages help.
  static constexpr bool kScarceGatherers = kGatherers == 2 && kConsumers == 3;
  /// Whether these are a warpgroup of their own. Otherwise they are two warps of the producers'.
  static constexpr bool kHasHelpers = kConverters == 4 || kGatherers == 4;
  static constexpr bool kConvertsK = kShape.e4m3_kv && !kShape.e4m3_q;                ///< V always
  static constexpr int kTileConverters = kConvertsK ? kConverters / 2 : kConverters;  ///< that share a tile
  /// Whether two warps of the producers' warpgroup load and convert the next tile's queries, and a third one loads K and
  /// V. Otherwise the converting warps convert both in turn, and consumers wait for queries.
  static constexpr bool kQueriesApart = kConverters == 4;
  /// Warps that take items beside the first producer: they load or convert K and V in its place, or load the scales of
  /// K.
  static constexpr int kFollowers = kShape.int8_qk ? 1 : kQueriesApart ? 1 + kConverters : kGatherers;
  /// Whether P V sums in two levels: e4m3 products sum with some 14 bits, so each KV block has a sum of its own, which
  /// is added to the fp32 sum over all of them. Then a warpgroup computes nothing beside its own products: the other
  /// warpgroups do. So registers suffice for long KV blocks.
  static constexpr bool kTwoLevels = kShape.e4m3_q && !kShape.one_level;
  /// Whether the sums of a KV block take the registers of its scores, for as many channels at a time as there are keys.
  static constexpr bool kSumsInScores = kTwoLevels && kDimV % kShape.block_n == 0;
  /// Whether consumers keep what they seldom need in shared memory, because registers do not suffice.
  static constexpr bool kParks = (kSumsInScores || kShape.int8_qk) && kConsumers == 3;
  /// Whether O starts as zeros. Otherwise a tile's first product with V overwrites O, whose registers are reserved until
  /// then.
  static constexpr bool kClearsOutputs = kTwoLevels || kParks;
  static constexpr int kKStages = kShape.int8_qk || kScarceGatherers ? 4
                                  : kTwoLevels && kConsumers == 3    ? 3
                                                                     : 2;
  static constexpr int kThreads = 128 * (kConsumers + 1 + kHasGuests + kHasHelpers);
  static constexpr int kConsumerWarps = 4 * kConsumers;
  /// A chunk is a swizzled row: 128 bytes, or 64 where 128 do not divide the rows of K and V (head_dim 96; 64 in
  /// e4m3).
  static constexpr int kChunkBytes = kShape.head_dim * (kShape.e4m3_kv ? 1 : 2) % hopper::kChunkBytes == 0
                                         ? hopper::kChunkBytes
                                         : hopper::kChunkBytes / 2;
  static constexpr int kChunks = kShape.head_dim * (kShape.e4m3_q || kShape.int8_qk ? 1 : 2) / kChunkBytes;
  static constexpr int kChunksV = kDimV * 2 / kChunkBytes;
  static constexpr int kQChunkBytes = kShape.block_m * kChunkBytes;
  static constexpr int kAtomBytes = hopper::kGroupRows * kChunkBytes;
  static constexpr int kKGroupBytes = kChunks * kAtomBytes;
  static constexpr int kVGroupBytes = kChunksV * kAtomBytes;
  static constexpr int kQBytes = kChunks * kQChunkBytes;
  static constexpr int kKBytes = kShape.block_n / hopper::kGroupRows * kKGroupBytes;
  /// V, or V^T with a row of 128 bytes for each channel.
  static constexpr int kVBytes =
      kShape.e4m3_q ? kDimV * hopper::kChunkBytes : kShape.block_n / hopper::kGroupRows * kVGroupBytes;
  static constexpr DType kWideType = kShape.e4m3_kv ? DType::kFp16 : kShape.dtype;
  static constexpr DType kScoreMath = kShape.e4m3_q    ? DType::kE4m3
                                      : kShape.int8_qk ? DType::kInt8
                                                       : kWideType;         ///< of Q K^T
  static constexpr DType kMath = kShape.e4m3_q ? DType::kE4m3 : kWideType;  ///< of P V
  static constexpr int kStepKeys = kShape.e4m3_q ? 32 : 16;                 ///< of one instruction of P V

  // A tile of K or V as it is loaded: in kParts parts of neighbouring rows. Where tiles are widened, each part has
  // its own buffer. e4m3 rows have half as many chunks. Two parts in two buffers hide the latency of a copy where
  // shared memory has no room for two tiles more. Where several warps load tiles, each loads a part.
  static constexpr int kParts = kGatherers > 0 ? kGatherers : kConvertsK ? 2 : 1;
  static constexpr int kPartRows = kShape.block_n / kParts;
  template <bool kIsV>
  static constexpr int kLandedChunks = (kIsV ? kDimV : kShape.head_dim) *
                                       (kShape.e4m3_kv || (kShape.int8_qk && !kIsV) ? 1 : 2) / kChunkBytes;
  template <bool kIsV>
  static constexpr int kLandedGroupBytes = kLandedChunks<kIsV>* kAtomBytes;
  template <bool kIsV>
  static constexpr int kPartBytes = kPartRows / hopper::kGroupRows* kLandedGroupBytes<kIsV>;
  /// Of V, and of K if it is converted, as shared memory allows.
  static constexpr int kLandedStages = kConvertsK || kPartBytes<true> > 24 * 1024 ? 2 : 3;
  static constexpr int kLandedBytes =
      kShape.e4m3_kv ? kLandedStages * (kPartBytes<true> + (kConvertsK ? kPartBytes<false> : 0)) : 0;
  static constexpr int kKeyScaleBytes = kShape.int8_qk ? kKStages * kShape.block_n * 4 : 0;
  static constexpr int kOtherBytes = 2048;  ///< items, barriers, and what alignment costs; without Parked

  // Registers per thread after the redistribution. Their sum over the warpgroups must not exceed what the
  // launch gets, 65536 / kThreads in multiples of 8 each: 3 * 168 or 4 * 128. With more, the block waits for
  // ever.
  static constexpr int kProducerRegisters =
      kQueriesApart || (kConsumers == 2 && !kHasGuests && !kHasHelpers) ? 40 : 32;
  static constexpr int kHelperRegisters = kQueriesApart ? 56 : 32;
  static constexpr int kConsumerRegisters =
      kHasGuests        ? (512 - kProducerRegisters - kShape.guest_registers) / kConsumers
      : kHasHelpers     ? (512 - kProducerRegisters - kHelperRegisters) / kConsumers
      : kConsumers == 2 ? 232
                        : 160;

  /// Whether registers hold a second set of weights beside scores and outputs, so that one can be made while
  /// products read the other. Where tiles are widened, and in int8, the code of one set is faster.
  static constexpr bool kTwoWeights = !kTwoLevels && !kConvertsK && !kShape.int8_qk &&
                                      kShape.block_n * (kShape.e4m3_q ? 3 : 4) / 4 + kDimV / 2 <=
                                          kConsumerRegisters - (kHasHelpers || kShape.e4m3_q ? 32 : 40);

  /// V is released a step later than K, so a third stage is worth more there. It is used where shared memory
  /// holds it and a warpgroup holds V during its softmax (kTwoWeights), with two levels of sums, and where warps that gather
  /// are scarce.
  static constexpr int kVStages = (kTwoWeights || kTwoLevels || kScarceGatherers) &&
                                          kShape.q_stages * kQBytes + kKStages * kKBytes + 3 * kVBytes +
                                                  kLandedBytes + kKeyScaleBytes + kOtherBytes <=
                                              kSharedBytes
                                      ? 3
                                      : 2;

  static_assert(kProducerRegisters + kConsumers * kConsumerRegisters + kShape.guest_registers +
                    (kHasHelpers ? kHelperRegisters : 0) <=
                kThreads / 128 * (65536 / kThreads / 8 * 8));
  static_assert(kConsumers == 2 || kConsumers == 3);
  static_assert(kShape.block_m % 64 == 0 && kShape.block_n % 16 == 0);
  static_assert(kShape.head_dim * 2 % kChunkBytes == 0 && kDimV * 2 % kChunkBytes == 0);
  static_assert(kDimV % 32 == 0);  // rows are stored by 32 channels (epilogue.cuh)
  static_assert(!kShape.split || kDimV == 64 || kDimV == 128 ||
                kDimV == 256);  // as merge_splits.cu takes them
  static_assert(kShape.masked || !kShape.softcap);
  static_assert(kShape.split || !kShape.cascade);
  static_assert((kShape.split && !kShape.cascade) || !kShape.listed);
  static_assert(!kShape.e4m3_kv || (kShape.head_dim % 64 == 0 && kShape.masked && !kHasGuests));
  // Rows of int8 have 128 bytes.
  static_assert(!kShape.int8_qk || (kShape.head_dim == 128 && kDimV == 128 && kShape.masked &&
                                    !kShape.softcap && !kShape.e4m3_kv && !kShape.gathers && !kHasGuests));
  static_assert(!kShape.gathers || (kShape.masked && !kShape.e4m3_kv && !kHasGuests));
  static_assert((kShape.e4m3_kv || !kShape.e4m3_q) && (kShape.e4m3_q || !kShape.one_level));
  static_assert(!kShape.e4m3_q || (kShape.block_n % 32 == 0 && kShape.block_n <= hopper::kChunkBytes));
  static_assert(kDimV == kShape.head_dim || !kShape.e4m3_kv);
  static_assert(!kTwoLevels || !kShape.turns);
};

template <Shape kShape>
constexpr Instance describe(decltype(Instance::launch) launch) {
  using D = Derived<kShape>;
  return {kShape.dtype,   kShape.head_dim, D::kDimV,       kShape.masked,  kShape.softcap, kShape.short_tiles,
          kShape.split,   kShape.listed,   kShape.cascade, kShape.e4m3_kv, kShape.e4m3_q,  kShape.one_level,
          kShape.int8_qk, kShape.wide,     kShape.gathers, kShape.block_m, kShape.block_n, D::kPartRows,
          D::kChunkBytes, D::kHandsOver,   launch};
}

/// The lane's number. What follows from it is computed where it is used, because a volatile read is not kept:
/// registers do not suffice for the addresses of a lane.
__device__ __forceinline__ uint32_t lane_anew() {
  uint32_t lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
}

/// Reads an item that another warp published, for a whole warp. Only lane 0 reads it. So the arrivals of the
/// two lanes that write and read order everything, which a tool that follows threads can see (racecheck).
__device__ __forceinline__ WorkItem take_item(const WorkItem& published, int lane) {
  WorkItem item{};
  if (lane == 0) item = published;
  unpack_tokens(item, __shfl_sync(~0u, pack_tokens(item), 0));
  item.q_row = __shfl_sync(~0u, item.q_row, 0);
  item.diagonal = __shfl_sync(~0u, item.diagonal, 0);
  item.k_len = __shfl_sync(~0u, item.k_len, 0);
  item.kv_base = __shfl_sync(~0u, item.kv_base, 0);
  item.n_begin = __shfl_sync(~0u, item.n_begin, 0);
  item.n_end = __shfl_sync(~0u, item.n_end, 0);
  item.head = __shfl_sync(~0u, item.head, 0);
  return item;
}

/// What the descales of a tile's sequence and KV head make of its scores and outputs.
struct TileScales {
  float score;  ///< size of the product of the descales of q and K, above 0; the sign is in the queries
  float out;    ///< descale of V
};

/// Where e4m3 tiles land before warps convert them. `q_full`: a tile of queries has landed.
template <Shape kShape>
struct Landing {
  using D = Derived<kShape>;
  hopper::Mbarrier q_full[kShape.q_stages];
  hopper::Ring<D::kLandedStages> k_ring, v_ring;
  TileScales scales[kShape.q_stages];        ///< are published together with q
  TileScales own_scales[D::kConsumerWarps];  ///< as SharedMemory::rows

  __device__ void init_barriers() {
    for (int i = 0; i < kShape.q_stages; ++i) q_full[i].init(1);
    for (int i = 0; i < D::kLandedStages; ++i) {
      if constexpr (D::kConvertsK) k_ring.init(i, D::kTileConverters);
      v_ring.init(i, D::kTileConverters);
    }
  }
};

/// The buffers of V, or of K, in which e4m3 lands. One holds a part of a tile, as [groups of 8 rows][chunks][8
/// rows][kChunkBytes].
template <Shape kShape, bool kIsV>
struct LandedParts {
  using D = Derived<kShape>;
  uint8_t parts[D::kLandedStages][D::template kPartBytes<kIsV>];
};

struct Nothing {};

/// The scales of the keys in each stage of K's ring (key_scales.cuh).
template <Shape kShape>
struct KeyScales {
  alignas(16) float scale[Derived<kShape>::kKStages][kShape.block_n];
};

/// What each consumer thread keeps of Visibility here.
template <Shape kShape>
struct Parked {
  using OfThreads = int[128 * Derived<kShape>::kConsumers];
  OfThreads end[2], begin[2];
};

/// Shared memory. Q is [chunks][rows][128 bytes], where a chunk is 64 channels, or 128 in 8 bits. K and V are
/// [groups of 8 rows][chunks][8 rows][128 bytes], so that one copy brings rows with all their chunks to one
/// place. V in e4m3 is [channels][128 bytes], a byte for each key, in the order of transpose_tile (convert.cuh).
/// All have the 128-byte swizzle and are aligned to its atom. At head_dim 96, and at 64 in e4m3, chunks have 64
/// bytes and the 64-byte swizzle (V^T still has the other).
template <Shape kShape>
struct alignas(1024) SharedMemory {
  using D = Derived<kShape>;
  uint8_t q[kShape.q_stages][D::kQBytes];
  uint8_t k[D::kKStages][D::kKBytes];
  uint8_t v[D::kVStages][D::kVBytes];
  [[no_unique_address]] std::conditional_t<D::kConvertsK, LandedParts<kShape, false>, Nothing> landed_k;
  [[no_unique_address]] std::conditional_t<kShape.e4m3_kv, LandedParts<kShape, true>, Nothing> landed_v;

  WorkItem item[kShape.q_stages];  ///< is published together with q
  WorkItem next_item;              ///< from the scheduling warp to the first producer warp and its followers
  Notes notes;                     ///< the scheduling warp's own
  TileRows rows[D::kConsumerWarps];  ///< each warp's own, of its tile
  // full: the producer's arrival and the bytes of the copy; empty: one arrival per consumer warp.
  hopper::Mbarrier next_full, next_empty;
  hopper::Ring<kShape.q_stages> q_ring;
  hopper::Ring<D::kKStages> k_ring;
  hopper::Ring<D::kVStages> v_ring;
  [[no_unique_address]] std::conditional_t<kShape.e4m3_kv, Landing<kShape>, Nothing> landing;
  /// Are published together with k.
  [[no_unique_address]] std::conditional_t<kShape.int8_qk, KeyScales<kShape>, Nothing> key_scales;
  [[no_unique_address]] std::conditional_t<D::kParks, Parked<kShape>, Nothing> parked;

  /// Zeroes the rows of Q from `used` on, which no copy writes. Otherwise they may hold NaN, and then every
  /// KV block is weighed twice. All threads call it. Products see the zeros after a barrier of the block.
  __device__ void clear_rows_from(int used) {
    constexpr int kUnits = D::kChunkBytes / sizeof(uint4);
    const int units = (kShape.block_m - used) * kUnits;
#pragma unroll 1
    for (int i = threadIdx.x; i < units; i += blockDim.x) {
#pragma unroll 1
      for (int c = 0; c < kShape.q_stages * D::kChunks; ++c) {
        reinterpret_cast<uint4*>(q[0] + c * D::kQChunkBytes)[used * kUnits + i] = uint4{};
      }
    }
    cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
  }

  __device__ void init_barriers() {
    next_full.init(1);
    next_empty.init(1 + D::kFollowers);
    // The copy engine's producer announces each part of a tile, or each warp that has converted a share of it.
    // The warp that loads the scales of K announces them on the barrier of K.
    constexpr int kOfQ = D::kQueriesApart ? 2 : kShape.e4m3_kv ? D::kConverters : 1;
    constexpr int kOfK = D::kConvertsK ? D::kTileConverters : D::kParts + (kShape.int8_qk ? 1 : 0);
    constexpr int kOfV = kShape.e4m3_kv ? D::kTileConverters : D::kParts;
    for (int i = 0; i < kShape.q_stages; ++i) q_ring.init(i, D::kConsumerWarps, kOfQ);
    for (int i = 0; i < D::kKStages; ++i) k_ring.init(i, D::kConsumerWarps, kOfK);
    for (int i = 0; i < D::kVStages; ++i) v_ring.init(i, D::kConsumerWarps, kOfV);
    if constexpr (kShape.e4m3_kv) landing.init_barriers();
  }
};

}  // namespace attnbench::sm90_prefill
