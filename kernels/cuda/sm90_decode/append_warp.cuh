// The append warp. It rotates queries and new keys, writes new rows into their tiles and into the cache, and
// hands on what it has completed. The consumers' code does not know of it.
//
// The time of this warp counts in a launch of a few microseconds. So it requests its first rows and angles by
// the host's guess of the lengths, before the lengths have arrived. Its loops are not unrolled: code that
// runs once should be fetched once.
#pragma once

#include <cuda/ptx>

#include "kernels/cuda/common/registers.cuh"
#include "kernels/cuda/common/shared_memory.cuh"
#include "kernels/cuda/sm90_decode/append.cuh"
#include "kernels/cuda/sm90_decode/shape.cuh"
#include "kernels/cuda/sm90_decode/start.cuh"

namespace attnbench::sm90_decode {

using hopper::load_unit;
using hopper::load_word;
using hopper::store_unit;
using hopper::store_word;

/// Address of 16-byte unit `unit` (8 channels) of row `row`, where rows lie 128 bytes apart. The unit is in
/// chunk unit / 8, and swizzled by the row's number.
__device__ __forceinline__ uint32_t unit_of_row(uint32_t rows, uint32_t chunk_stride, int row, int unit) {
  return rows + unit / 8 * chunk_stride + row * hopper::kChunkBytes + (unit % 8 ^ row % 8) * 16;
}

/// regroup() moves the first numbers of the pairs in 8 neighbouring words to `a` and the second ones to `b`.
/// ungroup() undoes that.
__device__ __forceinline__ void regroup(uint4& a, uint4& b) {
  const auto first = [](uint32_t x, uint32_t y) { return __byte_perm(x, y, 0x5410); };
  const auto second = [](uint32_t x, uint32_t y) { return __byte_perm(x, y, 0x7632); };
  const uint4 x = a, y = b;
  a = make_uint4(first(x.x, x.y), first(x.z, x.w), first(y.x, y.y), first(y.z, y.w));
  b = make_uint4(second(x.x, x.y), second(x.z, x.w), second(y.x, y.y), second(y.z, y.w));
}
__device__ __forceinline__ void ungroup(uint4& a, uint4& b) {
  const auto low = [](uint32_t x, uint32_t y) { return __byte_perm(x, y, 0x5410); };
  const auto high = [](uint32_t x, uint32_t y) { return __byte_perm(x, y, 0x7632); };
  const uint4 x = a, y = b;
  a = make_uint4(low(x.x, y.x), high(x.x, y.x), low(x.y, y.y), high(x.y, y.y));
  b = make_uint4(low(x.z, y.z), high(x.z, y.z), low(x.w, y.w), high(x.w, y.w));
}

template <Shape kShape>
class AppendWarp {
  using D = Derived<kShape>;
  static constexpr int kWords = kShape.head_dim / 64;  ///< words of a row per lane: words lane + 32 * j

 public:
  __device__ __forceinline__ AppendWarp(const KernelParams& p, SharedMemory<kShape>& smem, int kv_head,
                                        int lane)
      : p_(p),
        a_(p.attention),
        smem_(smem),
        append_(append_memory<kShape>(smem)),
        kv_head_(kv_head),
        lane_(lane) {
    if (rotates()) {
      const int vectors = a_.rotary.dim / 16;  // lanes that rotate one row, 8 pairs each: a power of two
      vector_ = lane % vectors;
      row_ = lane / vectors;
      rows_at_once_ = 32 / vectors;
    }
  }

  /// Each *turn* of the loop handles one new row. First come the rows of the block's segments, as the
  /// producer publishes them, then the rows that lie in no tile. A turn before them, by the host's guess,
  /// only requests data. All turns share one loop, so that its code is fetched once.
  __device__ __forceinline__ void run(int32_t part, const Guess& guess) {
    unseen_next_ = part;
    Turn turn = guessed_turn(guess);
#pragma unroll 1
    do {
      ask_for(turn);
      if (turn.stage != Stage::kGuess) {
        if (turn.has_row()) place_ = place_of(turn.item.b, turn.row);
        make_ready(turn);
        if (turn.has_row()) put(turn);
      }
    } while (advance(turn));
  }

