// Attention probabilities: exp(score - LSE), after the LSE of a row is known. The scores are computed again,
// because the softmax before P.V keeps only one tile of them.
#include <algorithm>
#include <type_traits>

#include "kernels/common/checks.h"
#include "kernels/cpu/alibi.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/key_descale.h"
#include "kernels/cpu/paths.h"
#include "kernels/cpu/query_row.h"
#include "kernels/cpu/row_products.h"
#include "kernels/cpu/scaled_rows.h"
#include "kernels/cpu/softmax.h"
#include "kernels/cpu/tile_rows.h"
#include "kernels/cpu/turned_keys.h"

namespace attnbench::cpu {
namespace {

static_assert(kProbsRows <= kRowStep);
constexpr int kTile = 128;  ///< keys located at once

template <class K, class V>
class Probs {
 public:
  Probs(const AttentionParams& p, const Task& task)
      : p_(p),
        task_(task),
        head_(task.head_begin),
        padded_dim_(round_up(p.head_dim, kPanel)),
        padded_dim_v_(round_up(p.head_dim_v, kPanel)),
        scale_(score_scale(p, task.seq, task.head_begin)) {}

  void run() {
    for (int r = 0; r < task_.rows; ++r) start(r);
    for (int32_t key = task_.keys.begin; key < task_.keys.end; key += kTile) {
      tile_.locate(p_, task_.seq, key, std::min(kTile, task_.keys.end - key));
      do_tile();
    }
  }

 private:
  void start(int r) {
    const int32_t group = p_.num_heads_q / p_.num_heads_kv;
    const int32_t packed_row = task_.row_begin + r;
    const int64_t q_row = int64_t{task_.range.q_begin} + packed_row / group;
    const int32_t q_head = head_ * group + packed_row % group;
    float q[kMaxHeadDim];
    load_query(p_, task_, packed_row / group, q_head, scale_.q_factor, q);
    float* row = q_ + r * padded_dim_;
    std::fill_n(row, padded_dim_, 0.0f);
    for (int d = 0; d < p_.head_dim; ++d) row[d / kPanel * kPanel + K::pair_slot(d % kPanel)] = q[d];
    if (p_.features & kQv) {
      load_second_query(p_, task_, packed_row / group, q_head, scale_.q_factor, q);
      row = qv_ + r * padded_dim_v_;
      std::fill_n(row, padded_dim_v_, 0.0f);
      for (int d = 0; d < p_.head_dim_v; ++d) row[d / kPanel * kPanel + V::pair_slot(d % kPanel)] = q[d];
    }
    token_[r] = packed_row / group;
    seen_[r] = visible_keys(p_, token_[r], task_.range.q_len, task_.range.k_len);
    const float lse = p_.lse[any_lse_offset(p_, q_row, q_head)];
    lse_[r] = p_.features & kLseBase2 ? lse : lse * kLog2E;
    out_[r] = p_.probs + q_head * p_.probs_stride_head + q_row * p_.probs_stride_token;
    std::fill_n(out_[r], p_.max_seqlen_k, 0.0f);
  }

  /// Products of the task's queries, `q`, with the tile's rows of K or V at `base`. `turns`: the rows are keys that
  /// turn when they are read.
  template <class T>
  void multiply(const typename T::Storage* base, const int64_t* offsets, const float* q, int q_stride,
                int dim, bool turns, float* s) const {
    const int keys = round_up(tile_.n, kKeyStep);
    const char* rows[kTile];
    for (int j = 0; j < keys; ++j) {
      rows[j] = reinterpret_cast<const char*>(base + offsets[std::min(j, tile_.n - 1)]);
    }
    for (int j = 0; j < keys; j += kKeyStep) {
      TurnedKeys<T> turned;
      ScaledRows scaled;
      const int count = std::min(kKeyStep, tile_.n - j);
      if (p_.features & kBlockScales) {  // with keys alone: launches with a second query have none
        scaled.load(p_, task_.seq, head_, false, tile_, j, count);
        for (int i = 0; i < kKeyStep; ++i)
          rows[j + i] = reinterpret_cast<const char*>(scaled.row(std::min(i, count - 1)));
      }
      if (turns) {
        turned.turn(p_, head_, tile_.key + j, count, tile_.k + j);
        for (int i = 0; i < kKeyStep; ++i)
          rows[j + i] = reinterpret_cast<const char*>(turned.row(p_, std::min(i, count - 1)));
      }
      const RowStream stream{rows + j, nullptr, 0, 0};
      for (int r = 0; r < task_.rows; ++r)
        dot_keys<T, 1>(q + r * q_stride, q_stride, stream, dim, s + r * kTile + j, kTile);
    }
  }

  void do_tile() {
    float s[kRowStep * kTile] = {};
    multiply<K>(static_cast<const typename K::Storage*>(p_.k) + head_ * p_.k_stride_head, tile_.k, q_,
                padded_dim_, p_.head_dim, (p_.features & kRotaryCached) != 0, s);
    if (p_.features & kQv) {
      float by_v[kRowStep * kTile] = {};
      multiply<V>(static_cast<const typename V::Storage*>(p_.v) + head_ * p_.v_stride_head, tile_.v, qv_,
                  padded_dim_v_, p_.head_dim_v, false, by_v);
      for (int i = 0; i < kRowStep * kTile; ++i) s[i] += by_v[i];
    }
    float descales[kTile];
    const bool scaled = scaled_by_row<K>(p_, false);
    if (scaled) load_row_descales(p_, false, task_.seq, head_, tile_.key, tile_.n, descales);
    const int end = round_up(tile_.n, kLanes);
    for (int r = 0; r < task_.rows; ++r) {
      float* row = s + r * kTile;
      if (scaled) multiply_by_descales(descales, row, 0, end);
      const auto add_bias = [&] {
        add_alibi(p_, task_, head_, r, tile_.key, scale_.bias_scale, row, 0, end);
      };
      add_terms(scale_, add_bias, row, 0, end);
      for (int j = 0; j < end; j += kLanes) {
        store(row + j, exp2_vec(load(row + j) * scale_.log2_scale - lse_[r]));
      }
      const int32_t first = std::max(seen_[r].begin, tile_.key);
      const int32_t last = std::min(seen_[r].end, tile_.key + tile_.n);
      for (int32_t key = first; key < last; ++key) {
        if (scale_.hides && !mask_bit(p_, task_.seq, token_[r], key, task_.range.k_len)) continue;
        out_[r][key] = row[key - tile_.key];
      }
    }
  }

  const AttentionParams& p_;
  const Task& task_;
  const int32_t head_;
  const int padded_dim_, padded_dim_v_;
  const ScoreScale scale_;
  alignas(64) float q_[kRowStep * kMaxHeadDim];
  int32_t token_[kRowStep];  ///< query in its sequence
  alignas(64) float qv_[kRowStep * kMaxHeadDimV];
  KeyBounds seen_[kRowStep];
  float lse_[kRowStep];  ///< in base 2
  float* out_[kRowStep];
  TileRows<kTile> tile_;
};

}  // namespace

void run_probs(const AttentionParams& p, const Task& task) {
  with_types(p, [&]<class K, class V>() { Probs<K, V>(p, task).run(); });
}

}  // namespace attnbench::cpu
