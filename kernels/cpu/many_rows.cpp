// The prefill path: a register-blocked GEMM over tiles of query rows and keys, with the softmax between the
// two products.
//
//   per tile of keys:  K -> panels [key / kPanel][channel][kPanel]     (transposed while it is converted)
//                      V -> panels [channel / kPanel][key][kPanel]
//                      S[row][key] = Q K^T;  S := weights;  O[row][channel] = alpha O + S V
//
// Rows form groups of kGroupRows. A group processes only the panels of keys that one of its rows sees, so
// causal and window masks cost little beyond their visible keys.
#include <algorithm>
#include <type_traits>

#include "kernels/cpu/alibi.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/dropout.h"
#include "kernels/cpu/finish.h"
#include "kernels/cpu/hidden_keys.h"
#include "kernels/cpu/key_descale.h"
#include "kernels/cpu/paths.h"
#include "kernels/cpu/query_row.h"
#include "kernels/cpu/scaled_rows.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/softmax.h"
#include "kernels/cpu/tile_gemm.h"
#include "kernels/cpu/tile_rows.h"
#include "kernels/cpu/turned_keys.h"

namespace attnbench::cpu {
namespace {

static_assert(kRowTile % kGroupRows == 0 && kKeyTile % kPanel == 0);
constexpr int kGroups = kRowTile / kGroupRows;

/// Columns of S that a group of rows processes, multiples of kPanel. begin == end: none.
struct Columns {
  int begin;
  int end;
};

/// Channels of the products that make a score. With kQv those of V and the second query follow those of K and q.
int dot_dim(const AttentionParams& p) { return p.head_dim + (p.features & kQv ? p.head_dim_v : 0); }

struct Buffers {
  float* q;         // [group][channel][kGroupRows]
  float* k;         // panels
  float* v;         // panels
  float* s;         // [kRowTile][kKeyTile]
  float* o;         // [kRowTile][padded head_dim_v]
  float* m;         // [kRowTile]
  float* l;         // [kRowTile]
  float* alpha;     // [kRowTile]
  KeyBounds* rows;  // [kRowTile] keys of the sequence that each row sees

  Buffers(const AttentionParams& p, Carver& carver) {
    const std::size_t dim = static_cast<std::size_t>(round_up(dot_dim(p), kPanel));
    const std::size_t dim_v = static_cast<std::size_t>(round_up(p.head_dim_v, kPanel));
    q = carver.take<float>(kRowTile * dim);
    k = carver.take<float>(kKeyTile * dim);
    v = carver.take<float>(kKeyTile * dim_v);
    s = carver.take<float>(kRowTile * kKeyTile);
    o = carver.take<float>(kRowTile * dim_v);
    m = carver.take<float>(kRowTile);
    l = carver.take<float>(kRowTile);
    alpha = carver.take<float>(kRowTile);
    rows = carver.take<KeyBounds>(kRowTile);
  }
};

template <class K, class V>
class ManyRows {
 public:
  ManyRows(const AttentionParams& p, const Task& task, const Buffers& buffers)
      : p_(p),
        task_(task),
        buf_(buffers),
        scale_(score_scale(p, task.seq, task.head_begin)),
        dim_(dot_dim(p)),
        dim_v_(p.head_dim_v),
        padded_v_(round_up(p.head_dim_v, kPanel)),
        head_(task.head_begin),
        k_scaled_(scaled_by_row<K>(p, false)),
        v_scaled_(scaled_by_row<V>(p, true)) {}

