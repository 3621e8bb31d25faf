// The producer warp. It finds the part's work, walks its sequences, and keeps queries and keys coming.
#pragma once

#include "kernels/cuda/common/row_map.cuh"
#include "kernels/cuda/sm90_mla/rows.cuh"

namespace attnbench::sm90_mla {

using hopper::Partition;
using hopper::Segment;
using hopper::Shares;
using hopper::Splits;

/// One sequence: its first row in the packed q, its lengths in tokens, and where its keys begin: row `kv_row`
/// of block `kv_block` (packed: block 0; paged: not used).
struct Sequence {
  int32_t q_begin = 0, q_len = 0, k_len = 0;
  int32_t kv_block = 0, kv_row = 0;

  __device__ __forceinline__ int32_t tiles() const { return (k_len + kTileKeys - 1) / kTileKeys; }
  __device__ __forceinline__ int32_t units(const KernelParams& p) const {
    return hopper::sequence_units(q_len, tiles(), p.segment_cost);
  }
};

/// The sequence number b; one without queries past the end of the batch. One with more queries than the
/// launch's maximum, which a replay must not have, counts as one without.
__device__ __forceinline__ Sequence load_sequence(const KernelParams& p, int32_t b) {
  if (b >= p.attention.batch) return {};
  Sequence s;
  s.q_begin = p.attention.cu_seqlens_q[b];
  s.q_len = p.attention.cu_seqlens_q[b + 1] - s.q_begin;
  s.k_len = p.k_end[b] - (p.k_begin != nullptr ? p.k_begin[b] : 0);
  s.kv_block = p.kv_block != nullptr ? p.kv_block[b] : p.block_step * b;
  s.kv_row = p.kv_row != nullptr ? p.kv_row[b] : 0;
  if (s.q_len > p.attention.max_seqlen_q) s.q_len = 0;
  return s;
}

template <Shape kShape>
class Producer {
 public:
  __device__ __forceinline__ Producer(const Maps& maps, const KernelParams& p, SharedMemory<kShape>& smem,
                                      const Place<kShape>& place, int lane)
      : maps_(maps), p_(p), smem_(smem), place_(place), lane_(lane) {}

  /// Publishes all items of part `part`, and the end.
  __device__ __forceinline__ void run(int32_t part) {
    const Totals totals = add_up();
    const Partition partition =
        hopper::make_partition(totals.units, p_.parts, p_.by_parts, 1, p_.segment_cost);
    const Shares shares = hopper::limit_shares(p_.shares, totals.most_tiles, kLeastSplitTiles);
    const bool shared = hopper::most_units_of(shares, totals.most_tiles, p_.segment_cost) <=
                        partition.units_per_part + p_.shares_slack;
    const int32_t end_unit = (part + 1) * partition.units_per_part;
    int32_t first_unit = 0;
    int32_t b =
        shared ? hopper::first_sequence_of(shares, part) : find(part * partition.units_per_part, &first_unit);
    const int32_t end = shared ? min(b + shares.sequences, p_.attention.batch) : p_.attention.batch;
    for (; b < end && (shared || first_unit < end_unit); ++b) {
      const Sequence s = load_sequence(p_, b);
      const auto splits = [&] {
        return shared ? hopper::splits_of(shares, b, s.tiles())
                      : hopper::splits_of(partition, first_unit, s.tiles());
      };
      const Segment segment = shared ? hopper::segment_of(splits(), part, s.tiles())
                                     : hopper::segment_of(partition, part, first_unit, s.tiles());
      if (s.q_len > 0 && segment.exists) add_item(b, s, segment, part, splits);
      first_unit += s.units(p_);
    }
    smem_.q_ring.await_empty(q_);
    if (lane_ == 0) {
      smem_.item.num_splits = 0;
      smem_.splits = splits_;
      smem_.q_ring.full_at(q_).arrive();
    }
  }

