// The producer warps. Each walks the part's sequences and keeps its slots of the ring filled by the copy
// engine. Either one warp fills all slots, or one fills those of K and another those of V.
#pragma once

#include "kernels/cuda/common/announce.cuh"
#include "kernels/cuda/common/row_map.cuh"
#include "kernels/cuda/sm90_decode/append.cuh"
#include "kernels/cuda/sm90_decode/handover.cuh"
#include "kernels/cuda/sm90_decode/pace.cuh"
#include "kernels/cuda/sm90_decode/shape.cuh"
#include "kernels/cuda/sm90_decode/start.cuh"

namespace attnbench::sm90_decode {

/// The block numbers of one sequence's pages from its first key on, 64 at a time. Lane i holds those of pages
/// first_ + i and first_ + 32 + i. The second 32 are fetched while tiles of the first 32 are loaded.
class PagesAhead {
 public:
  __device__ __forceinline__ PagesAhead(const KernelParams& p, int lane) : p_(p), lane_(lane) {}

  /// Fetches the pages with which a part will begin if `guess` is right.
  __device__ __forceinline__ void expect(const Guess& guess, int32_t tile_tokens) {
    if (p_.block_table == nullptr || guess.b >= p_.batch) return;
    guessed_b_ = guess.b;
    guessed_page_ = page_of(guess.tile * tile_tokens);
    // The entry is in the row of the table, but maybe past the sequence's last block. Such entries are not
    // used.
    if (guessed_page_ + lane_ < p_.block_table_stride) {
      guessed_ = p_.block_table[guess.b * p_.block_table_stride + guessed_page_ + lane_];
    }
  }

  /// The pool block of page `page` of the guess's first tile. All lanes call it.
  __device__ __forceinline__ int32_t guessed_block_of(int32_t page) const {
    return __shfl_sync(~0u, guessed_, (page - guessed_page_) & 31);
  }

  /// Begins a sequence at the page of key `key`. Its pages and keys count from its `shared_keys`-th key on.
  __device__ __forceinline__ void begin(int32_t b, int32_t k_len, int32_t key, int32_t shared_keys) {
    if (p_.block_table == nullptr) return;
    table_ = p_.block_table + b * p_.block_table_stride + page_of(shared_keys);
    pages_ = page_of(k_len - 1) + 1;
    first_ = page_of(key);
    low_ = b == guessed_b_ && first_ == guessed_page_ ? guessed_ : fetch(first_);
  }

  /// Fetches the second 32 pages. Called after the sequence's first tile, which needs only the first 32.
  __device__ __forceinline__ void look_ahead() {
    if (p_.block_table != nullptr) high_ = fetch(first_ + 32);
  }

  /// Prepares for a tile whose first key is `key`. Keys never go back.
  __device__ __forceinline__ void advance_to(int32_t key) {
    if (p_.block_table == nullptr || page_of(key) < first_ + 32) return;
    first_ += 32;  // a tile has at most 8 pages: no step is skipped
    low_ = high_;
    high_ = fetch(first_ + 32);
  }

  __device__ __forceinline__ int32_t page_of(int32_t key) const { return p_.by_block_size.divide(key); }

  /// The pool block of page `page` of the tile. All lanes call it, each with a page of its own.
  __device__ __forceinline__ int32_t block_of(int32_t page) const {
    const int32_t i = page - first_;
    int32_t block = __shfl_sync(~0u, low_, i & 31);
    if (__any_sync(~0u, i >= 32)) {  // high_ is not used before it is needed: it may still be in flight
      const int32_t high = __shfl_sync(~0u, high_, i & 31);
      if (i >= 32) block = high;
    }
    return block;
  }

 private:
  /// This lane's entry of the 32 from page `page` on; 0 past the sequence's last block.
  __device__ __forceinline__ int32_t fetch(int32_t page) const {
    return page + lane_ < pages_ ? table_[page + lane_] : 0;
  }

  const KernelParams& p_;
  const int lane_;
  const int32_t* table_ = nullptr;
  int32_t pages_ = 0;
  int32_t first_ = 0;
  int32_t low_ = 0, high_ = 0;
  int32_t guessed_b_ = -1, guessed_page_ = 0, guessed_ = 0;
};

/// What a warp that walks the part's sequences loads.
enum class Loads { kKeys, kValues, kBoth, kScales };

/// One producer warp, for the life of the block. It walks the part's sequences and loads the ring's slots,
/// which alternate between K and V. The derived class does what else a segment needs.
template <Shape kShape, Loads kLoads, class Derivation>
class Producer {
  using D = Derived<kShape>;

