// The Shape of an instance, and what follows from it: warps and shared memory.
#pragma once

#include "kernels/contract/hd.h"
#include "kernels/cuda/common/ring.cuh"
#include "kernels/cuda/common/tensor_map.h"
#include "kernels/cuda/sm90_backward/instances.h"

namespace attnbench::sm90_backward {

/// The choices of an instance.
struct Shape {
  DType dtype;
  int head_dim;
  int block_m;  ///< queries of a tile
  int q_stages;
  int d_out_stages;
  bool softcap = false;
};

/// Two warpgroups of consumers, of 64 keys each, then one of which the first warp is the producer, and the next two add
/// dq of a warpgroup each.
inline constexpr int kTeams = 2;
inline constexpr int kBlockN = 64 * kTeams;
inline constexpr int kConsumerWarps = 4 * kTeams;
inline constexpr int kConsumerThreads = 32 * kConsumerWarps;
inline constexpr int kThreads = kConsumerThreads + 128;
inline constexpr int kProducerRegisters = 24;  ///< per thread
inline constexpr int kConsumerRegisters = 240;

/// Bytes, channels and counts. Tiles lie as [chunks of 64 channels][rows][128 bytes], swizzled; dS as
/// [chunks of 64 queries][keys][128 bytes].
template <Shape kShape>
struct Derived {
  static constexpr int kD = kShape.head_dim;
  static constexpr int kM = kShape.block_m;
  static constexpr int kChunks = kD / 64;
  static constexpr int kRowTiles = kM / 64;
  static constexpr int kTileChunkBytes = kM * hopper::kChunkBytes;
  static constexpr int kKeyChunkBytes = kBlockN * hopper::kChunkBytes;
  static constexpr int kTileBytes = kChunks * kTileChunkBytes;
  static constexpr int kKeyBytes = kChunks * kKeyChunkBytes;
  static constexpr int kRowBytes = kM * 4;  ///< of LSE or delta of a tile
  /// dq of a tile has two 64 x 64 parts, one per team: of channels (head_dim 128) or of queries (64).
  static_assert(kChunks * kRowTiles == kTeams);
  static constexpr int kPart = 64 * 64;
  static constexpr int kPartBytes = kPart * 4;
};

template <Shape kShape>
struct alignas(1024) SharedMemory {
  using D = Derived<kShape>;
  uint8_t k[D::kKeyBytes];
  uint8_t v[D::kKeyBytes];
  uint8_t q[kShape.q_stages][D::kTileBytes];
  uint8_t d_out[kShape.d_out_stages][D::kTileBytes];
  uint8_t ds[2][D::kRowTiles * D::kKeyChunkBytes];
  float dq[kTeams][D::kPart];
  float lse2[kShape.q_stages][D::kM];
  float delta[kShape.d_out_stages][D::kM];
  Keys items[2];

  hopper::Ring<2> item_ring;
  hopper::Ring<1> k_ring, v_ring;
  hopper::Ring<kShape.q_stages> q_ring;
  hopper::Ring<kShape.d_out_stages> d_out_ring;
  hopper::Ring<1> dq_ring[kTeams];
  hopper::Mbarrier ds_full[2];

  /// One thread calls it.
  __device__ void init_barriers() {
    for (int i = 0; i < 2; ++i) item_ring.init(i, kConsumerWarps + kTeams);
    k_ring.init(0, kConsumerWarps);
    v_ring.init(0, kConsumerWarps);
    for (int i = 0; i < kShape.q_stages; ++i) q_ring.init(i, kConsumerWarps);
    for (int i = 0; i < kShape.d_out_stages; ++i) d_out_ring.init(i, kConsumerWarps);
    for (hopper::Mbarrier& full : ds_full) full.init(kConsumerWarps);
    for (hopper::Ring<1>& ring : dq_ring) ring.init(0, 1, kConsumerWarps / kTeams);
  }
};

/// Where the sums of dq of a head's tile lie. Each part is [8][128 threads][4]: the accumulators 4 j .. 4 j + 3 of a
/// thread of the team, side by side.
template <Shape kShape>
__device__ __forceinline__ float* dq_part(const KernelParams& p, int head, int tile, int part) {
  using D = Derived<kShape>;
  return p.dq_sum + static_cast<int64_t>(head * p.padded_tiles + tile) * (D::kM * D::kD) + part * D::kPart;
}

}  // namespace attnbench::sm90_backward