 private:
  struct Totals {
    int32_t units;
    int32_t most_tiles;  ///< of a sequence
  };

  __device__ __forceinline__ Totals add_up() const {
    int32_t units = 0, most = 0;
#pragma unroll 4
    for (int32_t b = lane_; b < p_.attention.batch; b += 32) {
      const Sequence s = load_sequence(p_, b);
      units += s.units(p_);
      most = max(most, s.q_len > 0 ? s.tiles() : 0);
    }
    return {__reduce_add_sync(~0u, units), __reduce_max_sync(~0u, most)};
  }

  /// The sequence that holds unit `unit`, and its own first unit. Past the end of the line: the batch.
  __device__ __forceinline__ int32_t find(int32_t unit, int32_t* first_unit) const {
    int32_t before = 0;
    for (int32_t base = 0; base < p_.attention.batch; base += 32) {
      const int32_t units = load_sequence(p_, base + lane_).units(p_);
      int32_t up_to = units;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int32_t other = __shfl_up_sync(~0u, up_to, step);
        if (lane_ >= step) up_to += other;
      }
      up_to += before;
      const uint32_t holders = __ballot_sync(~0u, up_to - units <= unit && unit < up_to);
      if (holders != 0) {
        const int holder = __ffs(static_cast<int>(holders)) - 1;  // exactly one
        *first_unit = __shfl_sync(~0u, up_to - units, holder);
        return base + holder;
      }
      before = __shfl_sync(~0u, up_to, 31);
    }
    *first_unit = before;
    return p_.attention.batch;
  }

  /// `splits_of` returns the sequence's splits. A tile is loaded ahead of the queries, whose buffer the consumers may
  /// still read, except in the first item.
  template <class SplitsOf>
  __device__ __forceinline__ void add_item(int32_t b, const Sequence& s, const Segment& segment, int32_t part,
                                           SplitsOf splits_of) {
    table_ = p_.block_table != nullptr ? p_.block_table + b * p_.attention.block_table_stride : nullptr;
    next_block_ = block_of(s, segment.begin);
    int32_t tile = segment.begin;
    if (q_.count > 0 && tile < segment.end) load(s, tile++, segment);
    smem_.q_ring.await_empty(q_);
    if (lane_ == 0) {
      const Splits splits = splits_of();
      const Item item{b,
                      s.q_begin,
                      s.q_len,
                      s.k_len,
                      segment.begin,
                      segment.end,
                      part - splits.first_part,
                      splits.count,
                      splits.first_part,
                      splits.first_partial};
      smem_.item = item;
      if (splits.count > 1) smem_.split_items[splits_++] = item;
      load_queries(s);
    }
    q_.advance();
    for (; tile < segment.end; ++tile) load(s, tile, segment);
  }

  __device__ __forceinline__ void load_queries(const Sequence& s) {
    auto& full = smem_.q_ring.full_at(q_);
    const int32_t head = place_.first_head, token = s.q_begin + place_.first_token;
    full.arrive_expecting(p_.tile_heads * p_.tile_tokens * (kShape.q_bytes() / kShape.rows));
    for (int c = 0; c < kChunks; ++c)
      hopper::tma_load(smem_.q + c * kShape.q_chunk_bytes(), maps_.q, {0, head, token, c}, full);
  }

  /// Lane i cares for keys 8 i .. 8 i + 7 of a tile, if i < 8.
  __device__ __forceinline__ int32_t key_of(int32_t tile) const {
    return tile * kTileKeys + lane_ * hopper::kGroupRows;
  }

  /// The pool block that holds this lane's keys of a tile.
  __device__ __forceinline__ int32_t block_of(const Sequence& s, int32_t tile) const {
    const int32_t key = key_of(tile);
    if (table_ == nullptr) return s.kv_block;
    return lane_ < kTileKeys / hopper::kGroupRows && key < s.k_len ? table_[p_.by_block_size.divide(key)] : 0;
  }

