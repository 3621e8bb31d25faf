// The producer warps. One draws work; another takes it, loads Q, and keeps the rings of K and V tiles filled by the
// copy engine. In some instances other warps follow it and load K and V.
#pragma once

#include <type_traits>

#include "kernels/cuda/common/row_map.cuh"
#include "kernels/cuda/sm90_prefill/cascade_source.cuh"
#include "kernels/cuda/sm90_prefill/scheduler.cuh"
#include "kernels/cuda/sm90_prefill/shape.cuh"
#include "kernels/cuda/sm90_prefill/split_source.cuh"

namespace attnbench::sm90_prefill {

/// A lane's box of a K or V tile: box_rows rows from row `row` of pool block `block` on (packed: block 0, row
/// of the tensor).
struct KvBox {
  int32_t block;
  int32_t row;
  int32_t left;  ///< keys of the sequence from the tile's first on, the same in all lanes
};

/// The block numbers of one sequence's pages, from its last key back. A *window* is so many KV blocks
/// (2^window_shift) that it never has more than 32 pages; page i is in lane i % 32. The window before it
/// comes next, and is fetched a window ahead.
class PagesBefore {
 public:
  __device__ __forceinline__ PagesBefore(const KernelParams& p, int lane) : p_(p), lane_(lane) {}

  /// Begins a sequence, which is row `b` of the block table, with `window`.
  __device__ __forceinline__ void begin(int32_t b, int32_t k_len, int window, int block_n) {
    fetched_ = window;
    next_ = fetch(b, k_len, window, block_n);
  }

  /// Moves to `window`, which is the current one or the one before it.
  __device__ __forceinline__ void move_to(int window) {
    if (window == fetched_) now_ = next_;
  }

  /// Fetches the window before `window`, which is the current one, unless that is done.
  __device__ __forceinline__ void look_ahead(int32_t b, int32_t k_len, int window, int block_n) {
    if (__builtin_expect(window == fetched_ && window > 0, 0)) begin(b, k_len, window - 1, block_n);
  }

  /// The pool block of a page in the window. All lanes call it, each with a page of its own.
  __device__ __forceinline__ int32_t block_of(int32_t page) const {
    return __shfl_sync(~0u, now_, page & 31);
  }

 private:
  /// This lane's entry of `window`; 0 past the sequence's last block.
  __device__ __forceinline__ int32_t fetch(int32_t b, int32_t k_len, int window, int block_n) const {
    const int32_t first = p_.by_block_size.divide((window << p_.window_shift) * block_n);
    const int32_t page = first + ((lane_ - first) & 31);
    return page <= p_.by_block_size.divide(k_len - 1) ? p_.block_table[b * p_.block_table_stride + page] : 0;
  }

  const KernelParams& p_;
  const int lane_;
  int fetched_;  ///< window of next_
  int32_t now_, next_;
};

/// Fetches the maps ahead of their first use, except those that few tiles need.
__device__ __forceinline__ void prefetch_maps(const Maps& maps) {
  hopper::prefetch_map(maps.q);
  hopper::prefetch_map(maps.k.whole);
  hopper::prefetch_map(maps.v.whole);
}

/// The next work is drawn so many KV blocks before a tile's last, in every warp that loads its keys.
inline constexpr int kNearEnd = 2;

/// Loads the K and V tiles of block_n keys. One copy brings box_rows keys: a whole tile where KV is packed or
/// pages allow it, else a page or a part of one. A tile in which a sequence ends comes in groups of 8 rows.
/// Each lane finds the address of one copy, and one lane issues them all. That takes a fifth of the time that
/// it takes if each lane issues its own. Where several warps load tiles, each loads part `own_part` of every tile.
template <Shape kShape>
class KvLoader {
  using D = Derived<kShape>;

 public:
  __device__ __forceinline__ KvLoader(const Maps& maps, const KernelParams& p, SharedMemory<kShape>& smem,
                                      int lane, int own_part = 0)
      : maps_(maps),
        p_(p),
        smem_(smem),
        lane_(lane),
        own_part_(own_part),
        boxes_(D::kPartRows / p.box_rows),
        lane_row_(lane < D::kParts * boxes_ ? lane * p.box_rows : 0),
        pages_(p, lane) {}

