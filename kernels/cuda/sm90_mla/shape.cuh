// The Shape of an instance, and what follows from it: warps and shared memory.
#pragma once

#include <type_traits>

#include "kernels/contract/hd.h"
#include "kernels/cuda/common/ring.cuh"
#include "kernels/cuda/common/tensor_map.h"
#include "kernels/cuda/sm90_mla/instances.h"

namespace attnbench::sm90_mla {

/// The choices of an instance, and what follows from them.
///
/// A block that works alone has all channels of a key. A slot of its ring holds half a tile, which lies as
/// [groups of 8 keys][9 chunks][8 keys][128 bytes] in the 128-byte swizzle, whatever the size of the copies
/// that fill it. Queries lie as [9 chunks][rows][128 bytes].
///
/// A block of a pair has half of the channels: 256 of those that are values, and 32 of the other 64 ("rope").
/// A slot holds a tile: [groups][4 chunks][8 keys][128 bytes], then [groups][8 keys][64 bytes] in the 64-byte
/// swizzle. Queries lie as [4 chunks][rows][128 bytes], then [rows][64 bytes].
struct Shape {
  DType dtype;
  int rows;         ///< room for query rows: 16 or 64; 128 for pairs
  int slots;        ///< slots of the ring
  int cluster = 1;  ///< 2: blocks work in pairs

  ATTNBENCH_HD constexpr int slot_keys() const { return kTileKeys / 2 * cluster; }
  ATTNBENCH_HD constexpr int slots_per_tile() const { return kTileKeys / slot_keys(); }
  ATTNBENCH_HD constexpr int block_channels() const { return kValueChannels / cluster; }  ///< of O
  ATTNBENCH_HD constexpr int chunks() const {                                             ///< of 128 bytes
    return (cluster == 1 ? kKeyChannels : block_channels()) / hopper::kChunkChannels;
  }
  ATTNBENCH_HD constexpr int group_bytes() const {
    return chunks() * hopper::kGroupRows * hopper::kChunkBytes;
  }
  ATTNBENCH_HD constexpr int rope_offset() const { return slot_keys() / hopper::kGroupRows * group_bytes(); }
  ATTNBENCH_HD constexpr int q_chunk_bytes() const { return rows * hopper::kChunkBytes; }
  ATTNBENCH_HD constexpr int q_rope_offset() const { return chunks() * q_chunk_bytes(); }
  ATTNBENCH_HD constexpr int q_bytes() const { return rows * kKeyChannels * 2 / cluster; }
};

inline constexpr int kSlotBytes = kTileKeys / 2 * kKeyChannels * 2;

/// Two warpgroups of consumers, then a warpgroup of which the first warp is the producer. The others end at
/// once: registers are handed from one warpgroup to another only as a whole.
inline constexpr int kTeams = 2;
inline constexpr int kConsumerWarps = 4 * kTeams;
inline constexpr int kConsumerThreads = 32 * kConsumerWarps;
inline constexpr int kThreads = kConsumerThreads + 128;
inline constexpr int kProducerRegisters = 56;  ///< per thread
inline constexpr int kConsumerRegisters = 224;

/// A product always has 64 rows. Those past the tile's read whatever lies behind q, and are not used.
inline constexpr int kProductRows = 64;

/// One segment, as the producer publishes it to the consumers.
struct alignas(16) Item {
  int32_t b;  ///< number of the sequence
  int32_t q_begin;
  int32_t q_len;
  int32_t k_len;
  int32_t tile_begin;  ///< tiles [tile_begin, tile_end), counted from the sequence's key 0
  int32_t tile_end;
  int32_t split;          ///< number of this split of the sequence
  int32_t num_splits;     ///< 0: there are no more items
  int32_t first_part;     ///< the part of split 0
  int32_t first_partial;  ///< split 0's partial result
};

/// What warp w of one team hands to warp w of the other. A warp has the same 16 rows in both.
struct TeamExchange {
  uint4 weights[kTeams][2][32 * 4];  ///< the operand of its weights, in the order of registers
  float max[kTeams][kProductRows];
  float sum[kTeams][kProductRows];
};

/// What a team gets from the team with the same rows in the other block of a pair.
struct PairExchange {
  float4 scores[kTeams][kTileKeys / 8][32 * 4];  ///< in the order of registers
  hopper::Mbarrier full[kTeams];                 ///< here: they have come
  hopper::Mbarrier taken[kTeams];                ///< here: the other block has read those sent last

  /// One thread calls it.
  __device__ void init() {
    for (int team = 0; team < kTeams; ++team) {
      full[team].init(1);
      taken[team].init(4);
      full[team].arrive_expecting(sizeof(scores[team]));
    }
  }
};

template <Shape kShape>
struct alignas(1024) SharedMemory {
  uint8_t kv[kShape.slots][kSlotBytes];
  uint8_t q[kShape.q_bytes()];
  std::conditional_t<kShape.cluster == 1, TeamExchange, PairExchange> exchange;

  Item item;
  Item split_items[2];  ///< the part's items that are splits: at most its first and its last
  int32_t splits;       ///< how many there are

  hopper::Ring<kShape.slots> kv_ring;
  hopper::Ring<1> q_ring;

  /// One thread calls it.
  __device__ void init_barriers() {
    for (int i = 0; i < kShape.slots; ++i) kv_ring.init(i, kConsumerWarps);
    q_ring.init(0, kConsumerWarps);
    if constexpr (kShape.cluster > 1) exchange.init();
  }
};

/// Dynamic shared memory to request: the structure, and the slack to align it.
template <Shape kShape>
inline constexpr std::size_t kSmemBytes = sizeof(SharedMemory<kShape>) + 1024;

}  // namespace attnbench::sm90_mla