  /// Where this lane's keys of a tile begin: a row of the maps. Finds the block numbers of the next tile, too.
  __device__ __forceinline__ int32_t row_of(const Sequence& s, int32_t tile, int32_t end) {
    const int32_t key = key_of(tile);
    const int32_t row =
        next_block_ * p_.kv_rows.block_rows +
        (table_ == nullptr ? s.kv_row + key : key - p_.by_block_size.divide(key) * p_.attention.block_size);
    if (tile + 1 < end) next_block_ = block_of(s, tile + 1);
    return row;
  }

  /// Loads a tile, part by part: the rest, which is released first, then the half of the team that computes the scores.
  /// The other half is released before that one, but is no sooner needed. With one row tile memory binds, and is faster
  /// if whole rows are read at once.
  __device__ __forceinline__ void load(const Sequence& s, int32_t tile, const Segment& segment) {
    const int team = (tile - segment.begin) % kTeams;
    const int32_t row = row_of(s, tile, segment.end);
    const bool whole = (tile + 1) * kTileKeys <= s.k_len;
    const int32_t valid = valid_keys(s, tile, whole);
    if (p_.row_tiles == 1) {
      for (auto& part : smem_.kv_ring.parts) part.await_empty(kv_);
    }
    load_part<part_bytes(kRest)>(maps_.rest, kRest, row, valid, whole);
    load_part<part_bytes(0)>(maps_.half, team, row, valid, whole);
    load_part<part_bytes(0)>(maps_.half, 1 - team, row, valid, whole);
    kv_.advance();
  }

  template <int kBytes>
  __device__ __forceinline__ void load_part(const Maps::Keys& maps, int part, int32_t row, int32_t valid,
                                            bool whole) {
    constexpr int kGroups = kTileKeys / hopper::kGroupRows;
    auto& ring = smem_.kv_ring.parts[part];
    ring.await_empty(kv_);
    auto& full = ring.full_at(kv_);
    if (lane_ == 0) full.arrive_expecting(kBytes);
    __syncwarp();
    if (lane_ < kGroups && (!whole || lane_ * hopper::kGroupRows % p_.box_rows == 0)) {
      load_rows(maps, smem_.kv[kv_.stage()] + part_offset(part) + lane_ * (kBytes / kGroups),
                place_.kv_head * p_.kv_rows.head_chunks + part * kHalfChunks, row, valid, whole, full);
    }
    __syncwarp();
  }

  /// How many of this lane's keys of a tile exist.
  __device__ __forceinline__ int32_t valid_keys(const Sequence& s, int32_t tile, bool whole) const {
    return whole ? hopper::kGroupRows : max(0, min(s.k_len - key_of(tile), hopper::kGroupRows));
  }

  /// Loads a box of keys from `row` on, or eight of which the first `valid` exist.
  __device__ __forceinline__ static void load_rows(const Maps::Keys& maps, void* destination, int32_t chunk,
                                                   int32_t row, int32_t valid, bool whole,
                                                   hopper::Mbarrier& full) {
    if (whole) {
      hopper::tma_load_once(destination, maps.rows, {0, 0, chunk, 0, row}, full);
    } else {
      const int32_t from = valid == 0 ? 0 : row;
      hopper::tma_load_once(destination, maps.tail,
                            {0, hopper::kRowBound - valid, chunk, from + valid, hopper::kRowBound}, full);
    }
  }

  const Maps& maps_;
  const KernelParams& p_;
  SharedMemory<kShape>& smem_;
  const Place<kShape>& place_;
  const int lane_;
  const int32_t* table_ = nullptr;
  int32_t next_block_ = 0;  ///< that holds this lane's keys of the tile to load next
  int32_t splits_ = 0;      ///< lane 0
  hopper::RingPlace<1> q_;
  hopper::RingPlace<kShape.slots> kv_;
};

}  // namespace attnbench::sm90_mla