  /// Loads the keys and values of a tile of queries. K of each KV block is loaded ahead of V of the previous
  /// block, as the consumers use them. No query sees the first `expired` keys of block n_begin: their pages
  /// are not followed, and their values arrive as zeros. `near_end` runs when it is time to find out what
  /// comes after the tile.
  template <class Action>
  __device__ __forceinline__ void load(int n_begin, int n_end, int k_len, int expired, int kv_base,
                                       int kv_head, Action near_end) {
    if (n_begin >= n_end) {
      near_end();
      return;
    }
    if (p_.block_table != nullptr)
      pages_.begin(kv_base, k_len, (n_end - 1) >> p_.window_shift, kShape.block_n);
    KvBox box{};
    for (int n = n_end - 1;; --n) {
      if (n == min(n_begin + kNearEnd, n_end - 1)) near_end();
      KvBox next{};
      if (n >= n_begin) {
        next = locate(k_len, kv_base, n);
        load_k(next, n == n_begin ? expired : 0, kv_head);
        if (p_.block_table != nullptr) {  // after the first copies, which it would delay
          pages_.look_ahead(kv_base, k_len, n >> p_.window_shift, kShape.block_n);
        }
      }
      if (n < n_end - 1) load_v(box, n < n_begin ? expired : 0, kv_head);
      if (n < n_begin) break;
      box = next;
    }
  }

 private:
  /// This lane's box of KV block n.
  __device__ __forceinline__ KvBox locate(int k_len, int kv_base, int n) {
    const int left = k_len - n * kShape.block_n;
    const int row = n * kShape.block_n + lane_row_;
    if (p_.block_table == nullptr) return {0, kv_base + row, left};
    pages_.move_to(n >> p_.window_shift);
    const int32_t page = p_.by_block_size.divide(row);
    return {pages_.block_of(page), row - page * p_.block_size, left};
  }

  __device__ __forceinline__ void load_k(const KvBox& box, int expired, int kv_head) {
    if constexpr (D::kConvertsK) {
      load_tile<false>(smem_.landing.k_ring, k_, smem_.landed_k.parts, maps_.k, p_.k_rows, kv_head, box,
                       expired);
    } else {
      load_tile<false>(smem_.k_ring, k_, smem_.k, maps_.k, p_.k_rows, kv_head, box, expired);
    }
  }

  __device__ __forceinline__ void load_v(const KvBox& box, int expired, int kv_head) {
    if constexpr (kShape.e4m3_kv) {
      load_tile<true>(smem_.landing.v_ring, v_, smem_.landed_v.parts, maps_.v, p_.v_rows, kv_head, box,
                      expired);
    } else {
      load_tile<true>(smem_.v_ring, v_, smem_.v, maps_.v, p_.v_rows, kv_head, box, expired);
    }
  }

  /// Loads the parts of a tile into the next buffers of a ring. A buffer holds one part or all of them.
  template <bool kIsV, int kStages, int kBytes>
  __device__ __forceinline__ void load_tile(hopper::Ring<kStages>& ring, hopper::RingPlace<kStages>& place,
                                            uint8_t (&buffers)[kStages][kBytes], const KvMaps& maps,
                                            const KvRows& rows, int kv_head, const KvBox& box, int expired) {
    constexpr int kPartBytes = D::template kPartBytes<kIsV>;
    constexpr int kPartsInBuffer = kBytes / kPartBytes;
    static_assert(kPartsInBuffer == 1 || kPartsInBuffer == D::kParts);
    constexpr int kOwnParts = kShape.gathers ? 1 : D::kParts;
#pragma unroll
    for (int i = 0; i < kOwnParts; ++i) {
      const int part = kShape.gathers ? own_part_ : i;
      const int first = part * D::kPartRows;
      const int place_in_buffer = part % kPartsInBuffer;
      if (kOwnParts == 1 || place_in_buffer == 0) ring.await_empty(place);  // a fresh ring is empty
      copy<kIsV>(buffers[place.stage()] + place_in_buffer * kPartBytes, part, maps, rows, kv_head,
                 {box.block, box.row, box.left - first}, expired - first, ring.full[place.stage()]);
      if (kOwnParts == 1 || place_in_buffer == kPartsInBuffer - 1) place.advance();
    }
  }

  /// Fills `tile` with part `part` of a tile, and announces it on `full`. The last readers of the buffer have
  /// arrived at its barrier. The whole part counts, rows that arrive as zeros included. `box.left` and
  /// `expired` count from the part's first row.
  template <bool kIsV>
  __device__ __forceinline__ void copy(uint8_t* tile, int part, const KvMaps& maps, const KvRows& rows,
                                       int kv_head, const KvBox& box, int expired,
                                       hopper::Mbarrier& full) const {
    if (lane_ == 0) full.arrive_expecting(D::template kPartBytes<kIsV>);
    __syncwarp();
    const hopper::RowMap window{maps.window, rows};
    const int32_t lane_row = window.row_of(box.block, box.row);
    const int32_t chunk = window.chunk_of(kv_head);
    const int32_t box_bytes = p_.box_rows / hopper::kGroupRows * D::template kLandedGroupBytes<kIsV>;
    const int first_box = part * boxes_;
    const bool issues = hopper::elect_lane();
    if (__builtin_expect(box.left < D::kPartRows || (D::kTakesWindows && expired > 0), 0)) {
      copy_groups<kIsV>(tile, first_box, window, lane_row, box.left, expired, chunk, issues, full);
      return;
    }
    if (p_.box_rows == D::kPartRows) {
      copy_box(tile, maps.whole, chunk, __shfl_sync(~0u, lane_row, first_box), issues, full);
      return;
    }
#pragma unroll 2
    for (int i = first_box; i < first_box + boxes_; ++i, tile += box_bytes) {
      copy_box(tile, maps.whole, chunk, __shfl_sync(~0u, lane_row, i), issues, full);
    }
  }

