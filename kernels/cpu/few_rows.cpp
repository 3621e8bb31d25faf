// The decode path: up to kFewRows packed rows against a long context.
//
// A task walks over tiles of keys. In a tile it does each step of keys for all its KV heads before the next
// step. So, if tokens are outside heads (NHD), memory is read in whole tokens. The task also prefetches each
// row kAhead keys before its use, across the change from K to V and from V to the next tile's K. So the
// stream from memory never pauses.
#include <algorithm>
#include <type_traits>

#include "kernels/cpu/alibi.h"
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/finish.h"
#include "kernels/cpu/hidden_keys.h"
#include "kernels/cpu/key_descale.h"
#include "kernels/cpu/paths.h"
#include "kernels/cpu/query_row.h"
#include "kernels/cpu/row_products.h"
#include "kernels/cpu/scaled_rows.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/softmax.h"
#include "kernels/cpu/tile_rows.h"
#include "kernels/cpu/turned_keys.h"

namespace attnbench::cpu {
namespace {

constexpr int kTile = 128;  ///< keys of a step of the softmax
constexpr int kAhead = 16;  ///< keys from the fetch of a row to its use

using Tile = TileRows<kTile>;

struct Buffers {
  float* q;            // [head of the task][row][padded head_dim], pair order of K
  float* o;            // [head of the task][row][padded head_dim_v], pair order of V
  float* m;            // [head][row]
  float* l;            // [head][row]
  float* s;            // [head][row][kTile]
  ScoreScale* scales;  // [head]
  KeyBounds* rows;     // [row]
  Tile* tiles;         // [2]

  Buffers(const AttentionParams& p, Carver& carver) {
    const std::size_t rows_of_heads = static_cast<std::size_t>(p.num_heads_kv) * kFewRows;
    q = carver.take<float>(rows_of_heads * static_cast<std::size_t>(round_up(p.head_dim, kPanel)));
    o = carver.take<float>(rows_of_heads * static_cast<std::size_t>(round_up(p.head_dim_v, kPanel)));
    m = carver.take<float>(rows_of_heads);
    l = carver.take<float>(rows_of_heads);
    s = carver.take<float>(rows_of_heads * kTile);
    scales = carver.take<ScoreScale>(static_cast<std::size_t>(p.num_heads_kv));
    rows = carver.take<KeyBounds>(kFewRows);
    tiles = carver.take<Tile>(2);
  }
};

/// Calls f for blocks of up to kRowStep rows: f.operator()<rows>(first row).
template <class F>
ATTNBENCH_INLINE void for_row_blocks(int rows, F&& f) {
  int r = 0;
  for (; r + 4 <= rows; r += 4) f.template operator()<4>(r);
  switch (rows - r) {
    case 3:
      f.template operator()<3>(r);
      break;
    case 2:
      f.template operator()<2>(r);
      break;
    case 1:
      f.template operator()<1>(r);
      break;
    default:
      break;
  }
}

template <class K, class V>
class FewRows {
 public:
  FewRows(const AttentionParams& p, const Task& task, const Buffers& buffers)
      : p_(p),
        task_(task),
        buf_(buffers),
        dim_(p.head_dim),
        dim_v_(p.head_dim_v),
        padded_dim_(round_up(p.head_dim, kPanel)),
        padded_v_(round_up(p.head_dim_v, kPanel)),
        list_(list_of(p, task)),
        k_scaled_(scaled_by_row<K>(p, false)),
        v_scaled_(scaled_by_row<V>(p, true)) {}

  void run(float* partials) {
    for (int h = 0; h < task_.head_count; ++h) start(h);
    Tile* tile = buf_.tiles;
    Tile* next = buf_.tiles + 1;
    locate(task_.keys.begin, *tile);
    while (tile->n > 0) {
      locate(tile->next, *next);
      do_tile(*tile, *next);
      std::swap(tile, next);
    }
    for (int h = 0; h < task_.head_count; ++h) finish(h, partials);
  }

 private:
  static constexpr int64_t kKBytes = sizeof(typename K::Storage);
  static constexpr int64_t kVBytes = sizeof(typename V::Storage);

  /// The list of the task's query and KV head; null: the task attends to a range of keys.
  static const int32_t* list_of(const AttentionParams& p, const Task& task) {
    if (!(p.features & kTopkIndices)) return nullptr;
    const int32_t token = task.row_begin / (p.num_heads_q / p.num_heads_kv);
    return key_list(p, int64_t{task.range.q_begin} + token, task.head_begin);
  }