 public:
  __device__ __forceinline__ Producer(const CUtensorMap& map_k, const CUtensorMap& map_v,
                                      const KernelParams& p, SharedMemory<kShape>& smem, int kv_head,
                                      int lane, PagesAhead& pages, const NewTokens<kShape.append>& new_tokens)
      : p_(p),
        smem_(smem),
        kv_head_(kv_head),
        lane_(lane),
        new_tokens_(new_tokens),
        map_k_(map_k),
        map_v_(map_v),
        pages_(pages) {}

 protected:
  template <class P>
  __device__ __forceinline__ void walk(const Partition& partition, int32_t part, const Start& start,
                                       P& pace) {
    auto& derived = static_cast<Derivation&>(*this);
    const int32_t part_end = (part + 1) * partition.units_per_part;
    int32_t b = start.b;
    int32_t first_unit = start.first_unit;
    Sequence sequence = start.sequence;
    // `following` holds the sequences from `known` on, one per lane.
    int32_t known = b + 1;
    Entry following{};
    bool loaded = false;
    const auto load_following = [&] {
      following = load_own_entry<kShape>(p_, smem_, known + lane_, p_.batch);
      if constexpr (kShape.append) new_tokens_.load_of_lane(p_, known + lane_);
      loaded = true;
    };
    for (;;) {
      const TileRange tiles = tiles_of<kShape>(p_, sequence);
      const int32_t count = tiles.end - tiles.begin;
      const int32_t blocks = units_of_tiles(count, p_.unit_shift);
      const int32_t units = sequence_units(sequence.q_len, blocks, p_.segment_cost);
      if (units > 0) {
        const Segment segment = segment_of(partition, part, first_unit, blocks);
        int32_t from = segment.begin;
        for (bool more = segment.exists; more; more = from < segment.end) {
          const int32_t to = p_.split_every_unit ? min(from + 1, segment.end) : segment.end;
          const int32_t begin = tiles.begin + (from << p_.unit_shift);
          const int32_t end = tiles.begin + min(to << p_.unit_shift, count);
          if (!begun_) derived.begin_segment(sequence, begin < end);
          if (begin < end) {
            pages_.begin(b, sequence.k_len, begin * kShape.tile_tokens,
                         kShape.suffixes ? smem_.shared_keys : 0);
            if (begun_) {
              kv_.advance();
              kv_.advance();
            } else {
              load_tile(sequence, begin);
            }
            pages_.look_ahead();
          }
          begun_ = false;
          // Published after the first copies, because it takes divisions.
          derived.publish_segment(partition, part, b, sequence, first_unit, blocks, from, {begin, end});
          if (!loaded && known < p_.batch) load_following();
          pace.add_sequence();
          for (int32_t tile = begin + 1; tile < end; ++tile) {
            pace.add_tile();
            load_tile(sequence, tile);
          }
          from = to;
        }
      }
      first_unit += units;
      if (first_unit >= part_end || ++b >= p_.batch) break;
      if (b - known == 32) {
        known = b;
        loaded = false;
      }
      if (!loaded) load_following();
      sequence = from_lane(p_, following, b - known);
      if constexpr (kShape.append) new_tokens_.take_from_lane(b - known);
    }
  }

  const KernelParams& p_;
  SharedMemory<kShape>& smem_;
  const int kv_head_;
  const int lane_;
  NewTokens<kShape.append> new_tokens_;  ///< new tokens of the current sequence
  bool begun_ = false;                   ///< copies of the first tile and its queries are issued already