  __device__ __forceinline__ void copy_box(uint8_t* destination, const CUtensorMap& map, int32_t chunk,
                                           int32_t row, bool issues, hopper::Mbarrier& full) const {
    if (issues) hopper::tma_load(destination, map, {0, 0, chunk, 0, row}, full);
  }

  /// Copies a part in which the sequence ends, or in which the keys that its queries see begin.
  template <bool kIsV>
  __device__ __forceinline__ void copy_groups(uint8_t* tile, int first_box, const hopper::RowMap& window,
                                              int32_t lane_row, int32_t left, int32_t expired, int32_t chunk,
                                              bool issues, hopper::Mbarrier& full) const {
#pragma unroll 1
    for (int i = first_box; i < first_box + boxes_; ++i) {
      int32_t row = __shfl_sync(~0u, lane_row, i);
#pragma unroll 1
      for (int r = 0; r < p_.box_rows; r += hopper::kGroupRows) {
        // Values before the first key that a query sees must be zeros. Keys there may be anything, because
        // their scores are not used.
        const int32_t lead = kIsV && D::kTakesWindows && expired < hopper::kGroupRows ? max(0, expired) : 0;
        if (kIsV && D::kTakesWindows && D::kChunkBytes == hopper::kChunkBytes && lead > 0 &&
            left < hopper::kGroupRows) {
          copy_rows(tile, row, left, expired, chunk, issues, full);
        } else if (kIsV && D::kTakesWindows && lead > 0) {
          if (issues) window.load_behind(tile, chunk, row, lead, full);
        } else if (issues) {
          // A group of expired keys arrives as zeros, wherever its row is.
          const int32_t valid =
              D::kTakesWindows && expired >= hopper::kGroupRows ? 0 : max(0, min(left, hopper::kGroupRows));
          window.load(tile, chunk, row, valid, full);
        }
        tile += D::template kLandedGroupBytes<kIsV>;
        row += hopper::kGroupRows;
        left -= hopper::kGroupRows;
        if constexpr (D::kTakesWindows) expired -= hopper::kGroupRows;
      }
    }
  }

  /// Copies a group row by row, in which the keys that a query sees begin and the sequence ends. All other
  /// rows are zeros. The copy engine writes to multiples of 128 bytes: see supports() for narrower chunks.
  __device__ __forceinline__ void copy_rows(uint8_t* group, int32_t row, int32_t left, int32_t expired,
                                            int32_t chunk, bool issues, hopper::Mbarrier& full) const {
    const hopper::RowMap chunk_of_row{maps_.v_row, p_.v_rows};
#pragma unroll 1
    for (int r = 0; r < hopper::kGroupRows; ++r) {
      const int32_t valid = r >= expired && r < left ? 1 : 0;
#pragma unroll 1
      for (int c = 0; c < D::template kLandedChunks<true>; ++c) {
        if (issues) {
          chunk_of_row.load(group + c * D::kAtomBytes + r * D::kChunkBytes, chunk + c, row + r, valid, full);
        }
      }
    }
  }