  void start(int h) {
    const int32_t group = p_.num_heads_q / p_.num_heads_kv;
    const int32_t head = task_.head_begin + h;
    const ScoreScale& scale = buf_.scales[h] = score_scale(p_, task_.seq, head);
    float* q_rows = buf_.q + h * task_.rows * padded_dim_;
    std::fill_n(q_rows, task_.rows * padded_dim_, 0.0f);
    std::fill_n(buf_.o + h * task_.rows * padded_v_, task_.rows * padded_v_, 0.0f);
    for (int r = 0; r < task_.rows; ++r) {
      const int32_t packed_row = task_.row_begin + r;
      const int32_t token = packed_row / group;
      float q[kMaxHeadDim];
      load_query(p_, task_, token, head * group + packed_row % group, scale.q_factor, q);
      for (int d = 0; d < dim_; ++d) {
        q_rows[r * padded_dim_ + d / kPanel * kPanel + K::pair_slot(d % kPanel)] = q[d];
      }
      // All rows of a list are seen, wherever its entries stand.
      const KeyBounds seen = list_ != nullptr ? KeyBounds{0, kTile}
                                              : visible_keys(p_, token, task_.range.q_len, task_.range.k_len);
      const int32_t begin = std::clamp(seen.begin, task_.keys.begin, task_.keys.end);
      buf_.rows[r] = list_ != nullptr ? seen : KeyBounds{begin, std::clamp(seen.end, begin, task_.keys.end)};
      buf_.m[h * task_.rows + r] = -kInf;
      buf_.l[h * task_.rows + r] = 0.0f;
    }
  }

  void locate(int32_t key, Tile& tile) const {
    if (list_ != nullptr) return tile.locate_listed(p_, list_, key, task_.keys.end);
    tile.locate(p_, task_.seq, key, std::min(kTile, task_.keys.end - key));
  }

  void do_tile(const Tile& tile, const Tile& next) {
    // Rows in the order in which they are read: K and V of this tile, then K of the next. After the tile's
    // last key, the last key repeats up to a whole step; its scores there are masked.
    const char* stream[3 * kTile];
    const char* const k_base = static_cast<const char*>(p_.k);
    const char* const v_base = static_cast<const char*>(p_.v);
    const int keys = round_up(tile.n, kKeyStep);
    const char** k = stream;
    const char** v = k + keys;
    const char** end = v + keys;
    for (int j = 0; j < tile.n; ++j) k[j] = k_base + tile.k[j] * kKBytes;
    for (int j = 0; j < tile.n; ++j) v[j] = v_base + tile.v[j] * kVBytes;
    for (int j = 0; j < next.n; ++j) end[j] = k_base + next.k[j] * kKBytes;
    for (int j = tile.n; j < keys; ++j) k[j] = k[tile.n - 1];
    for (int j = tile.n; j < keys; ++j) v[j] = v[tile.n - 1];
    end += next.n;

    for (int j = 0; j < keys; j += kKeyStep) {
      const auto rows = [&](int h) {
        return stream_at(k + j, end, (task_.head_begin + h) * p_.k_stride_head * kKBytes);
      };
      for (int h = 0; h < task_.head_count; ++h) {
        if (p_.features & kRotaryCached) {
          dot_turned(h, tile, j);
        } else if (p_.features & kBlockScales) {
          dot_scaled(h, tile, j);
        } else {
          dot(h, rows(h), j);
        }
      }
    }
    for (int h = 0; h < task_.head_count; ++h) {
      float k_scales[kTile], v_scales[kTile];  // of rows, if they have their own
      if (k_scaled_)
        load_row_descales(p_, false, task_.seq, task_.head_begin + h, tile.key, tile.n, k_scales);
      if (v_scaled_) load_row_descales(p_, true, task_.seq, task_.head_begin + h, tile.key, tile.n, v_scales);
      for (int r = 0; r < task_.rows; ++r) softmax(h, r, tile, k_scales, v_scales);
    }
    for (int j = 0; j < keys; j += kKeyStep) {
      const int count = std::min(kKeyStep, tile.n - j);
      const auto rows = [&](int h) {
        return stream_at(v + j, end, (task_.head_begin + h) * p_.v_stride_head * kVBytes);
      };
      for (int h = 0; h < task_.head_count; ++h) {
        if (p_.features & kBlockScales) {
          add_scaled(h, tile, j, count);
        } else {
          add(h, rows(h), j, count);
        }
      }
    }
  }

  static RowStream stream_at(const char** rows, const char** end, int64_t head) {
    const char** ahead = std::min(rows + kAhead, end);
    return {rows, ahead, std::min(kKeyStep, static_cast<int>(end - ahead)), head};
  }

  void dot(int h, RowStream k, int j) {
    const float* q = buf_.q + h * task_.rows * padded_dim_;
    float* s = buf_.s + h * task_.rows * kTile + j;
    for_row_blocks(task_.rows, [&]<int kRows>(int r) {
      dot_keys<K, kRows>(q + r * padded_dim_, padded_dim_, k, dim_, s + r * kTile, kTile);
      k.ahead_count = 0;  // prefetched once, with the first block of rows
    });
  }

