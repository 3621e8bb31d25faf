#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "kernels/common/mask.h"
#include "kernels/common/score.h"
#include "kernels/contract/dropout.h"
#include "kernels/cpu/backward.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/fast_exp.h"
#include "kernels/cpu/tile_gemm.h"

namespace attnbench::cpu {
namespace {

static_assert(kBackwardRows % kGroupRows == 0 && kBackwardKeys % kGroupRows == 0 &&
              kBackwardKeys % kPanel == 0);

/// Element (row r, channel d) of panels with `capacity` rows is at panel_at(d, capacity) + r * kPanel.
constexpr int panel_at(int d, int capacity) { return d / kPanel * capacity * kPanel + d % kPanel; }

/// C := A B over `dim` channels, a multiple of kPanel: A from panels of `kCapacity` rows, B contiguous.
template <int M, int kCapacity>
inline void multiply_panels(const float* a, const float* b, int dim, float* c, int c_stride) {
  Vec acc[M][2] = {};
  for (int d = 0; d < dim; d += kPanel) {
    gemm_micro<M, kPanel, 1>(a, b, kPanel, acc);
    a += kCapacity * kPanel;
    b += kPanel * kPanel;
  }
  ATTNBENCH_UNROLL
  for (int r = 0; r < M; ++r) {
    store(c + r * c_stride, acc[r][0]);
    store(c + r * c_stride + kLanes, acc[r][1]);
  }
}

/// C += A B.
template <int M, int kRowStride, int kStep>
inline void multiply_add(const float* a, const float* b, int depth, float* c, int c_stride) {
  Vec acc[M][2];
  ATTNBENCH_UNROLL
  for (int r = 0; r < M; ++r) {
    acc[r][0] = load(c + r * c_stride);
    acc[r][1] = load(c + r * c_stride + kLanes);
  }
  gemm_micro<M, kRowStride, kStep>(a, b, depth, acc);
  ATTNBENCH_UNROLL
  for (int r = 0; r < M; ++r) {
    store(c + r * c_stride, acc[r][0]);
    store(c + r * c_stride + kLanes, acc[r][1]);
  }
}

/// Columns or rows [begin, end) of a tile.
struct Span {
  int begin, end;
  bool empty() const { return begin >= end; }
};

template <class T>
class Backward {
 public:
  using Storage = typename T::Storage;

  Backward(const AttentionBackwardParams& p, const BackwardTask& task, const BackwardBuffers& buffers,
           float* partials)
      : p_(p),
        t_(task),
        buf_(buffers),
        partials_(partials),
        kv_head_(task.head / (p.num_heads_q / p.num_heads_kv)),
        dim_(round_up(p.head_dim, kPanel)),
        dim_v_(round_up(p.head_dim_v, kPanel)) {}

  double run() {
    const double dsink = start();
    for (int32_t key = 0; key < t_.k_len; key += kBackwardKeys) {
      const int n = std::min(kBackwardKeys, t_.k_len - key);
      std::fill_n(buf_.dk, kBackwardKeys * dim_, 0.0f);
      std::fill_n(buf_.dv, kBackwardKeys * dim_v_, 0.0f);
      const RowBounds rows = rows_that_see(p_, key, key + n - 1, t_.q_len, t_.k_len);
      if (rows.begin < rows.end) {
        load_keys(key, n);
        for (int32_t row = rows.begin; row < rows.end; row += kBackwardRows)
          add_tile(row, std::min(kBackwardRows, rows.end - row), key, n);
      }
      write_keys(key, n);
    }
    write_queries();
    return dsink;
  }

 private:
  const Storage* row(const void* base, int64_t token, int64_t stride_token, int32_t head,
                     int64_t stride_head) const {
    return static_cast<const Storage*>(base) + token * stride_token + head * stride_head;
  }
  const Storage* d_out_row(int32_t i) const {
    return row(p_.d_out, t_.q_begin + i, p_.d_out_stride_token, t_.head, p_.d_out_stride_head);
  }