  const Maps& maps_;
  const KernelParams& p_;
  SharedMemory<kShape>& smem_;
  const int lane_;
  const int own_part_;
  const int boxes_;     ///< copies of a part, each of all its chunks
  const int lane_row_;  ///< row in the tile of this lane's copy
  hopper::RingPlace<D::kConvertsK ? D::kLandedStages : D::kKStages> k_;
  hopper::RingPlace<kShape.e4m3_kv ? D::kLandedStages : D::kVStages> v_;
  PagesBefore pages_;
};

/// The scheduling warp: draws work when the warps that load K and V come near the end of the previous tile.
template <Shape kShape>
__device__ __forceinline__ void schedule(const KernelParams& p, SharedMemory<kShape>& smem, int lane) {
  using Cascade = CascadeSource<kShape.block_n, !Derived<kShape>::kHasGuests>;
  using Splits = std::conditional_t<kShape.cascade, Cascade, SplitSource<kShape.block_n>>;
  using Works = WorkSource<kShape.block_n, kShape.listed>;
  std::conditional_t<kShape.split && !kShape.listed, Splits, Works> source(p, smem.notes, lane);
  for (uint32_t parity = 1;; parity ^= 1) {
    const bool more = source.has_work();
    WorkItem item{};
    item.head = -1;  // the end
    if (more) item = source.item();
    smem.next_empty.wait(parity);
    if (lane == 0) {
      smem.next_item = item;
      smem.next_full.arrive();
    }
    if (!more) {
      cudaGridDependencySynchronize();  // blocks without work too: what comes next must find the counter set
      break;
    }
    // The next work is drawn only now: blocks that hoard work are slower, by 3 to 7 %.
    smem.next_empty.wait(parity ^ 1);
    source.draw();
  }
}

/// Calls `load(item, near_end)` for each item, in a warp that follows the first producer. The next work is drawn when
/// the first producer and all followers have called near_end.
template <Shape kShape, class Action>
__device__ __forceinline__ void follow(SharedMemory<kShape>& smem, int lane, Action load) {
  for (uint32_t parity = 0;; parity ^= 1) {
    smem.next_full.wait(parity);
    const WorkItem item = take_item(smem.next_item, lane);
    if (item.head < 0) return;
    load(item, [&] {
      if (lane == 0) smem.next_empty.arrive();
    });
  }
}

/// Loads part `own_part` of all tiles of K and V in the place of the first producer.
template <Shape kShape>
__device__ __forceinline__ void load_tiles(const Maps& maps, const KernelParams& p,
                                           SharedMemory<kShape>& smem, int lane, int own_part = 0) {
  KvLoader<kShape> loader(maps, p, smem, lane, own_part);
  follow(smem, lane, [&](const WorkItem& item, auto near_end) {
    loader.load(item.n_begin, item.n_end, item.k_len, item.expired, item.kv_base,
                p.by_head_tiles_per_kv_head.divide(item.head), near_end);
  });
}

/// The barrier on which a tile of queries arrives from the copy engine.
template <Shape kShape>
__device__ __forceinline__ hopper::Mbarrier& landed_queries(SharedMemory<kShape>& smem, uint32_t stage) {
  if constexpr (kShape.e4m3_kv) {
    return smem.landing.q_full[stage];
  } else {
    return smem.q_ring.full[stage];
  }
}

/// Takes the next item, publishes it at place `q`, and loads its queries.
template <Shape kShape>
__device__ __forceinline__ WorkItem load_queries(const Maps& maps, const KernelParams& p,
                                                 SharedMemory<kShape>& smem,
                                                 const hopper::RingPlace<kShape.q_stages>& q, uint32_t parity,
                                                 int lane) {
  using D = Derived<kShape>;
  // The item is written before the arrival that publishes it, and after its stage's last readers arrived.
  smem.q_ring.await_empty(q);
  smem.next_full.wait(parity);
  const WorkItem item = take_item(smem.next_item, lane);
  const bool sees_keys = item.n_begin < item.n_end;
  hopper::Mbarrier& full = landed_queries(smem, q.stage());
  if (lane == 0) {
    smem.item[q.stage()] = item;
    if (sees_keys) {
      full.arrive_expecting(D::kChunks * p.tokens_per_tile * p.heads_per_tile * D::kChunkBytes);
    } else {
      full.arrive();
    }
  }
  __syncwarp();
  if (sees_keys && hopper::elect_lane()) {
#pragma unroll
    for (int c = 0; c < D::kChunks; ++c) {
      hopper::tma_load(smem.q[q.stage()] + c * D::kQChunkBytes, maps.q,
                       {0, item.head * p.heads_per_tile, item.q_row, c}, full);
    }
  }
  __syncwarp();
  return item;
}

/// The first producer warp, for the life of the block: takes work, and loads Q, K and V.
template <Shape kShape>
__device__ __forceinline__ void produce(const Maps& maps, const KernelParams& p, SharedMemory<kShape>& smem,
                                        int lane) {
  KvLoader<kShape> loader(maps, p, smem, lane);
  hopper::RingPlace<kShape.q_stages> q;
  for (uint32_t parity = 0;; parity ^= 1) {
    const WorkItem item = load_queries(maps, p, smem, q, parity, lane);
    if (item.head < 0) break;
    q.advance();
    if constexpr (kShape.gathers) {  // other warps load K and V
      if (lane == 0) smem.next_empty.arrive();
      continue;
    }
    loader.load(item.n_begin, item.n_end, item.k_len, item.expired, item.kv_base,
                p.by_head_tiles_per_kv_head.divide(item.head), [&] {
                  if (lane == 0) smem.next_empty.arrive();
                });
  }
}

}  // namespace attnbench::sm90_prefill