 private:
  /// Loads this warp's share of a tile: one copy per box of box_rows keys, each issued by a lane of its own.
  __device__ __forceinline__ void load_tile(const Sequence& s, int32_t tile) {
    const bool issues = lane_ * p_.box_rows < kShape.tile_tokens;
    const int32_t key = tile * kShape.tile_tokens + (issues ? lane_ * p_.box_rows : 0);
    // Rows from k_len on and new rows are not valid in the box: they arrive as zeros, and their page is not
    // looked at.
    int32_t end = s.k_len;
    bool has_new = false;
    if constexpr (kShape.append) {
      end = new_tokens_.old_len(end);
      has_new = holds_new<kShape>(tile, end, s.k_len);
    }
    int32_t valid = max(0, min(end - key, p_.box_rows));
    // Boxes that no query sees are not read either: their pages may have been freed.
    if (key + p_.box_rows <= visible_keys_of_sequence(p_.window_left, s.q_len, s.k_len).begin) valid = 0;
    int32_t block = s.kv_block;
    int32_t row = s.kv_row + key;
    if (p_.block_table != nullptr) {
      pages_.advance_to(tile * kShape.tile_tokens);
      const int32_t page = pages_.page_of(key);
      block = pages_.block_of(page);
      row = key - page * p_.block_size;
    }
    if (valid == 0) block = row = 0;
    if constexpr (kLoads == Loads::kScales) {
      static_cast<Derivation&>(*this).load_scales(block, row, issues ? valid : 0);
      return;
    }
    if constexpr (kLoads != Loads::kValues) {
      fill_slot({map_k_, p_.k_rows}, block, row, valid, issues, has_new);
    } else {
      kv_.advance();
    }
    if constexpr (kLoads != Loads::kKeys) {
      fill_slot({map_v_, p_.v_rows}, block, row, valid, issues, has_new);
    } else {
      kv_.advance();
    }
  }

  __device__ __forceinline__ void fill_slot(const hopper::RowMap& rows, int32_t block, int32_t row,
                                            int32_t valid, bool issues, bool has_new) {
    if constexpr (kShape.append) {
      fill_slot(rows, block, row, valid, issues, landing_of_tile<kShape>(smem_, kv_.stage(), has_new));
    } else {
      fill_slot(rows, block, row, valid, issues, smem_.kv_ring.full[kv_.stage()]);
    }
  }

  __device__ __forceinline__ void fill_slot(const hopper::RowMap& rows, int32_t block, int32_t row,
                                            int32_t valid, bool issues, hopper::Mbarrier& full) {
    smem_.kv_ring.await_empty(kv_);
    // The whole slot counts, rows that arrive as zeros included.
    if (lane_ == 0) full.arrive_expecting(D::kSlotBytes);
    __syncwarp();
    if (issues) {
      constexpr int32_t kBoxChunks = kShape.joint ? 1 : D::kKvChunks;
      const int32_t offset = lane_ * p_.box_rows * (kBoxChunks * D::kKvChunkBytes);
      const int32_t copies = kShape.joint && p_.box_rows < kShape.tile_tokens ? D::kKvChunks : 1;
#pragma unroll
      for (int32_t c = 0; c < (kShape.joint ? D::kKvChunks : 1); ++c) {
        if (c >= copies) break;
        rows.load_once(smem_.kv[kv_.stage()] + offset + c * (kShape.tile_tokens * D::kKvChunkBytes),
                       rows.chunk_of(kv_head_) + c, rows.row_of(block, row), valid, full);
      }
    }
    __syncwarp();
    kv_.advance();
  }

  const CUtensorMap& map_k_;
  const CUtensorMap& map_v_;
  PagesAhead& pages_;
  hopper::RingPlace<kShape.slots> kv_;
};

/// What the first producer warp loads besides the queries.
template <Shape kShape>
inline constexpr Loads kFirstLoads = Derived<kShape>::kProducerWarps == 1 ? Loads::kBoth : Loads::kKeys;

/// Loads queries and its share of K and V (kFirstLoads), and publishes items to the consumers.
template <Shape kShape>
class FirstProducer : public Producer<kShape, kFirstLoads<kShape>, FirstProducer<kShape>> {
  using D = Derived<kShape>;
  using Base = Producer<kShape, kFirstLoads<kShape>, FirstProducer<kShape>>;
  friend Base;

 public:
  __device__ __forceinline__ FirstProducer(const CUtensorMap& map_q, const CUtensorMap& map_k,
                                           const CUtensorMap& map_v, const KernelParams& p,
                                           SharedMemory<kShape>& smem, int kv_head, int lane,
                                           PagesAhead& pages, const NewTokens<kShape.append>& new_tokens = {})
      : Base(map_k, map_v, p, smem, kv_head, lane, pages, new_tokens), map_q_(map_q) {}