  /// The same as dot(), of keys that turn when they are read.
  __attribute__((noinline)) void dot_turned(int h, const Tile& tile, int j) {
    TurnedKeys<K> keys;
    static_assert(keys.kKeys == kKeyStep);
    const int count = std::min(kKeyStep, tile.n - j);
    keys.turn(p_, task_.head_begin + h, tile.key + j, count, tile.k + j);
    const char* rows[kKeyStep];
    for (int i = 0; i < kKeyStep; ++i)
      rows[i] = reinterpret_cast<const char*>(keys.row(p_, std::min(i, count - 1)));
    dot(h, {rows, nullptr, 0, 0}, j);
  }

  /// Rows j .. j + count - 1 of a tile of K or V, repeated up to a whole step, in scratch.
  struct ScaledStep {
    ScaledRows rows;
    const char* at[kKeyStep];

    ScaledStep(const AttentionParams& p, const Task& task, int h, bool is_v, const Tile& tile, int j,
               int count) {
      static_assert(ScaledRows::kKeys == kKeyStep);
      rows.load(p, task.seq, task.head_begin + h, is_v, tile, j, count);
      for (int i = 0; i < kKeyStep; ++i)
        at[i] = reinterpret_cast<const char*>(rows.row(std::min(i, count - 1)));
    }
  };

  /// The same as dot() and add(), of rows with scales for blocks of channels.
  __attribute__((noinline)) void dot_scaled(int h, const Tile& tile, int j) {
    const ScaledStep step(p_, task_, h, false, tile, j, std::min(kKeyStep, tile.n - j));
    dot(h, {step.at, nullptr, 0, 0}, j);
  }
  __attribute__((noinline)) void add_scaled(int h, const Tile& tile, int j, int count) {
    const ScaledStep step(p_, task_, h, true, tile, j, count);
    add(h, {step.at, nullptr, 0, 0}, j, count);
  }

  void add(int h, RowStream v, int j, int count) {
    const float* s = buf_.s + h * task_.rows * kTile + j;
    float* o = buf_.o + h * task_.rows * padded_v_;
    for_row_blocks(task_.rows, [&]<int kRows>(int r) {
      add_values<V, kRows>(s + r * kTile, kTile, v, count, dim_v_, o + r * padded_v_, padded_v_);
      v.ahead_count = 0;
    });
  }

  void softmax(int h, int r, const Tile& tile, const float* k_scales, const float* v_scales) {
    const int row = h * task_.rows + r;
    const ScoreScale scale = buf_.scales[h];
    const KeyBounds& seen = buf_.rows[r];
    float* s = buf_.s + row * kTile;
    const int end = round_up(tile.n, kLanes);
    if (k_scaled_) multiply_by_descales(k_scales, s, 0, end);
    const auto add_bias = [&] {
      add_alibi(p_, task_, task_.head_begin + h, r, tile.key, scale.bias_scale, s, 0, end);
    };
    const auto hide = [&](int first, int last) { hide_keys(p_, task_, r, tile.key, s, first, last); };
    const float alpha = softmax_row(scale, add_bias, hide, s, 0, end, seen.begin - tile.key,
                                    std::min(seen.end - tile.key, tile.n), buf_.m[row], buf_.l[row]);
    if (p_.features & kDropout) drop_weights(p_, task_, task_.head_begin + h, r, tile.key, s, 0, end);
    if (v_scaled_) multiply_by_descales(v_scales, s, 0, end);
    if (alpha == 1.0f) return;
    float* o = buf_.o + row * padded_v_;
    for (int d = 0; d < padded_v_; d += kLanes) store(o + d, load(o + d) * alpha);
  }

  void finish(int h, float* partials) {
    for (int r = 0; r < task_.rows; ++r) {
      const float* o = buf_.o + (h * task_.rows + r) * padded_v_;
      float in_order[kMaxHeadDimV];
      for (int d = 0; d < dim_v_; ++d) in_order[d] = o[d / kPanel * kPanel + V::pair_slot(d % kPanel)];
      finish_row(p_, task_, task_.head_begin + h, r, in_order, buf_.m[h * task_.rows + r],
                 buf_.l[h * task_.rows + r], partials);
    }
  }

  const AttentionParams& p_;
  const Task& task_;
  const Buffers& buf_;
  const int dim_;
  const int dim_v_;
  const int padded_dim_;
  const int padded_v_;
  const int32_t* const list_;
  const bool k_scaled_, v_scaled_;
};

}  // namespace

std::size_t few_rows_scratch_bytes(const AttentionParams& p) {
  Carver carver(nullptr);
  Buffers(p, carver);
  return carver.used();
}

void run_few_rows(const AttentionParams& p, const Task& task, void* scratch, float* partials) {
  Carver carver(scratch);
  const Buffers buffers(p, carver);
  with_types(p, [&]<class K, class V>() { FewRows<K, V>(p, task, buffers).run(partials); });
}

}  // namespace attnbench::cpu
