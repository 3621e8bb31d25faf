// The Shape of an instance, and what follows from it: warps and shared memory.
#pragma once

#include "kernels/contract/hd.h"
#include "kernels/cuda/common/ring.cuh"
#include "kernels/cuda/common/tensor_map.h"
#include "kernels/cuda/sm90_mla/instances.h"

namespace attnbench::sm90_mla {

/// The choices of an instance, and what follows from them.
///
/// A slot of the ring holds the parts of a tile (params.h), one after the other, each as
/// [groups of 8 keys][its chunks][8 keys][128 bytes] in the 128-byte swizzle, whatever the size of the copies
/// that fill it. Queries lie as [9 chunks][rows][128 bytes].
struct Shape {
  DType dtype;
  int rows;   ///< room for query rows
  int slots;  ///< slots of the ring

  ATTNBENCH_HD constexpr int slot_bytes() const { return kTileKeys * kKeyChannels * 2; }
  ATTNBENCH_HD constexpr int q_chunk_bytes() const { return rows * hopper::kChunkBytes; }
  ATTNBENCH_HD constexpr int q_bytes() const { return rows * kKeyChannels * 2; }
};

/// Bytes to the next chunk of a group of keys.
inline constexpr uint32_t kChunkStep = hopper::kGroupRows * hopper::kChunkBytes;

/// Bytes of a group of keys in part `part` of a tile, of the whole part, and where it lies in its slot.
ATTNBENCH_HD constexpr int part_group_bytes(int part) { return part_chunks(part) * kChunkStep; }
ATTNBENCH_HD constexpr int part_bytes(int part) {
  return kTileKeys / hopper::kGroupRows * part_group_bytes(part);
}
ATTNBENCH_HD constexpr int part_offset(int part) { return part * part_bytes(0); }

/// Two warpgroups of consumers, then a warpgroup of which the first warp is the producer. The others end at
/// once: registers are handed from one warpgroup to another only as a whole.
inline constexpr int kTeams = 2;
inline constexpr int kConsumerWarps = 4 * kTeams;
inline constexpr int kConsumerThreads = 32 * kConsumerWarps;
inline constexpr int kThreads = kConsumerThreads + 128;
inline constexpr int kProducerRegisters = 56;  ///< per thread
inline constexpr int kConsumerRegisters = 224;

/// Named barriers of pairs of warps, one of each team, which have the same rows.
inline constexpr int kPairBarrier = 1;

/// A product always has 64 rows. Those past the tile's read whatever lies there, and are not used.
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

/// What warp w of one team hands to warp w of the other: weights and the state of rows in each tile, sums at the end of
/// an item. A warp has the same 16 rows in both teams. One buffer of weights and state serves both directions.
struct TeamExchange {
  uint4 weights[kTileKeys / 16][32 * 4];  ///< in the order of registers
  float2 state[kProductRows];             ///< the offset, and the factor for older weights
  float sum[kTeams][kProductRows];
};

/// The barriers of a ring of tiles in three parts. Team t releases half t, whose values it adds. By then the
/// tile's scores are there, for which all parts were needed. The team that computed the scores releases the rest.
template <int kStages>
struct TileRing {
  hopper::Ring<kStages> parts[kRest + 1];

  __device__ void init(int stage, uint32_t readers) {
    for (hopper::Ring<kStages>& part : parts) part.init(stage, readers / kTeams);
  }
};

template <Shape kShape>
struct alignas(1024) SharedMemory {
  uint8_t kv[kShape.slots][kShape.slot_bytes()];
  uint8_t q[kShape.q_bytes()];
  TeamExchange exchange;

  Item item;
  Item split_items[2];  ///< the part's items that are splits: at most its first and its last
  int32_t splits;       ///< how many there are

  TileRing<kShape.slots> kv_ring;
  hopper::Ring<1> q_ring;
  /// By pair of warps, a phase per tile: the first of them has issued its products with values. No data depends on it.
  hopper::Mbarrier values_issued[kConsumerWarps / kTeams];

  /// One thread calls it.
  __device__ void init_barriers() {
    for (int i = 0; i < kShape.slots; ++i) kv_ring.init(i, kConsumerWarps);
    q_ring.init(0, kConsumerWarps);
    for (hopper::Mbarrier& issued : values_issued) issued.init(1);
  }
};

/// Dynamic shared memory to request: the structure, and the slack to align it.
template <Shape kShape>
inline constexpr std::size_t kSmemBytes = sizeof(SharedMemory<kShape>) + 1024;

}  // namespace attnbench::sm90_mla