 private:
  static constexpr int32_t kTile = kShape.tile_tokens;

  enum class Stage { kGuess, kSegments, kUnseen };

  /// A new row, or none, and the queries that are handed over before it.
  struct Turn {
    Stage stage;
    AppendItem item;           ///< the row's segment; kUnseen: its sequence, without tiles
    int32_t row, first, last;  ///< the current row, and the rows [first, last) that it is one of

    __device__ __forceinline__ bool has_row() const { return row < last; }
    /// A segment's first turn hands its queries over, even if the segment has no new row.
    __device__ __forceinline__ bool has_queries() const { return stage == Stage::kSegments && row == first; }
  };

  /// The first row that the block will have if the host's guess of the lengths is right.
  __device__ __forceinline__ Turn guessed_turn(const Guess& guess) const {
    Turn turn{};
    turn.row = max(p_.max_seqlen_k - p_.max_seqlen_q, 0);
    turn.last = a_.total_new > 0 ? p_.max_seqlen_k : 0;
    turn.item.q_len = p_.max_seqlen_q;
    turn.item.k_len = p_.max_seqlen_k;
    const auto last_new = static_cast<int32_t>(a_.total_new) - 1;
    turn.item.new_end = turn.item.k_len - turn.row + min(guess.b * p_.max_seqlen_q, last_new);
    return turn;
  }

  /// Moves on to the next row of the segment, the next segment, or the next row in no tile. Returns false at
  /// the end.
  __device__ __forceinline__ bool advance(Turn& turn) {
    if (turn.stage != Stage::kGuess) {
      if (turn.has_row() && ++turn.row < turn.last) return true;
      slots_ += 2 * (turn.item.tile_end - turn.item.tile_begin);
    }
    if (turn.stage != Stage::kUnseen && take_segment(turn)) return true;
    return find_unseen(turn);
  }

  /// Waits for the producer's next item. Returns false if that is the end.
  __device__ __forceinline__ bool take_segment(Turn& turn) {
    append_.item_full[q_.stage()].wait(q_.parity());
    turn.item = smem_.item[q_.stage()];
    if (turn.item.num_splits == 0) {
      turn.stage = Stage::kUnseen;
      hand_over(smem_.q_ring.full_at(q_));
      return false;
    }
    turn.stage = Stage::kSegments;
    turn.row = turn.first = max(turn.item.old_len, turn.item.tile_begin * kTile);
    turn.last = min(turn.item.k_len, turn.item.tile_end * kTile);
    return true;
  }

  /// Requests a turn's key, value and angles, unless they are here already.
  __device__ __forceinline__ void ask_for(const Turn& turn) {
    const int32_t token = turn.item.new_end - turn.item.k_len + turn.row;
    if (turn.has_row() && token != asked_) ask(token);
    if (!rotates()) return;
    const bool queries_first = turn.has_queries() || turn.stage == Stage::kGuess;
    find_angles(queries_first ? turn.item.k_len - turn.item.q_len : turn.row);
  }

  __device__ __forceinline__ bool rotates() const { return (a_.features & kRotary) != 0; }

  /// Arrives once for the whole warp, after its writes to shared memory. The fence is needed because the copy
  /// engine later writes over the same place; consumers read it before.
  __device__ __forceinline__ void hand_over(hopper::Mbarrier& full) const {
    cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
    __syncwarp();
    if (lane_ == 0) full.arrive();
  }