  void run(float* partials) {
    start();
    for (int32_t key = task_.keys.begin; key < task_.keys.end; key += kKeyTile) {
      const int n = std::min(kKeyTile, task_.keys.end - key);
      Columns columns[kGroups];
      for (int g = 0; g < groups(); ++g) columns[g] = columns_of_group(g, key, n);
      tile_.locate(p_, task_.seq, key, n);
      pack_keys<K>(p_.k, p_.k_stride_head, tile_.k, p_.head_dim, 0, (p_.features & kRotaryCached) != 0);
      if (p_.features & kQv) pack_keys<V>(p_.v, p_.v_stride_head, tile_.v, dim_v_, p_.head_dim, false);
      pack_v();
      multiply_qk(columns, n);
      float k_scales[kKeyTile], v_scales[kKeyTile];  // of rows, if they have their own
      if (k_scaled_) load_row_descales(p_, false, task_.seq, head_, key, n, k_scales);
      if (v_scaled_) load_row_descales(p_, true, task_.seq, head_, key, n, v_scales);
      for (int g = 0; g < groups(); ++g) {
        for (int r = g * kGroupRows; r < g * kGroupRows + rows_of_group(g); ++r) {
          const KeyBounds& seen = buf_.rows[r];
          float* s = buf_.s + r * kKeyTile;
          if (k_scaled_) multiply_by_descales(k_scales, s, columns[g].begin, columns[g].end);
          const auto add_bias = [&] {
            add_alibi(p_, task_, head_, r, key, scale_.bias_scale, s, columns[g].begin, columns[g].end);
          };
          const auto hide = [&](int first, int last) { hide_keys(p_, task_, r, key, s, first, last); };
          buf_.alpha[r] = softmax_row(scale_, add_bias, hide, s, columns[g].begin, columns[g].end,
                                      seen.begin - key, seen.end - key, buf_.m[r], buf_.l[r]);
          if (p_.features & kDropout) {
            drop_weights(p_, task_, head_, r, key, s, columns[g].begin, columns[g].end);
          }
          if (v_scaled_) multiply_by_descales(v_scales, s, columns[g].begin, columns[g].end);
        }
      }
      multiply_pv(columns);
    }
    for (int r = 0; r < task_.rows; ++r) {
      finish_row(p_, task_, head_, r, buf_.o + r * padded_v_, buf_.m[r], buf_.l[r], partials);
    }
  }

 private:
  int groups() const { return (task_.rows + kGroupRows - 1) / kGroupRows; }
  int rows_of_group(int g) const { return std::min(kGroupRows, task_.rows - g * kGroupRows); }

  void start() {
    const int32_t group = p_.num_heads_q / p_.num_heads_kv;
    for (int r = 0; r < task_.rows; ++r) {
      const int32_t packed_row = task_.row_begin + r;
      const int32_t token = packed_row / group;
      float q[kMaxHeadDim + kMaxHeadDimV];
      load_query(p_, task_, token, head_ * group + packed_row % group, scale_.q_factor, q);
      if (p_.features & kQv) {
        load_second_query(p_, task_, token, head_ * group + packed_row % group, scale_.q_factor,
                          q + p_.head_dim);
      }
      float* column = buf_.q + (r / kGroupRows) * kGroupRows * dim_ + r % kGroupRows;
      for (int d = 0; d < dim_; ++d) column[d * kGroupRows] = q[d];

      // Bounds within the task's own keys. They stay ordered, so a row that sees none of these keys has an
      // empty range.
      const KeyBounds seen = visible_keys(p_, token, task_.range.q_len, task_.range.k_len);
      const int32_t begin = std::clamp(seen.begin, task_.keys.begin, task_.keys.end);
      buf_.rows[r] = {begin, std::clamp(seen.end, begin, task_.keys.end)};
      buf_.m[r] = -kInf;
      buf_.l[r] = 0.0f;
    }
    std::fill_n(buf_.o, task_.rows * padded_v_, 0.0f);
  }

  Columns columns_of_group(int g, int32_t key, int n) const {
    int begin = n;
    int end = 0;
    for (int r = g * kGroupRows; r < g * kGroupRows + rows_of_group(g); ++r) {
      const KeyBounds& seen = buf_.rows[r];
      if (seen.begin == seen.end) continue;
      begin = std::min(begin, seen.begin - key);
      end = std::max(end, seen.end - key);
    }
    begin = std::max(begin, 0);
    end = std::min(end, n);
    if (begin >= end) return {0, 0};
    return {begin / kPanel * kPanel, round_up(end, kPanel)};
  }