  /// LSE and delta of every row, and the sink's gradient over them.
  double start() {
    std::fill_n(buf_.dq, static_cast<std::size_t>(t_.q_len) * static_cast<std::size_t>(dim_), 0.0f);
    double dsink = 0;
    const float sink = sink_of(p_, t_.head);
    for (int32_t i = 0; i < t_.q_len; ++i) {
      const Storage* o = row(p_.out, t_.q_begin + i, p_.out_stride_token, t_.head, p_.out_stride_head);
      const Storage* g = d_out_row(i);
      Vec8 sum{};
      int d = 0;
      for (; d + 8 <= p_.head_dim_v; d += 8) sum += T::load8(o + d) * T::load8(g + d);
      if (d < p_.head_dim_v)
        sum += load8_part<T>(o + d, p_.head_dim_v - d) * load8_part<T>(g + d, p_.head_dim_v - d);
      float delta = 0;
      for (int l = 0; l < 8; ++l) delta += sum[l];
      const float lse = p_.lse[t_.head * p_.lse_stride_head + t_.q_begin + i];
      buf_.delta[i] = delta;
      buf_.lse[i] = lse * kLog2E;
      if (p_.features & kSinks)
        dsink -= std::exp(static_cast<double>(sink) - static_cast<double>(lse)) * static_cast<double>(delta);
    }
    return dsink;
  }

  /// `n` rows of a tensor to panels of `capacity` rows.
  void pack_rows(const Storage* base, int64_t stride, int n, int channels, int padded, int capacity,
                 float* to) const {
    for (int r = 0; r < n; ++r) {
      const Storage* x = base + r * stride;
      for (int d = 0; d < padded; d += 8) {
        Vec8 block{};
        if (d < channels) block = d + 8 <= channels ? T::load8(x + d) : load8_part<T>(x + d, channels - d);
        store(to + panel_at(d, capacity) + r * kPanel, block);
      }
    }
  }

  /// `n` rows to transposed panels; rows from n to the end of the last panel become zeros.
  void pack_transposed(const Storage* base, int64_t stride, int n, int channels, int padded,
                       float* to) const {
    for (int j = 0; j < round_up(n, kPanel); j += 8) {
      const int count = std::clamp(n - j, 0, 8);
      float* panel = to + j / kPanel * kPanel * padded + j % kPanel;
      for (int d = 0; d < padded; d += 8) {
        Vec8 block[8] = {};
        for (int i = 0; i < count && d < channels; ++i) {
          const Storage* x = base + (j + i) * stride + d;
          block[i] = d + 8 <= channels ? T::load8(x) : load8_part<T>(x, channels - d);
        }
        transpose_8x8(block);
        ATTNBENCH_UNROLL
        for (int i = 0; i < 8; ++i) store(panel + (d + i) * kPanel, block[i]);
      }
    }
  }

  void load_keys(int32_t key, int n) {
    const Storage* k = row(p_.k, t_.k_begin + key, p_.k_stride_token, kv_head_, p_.k_stride_head);
    const Storage* v = row(p_.v, t_.k_begin + key, p_.v_stride_token, kv_head_, p_.v_stride_head);
    pack_rows(k, p_.k_stride_token, n, p_.head_dim, dim_, kBackwardKeys, buf_.k);
    pack_transposed(k, p_.k_stride_token, n, p_.head_dim, dim_, buf_.k_transposed);
    pack_transposed(v, p_.v_stride_token, n, p_.head_dim_v, dim_v_, buf_.v_transposed);
  }

  /// Columns that some of `rows` rows from `first` on sees, in whole panels.
  Span columns(int32_t first, int rows, int32_t key, int n) const {
    const KeyBounds seen = visible_keys_of_rows(p_, first, first + rows - 1, t_.q_len, t_.k_len);
    const int begin = std::max(seen.begin - key, 0), end = std::min(seen.end - key, n);
    if (begin >= end) return {0, 0};
    return {begin / kPanel * kPanel, round_up(end, kPanel)};
  }