  /// Rotates the turn's queries, if there are any, and hands them over. Then rotates its key. Rows to rotate
  /// are jobs of one loop: a job for the queries of each token, then one for the key.
  __device__ __forceinline__ void make_ready(const Turn& turn) {
    const AppendItem& item = turn.item;
    const bool has_tiles = item.tile_begin < item.tile_end;
    if (turn.has_queries() && has_tiles) {
      append_.q_landed[q_.stage()].wait(landed_queries_ >> q_.stage() & 1);
      landed_queries_ ^= 1u << q_.stage();
    }
#pragma unroll 1
    for (int32_t job = turn.has_queries() && has_tiles && rotates() ? 0 : item.q_len; job <= item.q_len;
         ++job) {
      const bool is_key = job == item.q_len;
      if (is_key) {
        if (turn.has_queries()) {
          hand_over(smem_.q_ring.full_at(q_));
          q_.advance();
        }
        if (!turn.has_row() || !rotates()) break;
        stage_key();
      }
      find_angles(is_key ? turn.row : item.k_len - item.q_len + job);
      // One call, so that its code is fetched once.
      rotate(shared_address(is_key ? append_.key : smem_.q[q_.stage()]),
             is_key ? hopper::kChunkBytes : D::kQChunkBytes, is_key ? 0 : job * p_.group,
             is_key ? 1 : p_.group);
      if (is_key) take_key();
    }
  }

  /// stage_key() writes the key to shared memory, where lanes find the other half of its pairs. take_key()
  /// reads it back.
  __device__ __forceinline__ void stage_key() const {
    const uint32_t staged = shared_address(append_.key);
#pragma unroll
    for (int j = 0; j < kWords; ++j) store_word(staged + (lane_ + 32 * j) * 4, key_[j]);
    __syncwarp();
  }
  __device__ __forceinline__ void take_key() {
    __syncwarp();
    const uint32_t staged = shared_address(append_.key);
#pragma unroll
    for (int j = 0; j < kWords; ++j) key_[j] = load_word(staged + (lane_ + 32 * j) * 4);
    asked_ = -1;  // key_ is rotated now, and no longer the token's key as loaded
  }

  /// Writes the turn's row, K and then V, to its tile's slot, if it lies in a tile, and to the cache.
  __device__ __forceinline__ void put(const Turn& turn) {
#pragma unroll 1
    for (int kind = 0; kind < 2; ++kind) {
      uint32_t words[kWords];
#pragma unroll
      for (int j = 0; j < kWords; ++j) words[j] = kind == 0 ? key_[j] : value_[j];
      if (turn.item.tile_begin < turn.item.tile_end) put_into_tile(turn, kind, words);
      if (place_.block >= 0) put_into_cache(kind, words);
    }
  }

  /// The turn of a tile's first new row waits for the tile's copies. The turn of its last new row hands the
  /// tile on.
  __device__ __forceinline__ void put_into_tile(const Turn& turn, int kind, const uint32_t (&words)[kWords]) {
    const int token = turn.row % kTile;
    const int in_box = token & (p_.box_rows - 1);  // box_rows is a power of two
    const uint32_t offset = (token - in_box) * (D::kKvChunks * hopper::kChunkBytes);
    const uint32_t slot = (slots_ + 2 * (turn.row / kTile - turn.item.tile_begin) + kind) % kShape.slots;
    if (turn.row == turn.first || token == 0) {
      append_.kv_landed[slot].wait(landed_tiles_ >> slot & 1);
      landed_tiles_ ^= 1u << slot;
    }
    const uint32_t box = shared_address(smem_.kv[slot]) + offset;
#pragma unroll
    for (int j = 0; j < kWords; ++j) {
      const int unit = 8 * j + lane_ / 4;
      store_word(unit_of_row(box, p_.box_rows * hopper::kChunkBytes, in_box, unit) + lane_ % 4 * 4, words[j]);
    }
    if (turn.row + 1 == turn.last || token == kTile - 1) hand_over(smem_.kv_ring.full[slot]);
  }

  __device__ __forceinline__ void put_into_cache(int kind, const uint32_t (&words)[kWords]) const {
    const int64_t to = place_.block * (kind == 0 ? a_.k_stride_block : a_.v_stride_block) +
                       place_.row * (kind == 0 ? a_.k_stride_token : a_.v_stride_token) +
                       kv_head_ * (kind == 0 ? a_.k_stride_head : a_.v_stride_head);
    auto* cache =
        reinterpret_cast<uint32_t*>(static_cast<uint16_t*>(kind == 0 ? a_.k_cache : a_.v_cache) + to);
#pragma unroll
    for (int j = 0; j < kWords; ++j) cache[lane_ + 32 * j] = words[j];
  }

