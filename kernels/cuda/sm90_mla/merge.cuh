// Merges the splits of a sequence. Each block that computed one of them merges a share of the rows, when all
// are there. Blocks wait for each other only after their own work, and all blocks of a launch that may wait
// run at once (a cooperative launch), so no wait is endless.
#pragma once

#include "kernels/cuda/sm90_mla/rows.cuh"

namespace attnbench::sm90_mla {

/// Groups of four accumulators that a warp merges at a time: 32 make the channels of a team.
inline constexpr int kPieceAccumulators = 4;

/// Merges 8 * kPieceAccumulators channels of 16 rows, in the order of registers: piece `piece` of a team's
/// accumulators of row group `group`. A lane has parts of two rows. LSE and O are loaded together, so that a
/// batch of splits takes the latency of L2 once.
template <Shape kShape>
__device__ __forceinline__ void merge_piece(const KernelParams& p, const Place<kShape>& place,
                                            const Item& item, int32_t group, int team, int piece) {
  constexpr int kBatch = 4;  // splits whose loads are in flight
  const int32_t first_row = group * 16 + threadIdx.x % 32 / 4;
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {}, o[4 * kPieceAccumulators] = {};
#pragma unroll 1
  for (int32_t first = 0; first < item.num_splits; first += kBatch) {
    float lse[kBatch][2], v[kBatch][kPieceAccumulators][4] = {};
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      lse[i][0] = lse[i][1] = -INFINITY;
      const int32_t split = first + i;
      if (split >= item.num_splits) continue;
      const float* from = p.partial_lse + partial_row(p, place, item, split) + first_row;
      lse[i][0] = hopper::load_l2(from);
      lse[i][1] = hopper::load_l2(from + 8);
      const float4* out =
          partial_out_of(p, place, item, split, group, team) + piece * kPieceAccumulators * 32;
#pragma unroll
      for (int j = 0; j < kPieceAccumulators; ++j)
        hopper::load_l2(v[i][j], reinterpret_cast<const float*>(out + j * 32));
    }
    float weight[kBatch][2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float previous = max[h];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) max[h] = fmaxf(max[h], lse[i][h]);
      const float reference = hopper::reference_of(max[h]);
      const float shrink = hopper::exp2_approx(previous - reference);
      sum[h] *= shrink;
#pragma unroll
      for (int j = 0; j < kPieceAccumulators; ++j) {
        o[4 * j + 2 * h] *= shrink;
        o[4 * j + 2 * h + 1] *= shrink;
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        weight[i][h] = hopper::exp2_approx(lse[i][h] - reference);
        sum[h] += weight[i][h];
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
#pragma unroll
      for (int j = 0; j < 4 * kPieceAccumulators; ++j)
        o[j] = fmaf(weight[i][j / 2 % 2], v[i][j / 4][j % 4], o[j]);
    }
  }
  float normaliser[2], lse2[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    normaliser[h] = normaliser_of(sum[h]);
    lse2[h] = hopper::lse2_of(hopper::reference_of(max[h]), sum[h]);
  }
  write_rows(p, place, item, first_row, lse2, normaliser, o, team * 256 + piece * kPieceAccumulators * 8);
}

/// Merges this block's share of the sequences that it computed a split of. All consumers call it, at their
/// end.
template <Shape kShape>
__device__ __forceinline__ void merge_splits(const KernelParams& p, SharedMemory<kShape>& smem,
                                             const Place<kShape>& place) {
  constexpr int kPieces = 32 / kPieceAccumulators, kGroupPieces = kPieces * kTeams;
  const int splits = smem.splits;
#pragma unroll 1
  for (int i = 0; i < splits; ++i) {
    const Item item = smem.split_items[i];
    if (threadIdx.x == 0) {
      uint32_t* const arrivals = p.arrivals + counter_of(p, place, item);
      hopper::await_arrivals(arrivals, item.num_splits);
      hopper::arrive(arrivals, arrivals_of(item));
    }
    consumers_meet();  // orders thread 0's acquire before every thread's loads
    const int32_t pieces = (place.rows(p, item) + 15) / 16 * kGroupPieces;
    const int32_t warp = item.split + item.num_splits * static_cast<int32_t>(threadIdx.x / 32);
#pragma unroll 1
    for (int32_t piece = warp; piece < pieces; piece += item.num_splits * kConsumerWarps) {
      merge_piece(p, place, item, piece / kGroupPieces, piece % kGroupPieces / kPieces, piece % kPieces);
    }
  }
}

}  // namespace attnbench::sm90_mla