  void add_tile(int32_t first, int rows, int32_t key, int n) {
    const Storage* q = row(p_.q, t_.q_begin + first, p_.q_stride_token, t_.head, p_.q_stride_head);
    pack_rows(q, p_.q_stride_token, rows, p_.head_dim, dim_, kBackwardRows, buf_.q);
    pack_rows(d_out_row(first), p_.d_out_stride_token, rows, p_.head_dim_v, dim_v_, kBackwardRows,
              buf_.d_out);
    for (int g = 0; g < rows; g += kGroupRows) {
      const int m = std::min(kGroupRows, rows - g);
      const Span seen = columns(first + g, m, key, n);
      float* s = buf_.s + g * kBackwardKeys;
      float* dp = buf_.dp + g * kBackwardKeys;
      for (int j = seen.begin; j < seen.end; j += kPanel) {
        with_rows(m, [&]<int kRows>() {
          multiply_panels<kRows, kBackwardRows>(buf_.q + g * kPanel, buf_.k_transposed + j * dim_, dim_,
                                                s + j, kBackwardKeys);
          multiply_panels<kRows, kBackwardRows>(buf_.d_out + g * kPanel, buf_.v_transposed + j * dim_v_,
                                                dim_v_, dp + j, kBackwardKeys);
        });
      }
      for (int r = 0; r < m; ++r)
        find_weights(first + g + r, key, n, seen, s + r * kBackwardKeys, dp + r * kBackwardKeys);
      for (int d = 0; d < dim_; d += kPanel) {
        if (seen.empty()) break;
        float* dq = buf_.dq + static_cast<std::size_t>(first + g) * static_cast<std::size_t>(dim_) + d;
        with_rows(m, [&]<int kRows>() {
          multiply_add<kRows, kBackwardKeys, 1>(dp + seen.begin,
                                                buf_.k + panel_at(d, kBackwardKeys) + seen.begin * kPanel,
                                                std::min(seen.end, n) - seen.begin, dq, dim_);
        });
      }
    }
    for (int j = 0; j < n; j += kGroupRows) {
      const int m = std::min(kGroupRows, n - j);
      const RowBounds see = rows_that_see(p_, key + j, key + j + m - 1, t_.q_len, t_.k_len);
      const Span depth{std::max(see.begin - first, 0), std::min(see.end - first, rows)};
      if (depth.empty()) continue;
      const float* w = buf_.s + depth.begin * kBackwardKeys + j;
      const float* ds = buf_.dp + depth.begin * kBackwardKeys + j;
      with_rows(m, [&]<int kRows>() {
        for (int d = 0; d < dim_v_; d += kPanel) {
          multiply_add<kRows, 1, kBackwardKeys>(
              w, buf_.d_out + panel_at(d, kBackwardRows) + depth.begin * kPanel, depth.end - depth.begin,
              buf_.dv + j * dim_v_ + d, dim_v_);
        }
        for (int d = 0; d < dim_; d += kPanel) {
          multiply_add<kRows, 1, kBackwardKeys>(ds,
                                                buf_.q + panel_at(d, kBackwardRows) + depth.begin * kPanel,
                                                depth.end - depth.begin, buf_.dk + j * dim_ + d, dim_);
        }
      });
    }
  }

  /// Turns scores of row `i` into W, and dP into dS. Columns that the row does not see become 0, in the whole
  /// tile.
  void find_weights(int32_t i, int32_t key, int n, Span seen, float* s, float* dp) const {
    const KeyBounds visible = visible_keys(p_, i, t_.q_len, t_.k_len);
    const int lo = std::clamp(visible.begin - key, 0, n), hi = std::clamp(visible.end - key, lo, n);
    if (lo == hi) seen = {0, 0};
    const float lse = buf_.lse[i], delta = buf_.delta[i];
    const bool plain = (p_.features & (kSoftcap | kAlibi | kDropout)) == 0;
    if (plain) {
      const float scale = p_.softmax_scale * kLog2E;
      for (int j = seen.begin; j < seen.end; j += kLanes) {
        const Vec w = exp2_vec(load(s + j) * scale - lse);
        store(s + j, w);
        store(dp + j, w * (load(dp + j) - delta));
      }
    } else if (!seen.empty()) {
      float slope[kBackwardKeys], keep[kBackwardKeys];
      find_terms(i, key, seen, s, slope, keep);
      for (int j = seen.begin; j < seen.end; j += kLanes) {
        const Vec w = exp2_vec(load(s + j) * kLog2E - lse), kept = load(keep + j);
        store(s + j, w * kept);
        store(dp + j, w * (load(dp + j) * kept - delta) * load(slope + j));
      }
    }
    const auto clear = [&](int from, int to) {
      for (int j = from; j < to; ++j) s[j] = dp[j] = 0.0f;
    };
    clear(0, lo);
    clear(hi, kBackwardKeys);
  }