  /// Makes `turn` the first row of the next sequence with *unseen* rows: new rows that no query of the
  /// sequence sees, and that lie in no tile of the launch. A block of part `part` looks through every
  /// parts-th sequence, while its consumers finish.
  __device__ __forceinline__ bool find_unseen(Turn& turn) {
#pragma unroll 1
    while (unseen_ == 0) {
      if (unseen_next_ >= p_.batch) return false;
      const int32_t mine = unseen_next_ + lane_ * p_.parts;
      unseen_b_ = unseen_next_;
      unseen_next_ += 32 * p_.parts;
      unseen_begin_ = unseen_end_ = 0;
      if (mine < p_.batch) {
        NewTokens<true> tokens;
        tokens.load(p_, mine);
        const Sequence s = sequence_of(p_, load_entry(p_, mine));
        const TileRange tiles = tiles_of<kShape>(p_, s);
        unseen_begin_ = tokens.old_len(s.k_len);
        unseen_end_ = tiles.begin < tiles.end ? tiles.begin * kTile : s.k_len;
        unseen_token_ = tokens.end() - s.k_len + unseen_begin_;
      }
      unseen_ = __ballot_sync(~0u, unseen_begin_ < unseen_end_);
    }
    const int from = __ffs(static_cast<int>(unseen_)) - 1;
    unseen_ &= unseen_ - 1;
    turn.item = {};
    turn.item.b = unseen_b_ + from * p_.parts;
    turn.row = __shfl_sync(~0u, unseen_begin_, from);
    turn.last = __shfl_sync(~0u, unseen_end_, from);
    turn.item.new_end = __shfl_sync(~0u, unseen_token_, from) - turn.row;  // k_len is 0 here
    return true;
  }

  /// Requests the key and value of a new token.
  __device__ __forceinline__ void ask(int32_t token) {
    asked_ = token;
    const auto* key = words_of(a_.k_new, token, a_.k_new_stride_token, a_.k_new_stride_head);
    const auto* value = words_of(a_.v_new, token, a_.v_new_stride_token, a_.v_new_stride_head);
#pragma unroll
    for (int j = 0; j < kWords; ++j) {
      key_[j] = key[lane_ + 32 * j];
      value_[j] = value[lane_ + 32 * j];
    }
  }

  __device__ __forceinline__ const uint32_t* words_of(const void* rows, int32_t token, int64_t stride_token,
                                                      int64_t stride_head) const {
    return reinterpret_cast<const uint32_t*>(static_cast<const uint16_t*>(rows) + token * stride_token +
                                             kv_head_ * stride_head);
  }

  /// Loads the angles of `position` for this lane's pairs, from 8 * vector_ on. A position outside the
  /// tables, which the host cannot see, takes the nearest one in them.
  __device__ __forceinline__ void find_angles(int32_t position) {
    if (position == position_) return;
    position_ = position;
    const RotaryParams& r = a_.rotary;
    const int64_t at = int64_t{max(min(position, r.positions - 1), 0)} * (r.dim / 2) + 8 * vector_;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      cos_[i] = reinterpret_cast<const float4*>(r.cos + at)[i];
      sin_[i] = reinterpret_cast<const float4*>(r.sin + at)[i];
    }
  }

  /// Rotates two pairs: `a` holds the first numbers of both, `b` the second ones.
  __device__ __forceinline__ static void turn(uint32_t& a, uint32_t& b, float cos0, float sin0, float cos1,
                                              float sin1) {
    const float2 x = hopper::unpack_pair<kShape.dtype>(a), y = hopper::unpack_pair<kShape.dtype>(b);
    a = pack(x.x * cos0 - y.x * sin0, x.y * cos1 - y.y * sin1);
    b = pack(x.x * sin0 + y.x * cos0, x.y * sin1 + y.y * cos1);
  }