  /// `work`: whether the part has work. `start`: where it then begins. `begun`: whether the copies of its
  /// first tile and queries are issued already.
  __device__ __forceinline__ void run(const Partition& partition, int32_t part, bool work, const Start& start,
                                      bool begun) {
    this->begun_ = begun;
    PaceOf<kShape> pace(this->p_, partition, this->lane_);
    if (work) this->walk(partition, part, start, pace);
    await_stage();
    publish(ItemOf<kShape>{});  // the end
    pace.end();
  }

 private:
  __device__ __forceinline__ void begin_segment(const Sequence& sequence, bool has_tiles) {
    await_stage();
    if (has_tiles) load_queries(sequence);
  }

  /// Publishes an item with the units from `from` on of the sequence whose units begin at `first_unit`.
  /// `blocks` is the number of the sequence's units without segment_cost.
  __device__ __forceinline__ void publish_segment(const Partition& partition, int32_t part, int32_t b,
                                                  const Sequence& sequence, int32_t first_unit,
                                                  int32_t blocks, int32_t from, const TileRange& tiles) {
    Item item{.b = b,
              .q_begin = sequence.q_begin,
              .q_len = sequence.q_len,
              .k_len = sequence.k_len,
              .tile_begin = tiles.begin,
              .tile_end = tiles.end};
    if (this->p_.split_every_unit) {
      item.split = from;
      item.num_splits = max(blocks, 1);
      item.first_partial = item.other_partial = first_unit;
    } else {
      const Splits splits = splits_of(partition, first_unit, blocks);
      item.split = part - splits.first_part;
      item.num_splits = splits.count;
      item.first_partial = D::kFirstWaits && splits.count <= 1 + kMostStates ? -1 : splits.first_partial;
      item.other_partial = partial_of(splits.first_part, 0, 1) - kPartialStep;
    }
    if constexpr (kShape.append) {
      publish(this->new_tokens_.described(item));
    } else {
      publish(item);
    }
  }

  /// Waits until the consumers are done with this stage's item and queries; a fresh ring is empty.
  __device__ __forceinline__ void await_stage() { this->smem_.q_ring.await_empty(q_); }

  /// Issues the copies of the queries: as many rows as the longest sequence of the launch has. e4m3 queries have
  /// half of the chunks; the others arrive as zeros, which no warp reads. Rows past this
  /// sequence's own belong to another sequence or are zeros, and their results are not used.
  __device__ __forceinline__ void load_queries(const Sequence& s) {
    if (this->lane_ == 0) {
      hopper::Mbarrier& full = landing_of_queries<kShape>(this->smem_, q_.stage());
      announce_queries<kShape>(full, D::kQChunks * this->p_.max_rows * hopper::kChunkBytes);
#pragma unroll
      for (int c = 0; c < D::kQChunks; ++c) {
        hopper::tma_load(this->smem_.q[q_.stage()] + c * D::kQChunkBytes, map_q_,
                         {0, this->kv_head_ * this->p_.group, s.q_begin, c}, full);
      }
    }
    __syncwarp();
  }

  /// Publishes an item to the consumers. It is written before the arrival that publishes it.
  __device__ __forceinline__ void publish(const ItemOf<kShape>& item) {
    if (this->lane_ == 0) {
      this->smem_.item[q_.stage()] = item;
      landing_of_item<kShape>(this->smem_, q_.stage()).arrive();
    }
    __syncwarp();
    q_.advance();
  }

  const CUtensorMap& map_q_;
  hopper::RingPlace<kQStages> q_;
};

/// A warp that walks beside the first producer and only loads.
template <Shape kShape, Loads kLoads, class Derivation>
class Follower : public Producer<kShape, kLoads, Derivation> {
  using Base = Producer<kShape, kLoads, Derivation>;
  friend Base;

 public:
  using Base::Base;

  __device__ __forceinline__ void run(const Partition& partition, int32_t part, bool work,
                                      const Start& start) {
    NoPace pace;
    if (work) this->walk(partition, part, start, pace);
  }

 private:
  __device__ __forceinline__ void begin_segment(const Sequence&, bool) {}
  __device__ __forceinline__ void publish_segment(const Partition&, int32_t, int32_t, const Sequence&,
                                                  int32_t, int32_t, int32_t, const TileRange&) {}
};

/// Loads V.
template <Shape kShape>
class ValueProducer : public Follower<kShape, Loads::kValues, ValueProducer<kShape>> {
 public:
  using Follower<kShape, Loads::kValues, ValueProducer<kShape>>::Follower;
};

}  // namespace attnbench::sm90_decode