  /// Scores with scale, softcap and ALiBi, the softcap's derivative, and the factors of dropout.
  __attribute__((noinline)) void find_terms(int32_t i, int32_t key, Span seen, float* s, float* slope,
                                            float* keep) const {
    for (int j = seen.begin; j < seen.end; j += kLanes) {
      Vec t = load(s + j) * p_.softmax_scale;
      Vec c = splat(1.0f);
      if (p_.softcap > 0) {
        const Vec th = tanh_vec(t / p_.softcap);
        c = (1.0f - th) * (1.0f + th);
        t = th * p_.softcap;
      }
      store(s + j, t);
      store(slope + j, c);
      store(keep + j, splat(1.0f));
    }
    if (p_.features & kAlibi) {
      const float alibi = alibi_slope(p_, t_.seq, t_.head);
      const int32_t diagonal = i + t_.k_len - t_.q_len - key;
      for (int j = seen.begin; j < seen.end; ++j)
        s[j] += alibi_bias(alibi, std::abs(diagonal - j), p_.alibi_sqrt != 0);
    }
    if (p_.features & kDropout) {
      const uint32_t threshold = dropout_threshold(p_.p_dropout);
      const float factor = dropout_scale(p_.p_dropout);
      for (int j = seen.begin; j < seen.end; ++j) {
        const bool kept = dropout_keeps(p_.dropout_seed, p_.dropout_offset, t_.head, int64_t{t_.q_begin} + i,
                                        key + j, threshold);
        keep[j] = kept ? factor : 0.0f;
      }
    }
  }

  void write_keys(int32_t key, int n) const {
    for (int j = 0; j < n; ++j) {
      float* dk = buf_.dk + j * dim_;
      const float* dv = buf_.dv + j * dim_v_;
      const int64_t token = int64_t{t_.k_begin} + key + j;
      for (int d = 0; d < p_.head_dim; ++d) dk[d] *= p_.softmax_scale;
      if (partials_ != nullptr) {
        float* to = partials_ + partial_row(p_, t_.head, token);
        std::memcpy(to, dk, static_cast<std::size_t>(p_.head_dim) * sizeof *to);
        std::memcpy(to + p_.head_dim, dv, static_cast<std::size_t>(p_.head_dim_v) * sizeof *to);
        continue;
      }
      store_row(p_.dtype, p_.dk, token * p_.dk_stride_token + kv_head_ * p_.dk_stride_head, dk, p_.head_dim);
      store_row(p_.dtype, p_.dv, token * p_.dv_stride_token + kv_head_ * p_.dv_stride_head, dv,
                p_.head_dim_v);
    }
  }

  void write_queries() const {
    for (int32_t i = 0; i < t_.q_len; ++i) {
      float* dq = buf_.dq + static_cast<std::size_t>(i) * static_cast<std::size_t>(dim_);
      for (int d = 0; d < p_.head_dim; ++d) dq[d] *= p_.softmax_scale;
      const int64_t at = (int64_t{t_.q_begin} + i) * p_.dq_stride_token + t_.head * p_.dq_stride_head;
      store_row(p_.dtype, p_.dq, at, dq, p_.head_dim);
    }
  }

  const AttentionBackwardParams& p_;
  const BackwardTask& t_;
  const BackwardBuffers& buf_;
  float* partials_;
  const int32_t kv_head_;
  const int dim_, dim_v_;
};

}  // namespace

double run_backward(const AttentionBackwardParams& p, const BackwardTask& task,
                    const BackwardBuffers& buffers, float* partials) {
  switch (p.dtype) {
    case DType::kBf16:
      return Backward<Bf16>(p, task, buffers, partials).run();
    case DType::kFp16:
      return Backward<Fp16>(p, task, buffers, partials).run();
    default:
      return Backward<Fp32>(p, task, buffers, partials).run();
  }
}

}  // namespace attnbench::cpu