  /// Packs `dim` channels of rows that a query is multiplied with, as channels `first` and on of the panels.
  /// `turns`: they are keys that turn when they are read. Keys from n to the end of the last panel become zeros; memory beyond the sequence's keys is not read.
  template <class T>
  void pack_keys(const void* tensor, int64_t stride_head, const int64_t* rows, int dim, int first,
                 bool turns) {
    const int n = tile_.n;
    using Storage = typename T::Storage;
    const Storage* base = static_cast<const Storage*>(tensor) + head_ * stride_head;
    for (int j = 0; j < round_up(n, kPanel); j += 8) {
      const Storage* row[8];
      const int count = std::min(8, n - j);
      TurnedKeys<T> turned;  // not touched unless they turn
      ScaledRows scaled;     // not touched unless they have block scales
      if (std::is_same_v<T, Fp32> && (p_.features & kBlockScales) && count > 0) {
        scaled.load(p_, task_.seq, head_, false, tile_, j, count);
        for (int i = 0; i < count; ++i) row[i] = reinterpret_cast<const Storage*>(scaled.row(i));
      } else if (turns && count > 0) {
        turned.turn(p_, head_, tile_.key + j, count, rows + j);
        for (int i = 0; i < count; ++i) row[i] = turned.row(p_, i);
      } else {
        for (int i = 0; i < count; ++i) row[i] = base + rows[j + i];
      }
      float* panel = buf_.k + j / kPanel * kPanel * dim_ + first * kPanel + j % kPanel;
      for (int d = 0; d < dim; d += 8) {
        Vec8 block[8] = {};
        if (count == 8 && d + 8 <= dim) {
          ATTNBENCH_UNROLL
          for (int i = 0; i < 8; ++i) block[i] = T::load8(row[i] + d);
        } else {
          for (int i = 0; i < count; ++i) {
            block[i] = d + 8 <= dim ? T::load8(row[i] + d) : load8_part<T>(row[i] + d, dim - d);
          }
        }
        transpose_8x8(block);
        ATTNBENCH_UNROLL
        for (int i = 0; i < 8; ++i) {
          if (d + i < dim) store(panel + (d + i) * kPanel, block[i]);
        }
      }
    }
  }

  void pack_v() {
    const int n = tile_.n;
    using Storage = typename V::Storage;
    const Storage* base = static_cast<const Storage*>(p_.v) + head_ * p_.v_stride_head;
    const bool has_scales = std::is_same_v<V, Fp32> && (p_.features & kBlockScales) != 0;
    ScaledRows scaled;  // not touched unless they have block scales
    for (int j = 0; j < round_up(n, kPanel); ++j) {
      float* row = buf_.v + j * kPanel;
      const Storage* v = j < n && !has_scales ? base + tile_.v[j] : nullptr;
      if (j < n && has_scales) {
        scaled.load(p_, task_.seq, head_, true, tile_, j, 1);
        v = reinterpret_cast<const Storage*>(scaled.row(0));
      }
      for (int d = 0; d < padded_v_; d += 8) {
        Vec8 x{};
        if (v != nullptr && d < dim_v_) {
          x = d + 8 <= dim_v_ ? V::load8(v + d) : load8_part<V>(v + d, dim_v_ - d);
        }
        store(row + d / kPanel * kPanel * kKeyTile + d % kPanel, x);
      }
    }
  }

  void multiply_qk(const Columns* columns, int n) {
    for (int j = 0; j < n; j += kPanel) {  // a panel of K stays in the L1 cache while all rows use it
      const float* panel = buf_.k + j * dim_;
      for (int g = 0; g < groups(); ++g) {
        if (j < columns[g].begin || j >= columns[g].end) continue;
        const float* q = buf_.q + g * kGroupRows * dim_;
        float* s = buf_.s + g * kGroupRows * kKeyTile + j;
        with_rows(rows_of_group(g),
                  [&]<int kRows>() { gemm_set<kRows, 1, kGroupRows>(q, panel, dim_, s, kKeyTile); });
      }
    }
  }

  void multiply_pv(const Columns* columns) {
    for (int d = 0; d < padded_v_; d += kPanel) {
      for (int g = 0; g < groups(); ++g) {
        const int begin = columns[g].begin;
        if (begin == columns[g].end) continue;
        const float* weights = buf_.s + g * kGroupRows * kKeyTile + begin;
        const float* panel = buf_.v + d * kKeyTile + begin * kPanel;
        float* o = buf_.o + g * kGroupRows * padded_v_ + d;
        with_rows(rows_of_group(g), [&]<int kRows>() {
          gemm_scale_add<kRows, kKeyTile, 1>(weights, panel, columns[g].end - begin,
                                             buf_.alpha + g * kGroupRows, o, padded_v_);
        });
      }
    }
  }

  const AttentionParams& p_;
  const Task& task_;
  const Buffers& buf_;
  const ScoreScale scale_;
  const int dim_;  ///< dot_dim
  const int dim_v_;
  const int padded_v_;
  const int32_t head_;
  const bool k_scaled_, v_scaled_;
  TileRows<kKeyTile> tile_;
};

}  // namespace

std::size_t many_rows_scratch_bytes(const AttentionParams& p) {
  Carver carver(nullptr);
  Buffers(p, carver);
  return carver.used();
}

void run_many_rows(const AttentionParams& p, const Task& task, void* scratch, float* partials) {
  Carver carver(scratch);
  const Buffers buffers(p, carver);
  with_types(p, [&]<class K, class V>() { ManyRows<K, V>(p, task, buffers).run(partials); });
}

}  // namespace attnbench::cpu