  /// Rotates rows [first, first + count) of `rows`, which lie 128 bytes apart, by the loaded angles. A lane
  /// rotates 8 pairs of a row. NeoX: 16-byte unit `vector_` of the first half with that of the second.
  /// Interleaved: units 2 * vector_ and the next one, whose numbers are regrouped before and after.
  __device__ __forceinline__ void rotate(uint32_t rows, int chunk_stride, int first, int count) const {
    const bool interleaved = a_.rotary.interleaved != 0;
    const int unit_a = interleaved ? 2 * vector_ : vector_;
    const int unit_b = interleaved ? unit_a + 1 : unit_a + a_.rotary.dim / 16;
#pragma unroll 1
    for (int row = first + row_; row < first + count; row += rows_at_once_) {
      const uint32_t at_a = unit_of_row(rows, chunk_stride, row, unit_a);
      const uint32_t at_b = unit_of_row(rows, chunk_stride, row, unit_b);
      uint4 a = load_unit(at_a), b = load_unit(at_b);
      if (interleaved) regroup(a, b);
      turn(a.x, b.x, cos_[0].x, sin_[0].x, cos_[0].y, sin_[0].y);
      turn(a.y, b.y, cos_[0].z, sin_[0].z, cos_[0].w, sin_[0].w);
      turn(a.z, b.z, cos_[1].x, sin_[1].x, cos_[1].y, sin_[1].y);
      turn(a.w, b.w, cos_[1].z, sin_[1].z, cos_[1].w, sin_[1].w);
      if (interleaved) ungroup(a, b);
      store_unit(at_a, a);
      store_unit(at_b, b);
    }
  }

  __device__ __forceinline__ static uint32_t shared_address(const void* address) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(address));
  }
  __device__ __forceinline__ static uint32_t pack(float low, float high) {
    return hopper::pack_pair<kShape.dtype>(low, high);
  }

  /// Where a row lies in the cache.
  struct Place {
    int32_t block;  ///< below 0: outside the cache
    int32_t row;    ///< in the block
  };

  /// The host cannot read lengths and tables before the launch, so a row outside the cache cannot be reported
  /// as an error. It must not be written either.
  __device__ __forceinline__ Place place_of(int32_t b, int32_t row) const {
    Place place{p_.block_step * b, row};
    bool inside = true;
    if (p_.block_table != nullptr) {
      const int32_t page = p_.by_block_size.divide(row);
      inside = page < p_.block_table_stride;
      if (inside) place.block = p_.block_table[b * p_.block_table_stride + page];
      place.row -= page * p_.block_size;
    } else {
      if (p_.kv_block != nullptr) place.block = p_.kv_block[b];
      if (p_.kv_row != nullptr) place.row += p_.kv_row[b];
      inside = place.row < a_.cache_capacity;
    }
    if (!inside || place.block >= a_.num_blocks) place.block = -1;
    return place;
  }

  const KernelParams& p_;
  const AttentionParams& a_;
  SharedMemory<kShape>& smem_;
  AppendMemory<kShape>& append_;
  const int kv_head_;
  const int lane_;
  hopper::RingPlace<kQStages> q_;
  uint32_t slots_ = 0;                              ///< slots of the ring of tiles passed so far
  uint32_t landed_queries_ = 0, landed_tiles_ = 0;  ///< next parities of the landing barriers, a bit each
  int32_t asked_ = -1;                              ///< the new token that key_ and value_ are of
  uint32_t key_[kWords] = {}, value_[kWords] = {};
  int vector_ = 0, row_ = 0,
      rows_at_once_ = 1;   ///< pairs 8 * vector_ ... of rows row_ + i * rows_at_once_
  int32_t position_ = -1;  ///< position of the loaded angles
  float4 cos_[2] = {}, sin_[2] = {};
  Place place_{};  ///< place of the current row

  // Results of find_unseen: bit i of unseen_ is sequence unseen_b_ + i * parts, and lane i holds its rows and
  // token.
  uint32_t unseen_ = 0;
  int32_t unseen_b_ = 0, unseen_next_ = 0, unseen_begin_ = 0, unseen_end_ = 0, unseen_token_ = 0;
};

}  // namespace attnbench::sm90_decode
