// A small attention problem built, run and solved naively, for tests of the cpu kernel.
//
// Values are functions of (tensor, sequence id, position, head, channel), so that one logical problem can be
// laid out in several ways. Everything that a kernel must not read is NaN, and table entries past the end are
// junk.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace attnbench::testing {

struct Seq {
  int q;
  int k;
  int id = -1;  ///< whose values; -1: the index in the batch
};

enum class Cache { kNone, kRows, kIndexed };  ///< contiguous: in order, or shuffled and with left padding
enum class Slopes { kNone, kPerHead, kPerSequence };

struct Problem {
  std::vector<Seq> seqs;
  int heads_q = 2;
  int heads_kv = 2;
  int dim = 64;
  DType dtype = DType::kFp32;
  DType dtype_out = DType::kFp32;
  int block_size = 0;  ///< 0: packed
  bool hnd = false;
  bool gaps = false;  ///< packed: slots longer than the sequences (seqused_k)
  bool causal = false;
  int window_left = -1;
  int window_right = -1;
  float softcap = 0.0f;
  float scale = 0.0f;  ///< 0: 1 / sqrt(dim)
  bool zero_scale = false;
  float magnitude = 1.0f;  ///< of q
  int q_begin = 0;         ///< cu_seqlens_q[0]
  unsigned shuffle = 1;    ///< seed of the order of pages and cache rows
  Cache cache = Cache::kNone;
  Slopes alibi = Slopes::kNone;
  float slope_factor = 1.0f;
  bool alibi_sqrt = false;
  bool sinks = false;
  float sink_shift = 0.0f;  ///< added to each sink
  bool e4m3_kv = false;     ///< K and V in e4m3 with descales
  float k_descale_factor = 1.0f;

  DType kv_dtype() const { return e4m3_kv ? DType::kE4m3 : dtype; }
  /// Of sequence `id`, KV head `head`: no two near each other agree, and no descale of K is one of V.
  float k_descale(uint64_t id, int head) const {
    return e4m3_kv ? k_descale_factor * (0.08f + 0.013f * static_cast<float>((id * 5 + head * 3) % 16))
                   : 1.0f;
  }
  float v_descale(uint64_t id, int head) const {
    return e4m3_kv ? 0.05f + 0.017f * static_cast<float>((id * 3 + head * 7) % 16) : 1.0f;
  }
  bool paged() const { return block_size > 0; }
  bool contiguous() const { return cache != Cache::kNone; }
  /// Of sequence `id`. One head has slope 0, one a negative one.
  float slope(uint64_t id, int head) const {
    const float of_sequence = alibi == Slopes::kPerSequence ? 0.013f * static_cast<float>(id) : 0.0f;
    return slope_factor * (head == 1 ? 0.0f : head == 3 ? -0.001f : 0.3f / (head + 1) + of_sequence);
  }
  /// Every fifth head has none: -inf.
  float sink(int head) const {
    return head % 5 == 4 ? -std::numeric_limits<float>::infinity() : 0.7f * head - 1.3f + sink_shift;
  }
  float softmax_scale() const {
    return zero_scale ? 0.0f : scale != 0.0f ? scale : 1.0f / std::sqrt(static_cast<float>(dim));
  }
};

/// Uniform in [-1, 1), in e4m3 [-8, 8), rounded to the tensor's dtype: what is stored. Tensors are q, K, V.
inline float value(const Problem& p, uint64_t tensor, uint64_t seq, uint64_t pos, uint64_t head,
                   uint64_t channel) {
  uint64_t x = (((tensor * 1000003 + seq) * 1000003 + pos) * 1009 + head) * 1009 + channel;
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  const float uniform = static_cast<float>(x >> 40) * 0x1p-23f - 1.0f;
  if (tensor == 0) return round_to(p.dtype, uniform * p.magnitude);
  return round_to(p.kv_dtype(), p.e4m3_kv ? uniform * 8 : uniform);
}

/// O (total_q, Hq, D) and LSE (Hq, total_q), rows counted without q_begin.
struct Result {
  std::vector<float> out;
  std::vector<float> lse;
  bool operator==(const Result& other) const {
    return out.size() == other.out.size() && lse.size() == other.lse.size() &&
           std::memcmp(out.data(), other.out.data(), out.size() * 4) == 0 &&
           std::memcmp(lse.data(), other.lse.data(), lse.size() * 4) == 0;
  }
};

/// Tensors of a problem in memory, and the parameters that describe them.
class Layout {
 public:
  explicit Layout(const Problem& problem) : problem_(problem) {
    fill_q();
    fill_terms();
    if (problem_.paged()) {
      fill_paged();
    } else if (problem_.contiguous()) {
      fill_contiguous();
    } else {
      fill_packed();
    }
    set_params();
  }
  Layout(const Layout&) = delete;

  OpParams& params() { return params_; }

  Result run(int threads = 2) {
    const int total = total_q();
    const std::size_t rows = static_cast<std::size_t>(problem_.q_begin + total + 1);  // one guard row
    std::vector<uint8_t> out(rows * out_row() * dtype_size(problem_.dtype_out), 0xff);
    std::vector<float> lse(rows * problem_.heads_q, std::numeric_limits<float>::quiet_NaN());
    AttentionParams& p = params_.attention;
    p.out = out.data();
    p.lse = lse.data();
    p.lse_stride_head = static_cast<int64_t>(rows);
    LaunchContext context{};
    context.num_threads = threads;
    KernelMessage message{};
    EXPECT_EQ(cpu::kAttention.supports(&params_, &context, &message), KernelStatus::kOk) << message.text;
    EXPECT_EQ(cpu::kAttention.launch(&params_, &context, &message), KernelStatus::kOk) << message.text;

    Result result;
    const std::size_t begin = static_cast<std::size_t>(problem_.q_begin) * out_row();
    const std::size_t end = begin + static_cast<std::size_t>(total) * out_row();
    for (std::size_t i = 0; i < rows * out_row(); ++i) {
      const float x = load_float(problem_.dtype_out, out.data(), static_cast<int64_t>(i));
      if (i >= begin && i < end) {
        result.out.push_back(x);
      } else {
        EXPECT_TRUE(std::isnan(x)) << "written outside its rows at element " << i;
      }
    }
    for (int h = 0; h < problem_.heads_q; ++h) {
      for (int t = 0; t < total; ++t) result.lse.push_back(lse[h * rows + problem_.q_begin + t]);
    }
    return result;
  }

 private:
  int total_q() const {
    return std::accumulate(problem_.seqs.begin(), problem_.seqs.end(), 0,
                           [](int n, const Seq& s) { return n + s.q; });
  }
  std::size_t out_row() const { return static_cast<std::size_t>(problem_.heads_q) * problem_.dim; }
  uint64_t id(std::size_t b) const { return problem_.seqs[b].id >= 0 ? problem_.seqs[b].id : b; }

  /// All ones is NaN in every type.
  static std::vector<uint8_t> poisoned(DType t, int64_t elements) {
    return std::vector<uint8_t>(static_cast<std::size_t>(elements) * dtype_size(t), 0xff);
  }
  void put_row(std::vector<uint8_t>& to, int64_t offset, int tensor, std::size_t b, int pos, int head) {
    const DType t = tensor == 0 ? problem_.dtype : problem_.kv_dtype();
    for (int d = 0; d < problem_.dim; ++d) {
      store_float(t, to.data(), offset + d, value(problem_, tensor, id(b), pos, head, d));
    }
  }

  void fill_q() {
    cu_q_ = {problem_.q_begin};
    for (const Seq& s : problem_.seqs) cu_q_.push_back(cu_q_.back() + s.q);
    q_ = poisoned(problem_.dtype, (cu_q_.back() + 1) * static_cast<int64_t>(out_row()));
    for (std::size_t b = 0; b < problem_.seqs.size(); ++b) {
      for (int t = 0; t < problem_.seqs[b].q; ++t) {
        for (int h = 0; h < problem_.heads_q; ++h) {
          put_row(q_, (int64_t{cu_q_[b]} + t) * out_row() + h * problem_.dim, 0, b, t, h);
        }
      }
    }
  }

  void fill_terms() {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    slopes_stride_ = problem_.alibi == Slopes::kPerSequence ? problem_.heads_q + 2 : 0;
    const std::size_t rows = slopes_stride_ > 0 ? problem_.seqs.size() : 1;
    slopes_.assign(rows * (problem_.heads_q + 2), kNan);
    sinks_.assign(static_cast<std::size_t>(problem_.heads_q) + 1, kNan);
    for (int h = 0; h < problem_.heads_q; ++h) {
      for (std::size_t b = 0; b < rows; ++b) {
        slopes_[b * slopes_stride_ + h] = problem_.slope(problem_.seqs.empty() ? 0 : id(b), h);
      }
      sinks_[h] = problem_.sink(h);
    }
    // Strides of K and V differ: (sequence, head) with a gap, and (head, sequence) with one.
    const std::size_t batch = problem_.seqs.size();
    const std::size_t heads = static_cast<std::size_t>(problem_.heads_kv);
    k_descales_.assign((batch + 1) * (heads + 1), kNan);
    v_descales_ = k_descales_;
    for (std::size_t b = 0; b < batch; ++b) {
      for (std::size_t h = 0; h < heads; ++h) {
        k_descales_[b * (heads + 1) + h] = problem_.k_descale(id(b), static_cast<int>(h));
        v_descales_[h * (batch + 1) + b] = problem_.v_descale(id(b), static_cast<int>(h));
      }
    }
  }

  void fill_packed() {
    const int64_t row = int64_t{problem_.heads_kv} * problem_.dim;
    cu_k_ = {2};  // two rows of poison in front
    for (const Seq& s : problem_.seqs) {
      cu_k_.push_back(cu_k_.back() + s.k + (problem_.gaps ? 3 : 0));
      used_k_.push_back(s.k);
    }
    k_ = poisoned(problem_.kv_dtype(), (cu_k_.back() + 2) * row);
    v_ = k_;
    stride_token_ = row;
    stride_head_ = problem_.dim;
    fill_kv([&](std::size_t b, int pos) { return (int64_t{cu_k_[b]} + pos) * row; });
  }

  void fill_paged() {
    const int size = problem_.block_size;
    const int64_t block = int64_t{problem_.heads_kv} * problem_.dim * size;
    int blocks = 1;
    int longest = 0;
    for (const Seq& s : problem_.seqs) {
      blocks += (s.k + size - 1) / size;
      longest = std::max(longest, (s.k + size - 1) / size);
      used_k_.push_back(s.k);
    }
    std::vector<int> order(static_cast<std::size_t>(blocks));
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(problem_.shuffle);
    std::shuffle(order.begin(), order.end(), random);
    table_stride_ = longest + 1;
    table_.assign(problem_.seqs.size() * table_stride_, 0x7ffffff0);
    std::size_t next = 0;
    for (std::size_t b = 0; b < problem_.seqs.size(); ++b) {
      for (int i = 0; i * size < problem_.seqs[b].k; ++i) table_[b * table_stride_ + i] = order[next++];
    }
    num_blocks_ = blocks;
    k_ = poisoned(problem_.kv_dtype(), blocks * block);
    v_ = k_;
    stride_block_ = block;
    stride_token_ = problem_.hnd ? problem_.dim : int64_t{problem_.heads_kv} * problem_.dim;
    stride_head_ = problem_.hnd ? int64_t{size} * problem_.dim : problem_.dim;
    fill_kv([&](std::size_t b, int pos) {
      return table_[b * table_stride_ + pos / size] * stride_block_ + pos % size * stride_token_;
    });
  }

  /// Two cache rows stay unused, and each row has room beyond its sequence.
  void fill_contiguous() {
    const bool indexed = problem_.cache == Cache::kIndexed;
    const int rows = static_cast<int>(problem_.seqs.size()) + 2;
    cache_rows_.resize(static_cast<std::size_t>(rows));
    std::iota(cache_rows_.begin(), cache_rows_.end(), 0);
    std::mt19937 random(problem_.shuffle);
    if (indexed) std::shuffle(cache_rows_.begin(), cache_rows_.end(), random);
    int capacity = 1;
    for (std::size_t b = 0; b < problem_.seqs.size(); ++b) {
      leftpad_.push_back(indexed ? (static_cast<int>(b) * 5 + 3) % 7 : 0);
      used_k_.push_back(problem_.seqs[b].k);
      capacity = std::max(capacity, leftpad_.back() + problem_.seqs[b].k + 2);
    }
    num_blocks_ = rows;
    stride_token_ = int64_t{problem_.heads_kv} * problem_.dim;
    stride_head_ = problem_.dim;
    stride_block_ = stride_token_ * capacity;
    k_ = poisoned(problem_.kv_dtype(), rows * stride_block_);
    v_ = k_;
    fill_kv([&](std::size_t b, int pos) {
      return cache_rows_[b] * stride_block_ + (leftpad_[b] + pos) * stride_token_;
    });
  }

  template <class RowOffset>
  void fill_kv(RowOffset&& row_offset) {
    for (std::size_t b = 0; b < problem_.seqs.size(); ++b) {
      for (int pos = 0; pos < problem_.seqs[b].k; ++pos) {
        for (int h = 0; h < problem_.heads_kv; ++h) {
          put_row(k_, row_offset(b, pos) + h * stride_head_, 1, b, pos, h);
          put_row(v_, row_offset(b, pos) + h * stride_head_, 2, b, pos, h);
        }
      }
    }
  }

  void set_params() {
    params_ = {};
    params_.op = Op::kAttention;
    AttentionParams& p = params_.attention;
    p = {};
    const bool paged = problem_.paged();
    const bool contiguous = problem_.contiguous();
    p.features = paged ? kPagedKv : contiguous ? kContiguousKv : kPackedKv;
    if (problem_.hnd) p.features |= kHnd;
    if (problem_.gaps) p.features |= kPartialKv;
    if (problem_.causal) p.features |= kCausal;
    if (problem_.softcap > 0) p.features |= kSoftcap;
    if (problem_.window_left >= 0 || problem_.window_right >= 0) p.features |= kWindow;
    if (problem_.alibi != Slopes::kNone) p.features |= kAlibi;
    if (problem_.sinks) p.features |= kSinks;
    p.features |= problem_.dtype == DType::kBf16 ? kBf16 : problem_.dtype == DType::kFp16 ? kFp16 : kFp32;
    p.batch = static_cast<int32_t>(problem_.seqs.size());
    p.num_heads_q = problem_.heads_q;
    p.num_heads_kv = problem_.heads_kv;
    p.head_dim = problem_.dim;
    p.total_q = cu_q_.back();
    for (const Seq& s : problem_.seqs) {
      p.max_seqlen_q = std::max(p.max_seqlen_q, s.q);
      p.max_seqlen_k = std::max(p.max_seqlen_k, s.k);
    }
    p.dtype_q = problem_.dtype;
    p.dtype_k = p.dtype_v = problem_.kv_dtype();
    p.dtype_out = problem_.dtype_out;
    p.q = q_.data();
    p.q_stride_token = p.out_stride_token = static_cast<int64_t>(out_row());
    p.q_stride_head = p.out_stride_head = problem_.dim;
    p.cu_seqlens_q = cu_q_.data();
    p.k = k_.data();
    p.v = v_.data();
    p.k_stride_block = p.v_stride_block = stride_block_;
    p.k_stride_token = p.v_stride_token = stride_token_;
    p.k_stride_head = p.v_stride_head = stride_head_;
    if (paged) {
      p.block_table = table_.data();
      p.block_table_stride = static_cast<int64_t>(table_stride_);
      p.block_size = problem_.block_size;
      p.num_blocks = num_blocks_;
    } else if (contiguous) {
      p.num_blocks = num_blocks_;
      if (problem_.cache == Cache::kIndexed) {
        p.cache_batch_idx = cache_rows_.data();
        p.cache_leftpad = leftpad_.data();
      }
    } else {
      p.cu_seqlens_k = cu_k_.data();
    }
    if (paged || contiguous || problem_.gaps) p.seqused_k = used_k_.data();
    p.causal = problem_.causal;
    p.window_left = problem_.window_left;
    p.window_right = problem_.window_right;
    p.softmax_scale = problem_.softmax_scale();
    p.softcap = problem_.softcap;
    if (p.features & kAlibi) {
      p.alibi_slopes = slopes_.data();
      p.alibi_stride_batch = static_cast<int64_t>(slopes_stride_);
      p.alibi_sqrt = problem_.alibi_sqrt;
    }
    if (p.features & kSinks) p.sinks = sinks_.data();
    if (problem_.e4m3_kv) {
      p.features |= kE4m3Kv;
      p.k_descale = k_descales_.data();
      p.k_descale_stride_outer = problem_.heads_kv + 1;
      p.k_descale_stride_head = 1;
      p.v_descale = v_descales_.data();
      p.v_descale_stride_outer = 1;
      p.v_descale_stride_head = p.batch + 1;
    }
  }

  const Problem problem_;
  std::vector<uint8_t> q_, k_, v_;
  std::vector<int32_t> cu_q_, cu_k_, used_k_, table_, cache_rows_, leftpad_;
  std::vector<float> slopes_, sinks_, k_descales_, v_descales_;
  std::size_t table_stride_ = 0, slopes_stride_ = 0;
  int32_t num_blocks_ = 0;
  int64_t stride_block_ = 0, stride_token_ = 0, stride_head_ = 0;
  OpParams params_{};
};

inline Result run(const Problem& p, int threads = 2) { return Layout(p).run(threads); }

/// Expects the kernel's result to match plain double loops: outputs to their own rounding and a few fp32
/// ulps.
inline void expect_right(const Problem& p, int threads = 2) {
  const Result got = run(p, threads);
  const int total =
      std::accumulate(p.seqs.begin(), p.seqs.end(), 0, [](int n, const Seq& s) { return n + s.q; });
  const double u_out = unit_roundoff(p.dtype_out);
  const double slack = 4e-6 * std::max(1.0f, p.magnitude);
  int begin = 0;
  int failures = 0;
  for (std::size_t b = 0; b < p.seqs.size(); begin += p.seqs[b++].q) {
    const Seq& s = p.seqs[b];
    const uint64_t id = s.id >= 0 ? s.id : b;
    std::vector<double> score(static_cast<std::size_t>(s.k)), o(static_cast<std::size_t>(p.dim));
    for (int h = 0; h < p.heads_q; ++h) {
      const int kv_head = h / (p.heads_q / p.heads_kv);
      for (int i = 0; i < s.q; ++i) {
        double top = -std::numeric_limits<double>::infinity();
        for (int j = 0; j < s.k; ++j) {
          const int64_t diagonal = int64_t{i} + s.k - s.q;
          const int64_t right = p.causal ? 0 : p.window_right;
          const bool seen =
              (p.window_left < 0 || j >= diagonal - p.window_left) && (right < 0 || j <= diagonal + right);
          double dot = 0;
          for (int d = 0; d < p.dim; ++d)
            dot += double{value(p, 0, id, i, h, d)} * value(p, 1, id, j, kv_head, d);
          dot *= double{p.k_descale(id, kv_head)} * p.softmax_scale();
          if (p.softcap > 0) dot = p.softcap * std::tanh(dot / p.softcap);
          if (p.alibi != Slopes::kNone) {
            const double distance = static_cast<double>(std::abs(diagonal - j));
            dot -= p.slope(id, h) * (p.alibi_sqrt ? std::sqrt(distance) : distance);
          }
          score[j] = seen ? dot : -std::numeric_limits<double>::infinity();
          top = std::max(top, score[j]);
        }
        const float sink = p.sinks ? p.sink(h) : -std::numeric_limits<float>::infinity();
        const bool empty = std::isinf(top);
        // An fp32 score is off by its own rounding, which grows with the bias in it.
        const double row_slack = empty ? slack : slack * std::max(1.0, std::abs(top) / 8);
        top = std::max(top, double{sink});
        double sum = std::isinf(sink) ? 0 : std::exp(sink - top);
        std::fill(o.begin(), o.end(), 0.0);
        for (int j = 0; j < s.k; ++j) {
          if (std::isinf(score[j])) continue;
          const double weight = std::exp(score[j] - top);
          sum += weight;
          for (int d = 0; d < p.dim; ++d) o[d] += weight * value(p, 2, id, j, kv_head, d);
        }
        const float got_lse = got.lse[static_cast<std::size_t>(h) * total + begin + i];
        const std::string place =
            "sequence " + std::to_string(b) + " row " + std::to_string(i) + " head " + std::to_string(h);
        if (empty) {
          EXPECT_EQ(got_lse, sink) << place;
        } else if (const double lse = top + std::log(sum);
                   !(std::abs(got_lse - lse) <= row_slack * (1 + std::abs(lse)))) {
          ADD_FAILURE() << place << " lse " << got_lse << " expected " << lse;
          ++failures;
        }
        for (int d = 0; d < p.dim; ++d) {
          const double expected = empty ? 0 : o[d] * p.v_descale(id, kv_head) / sum;
          const float x = got.out[((static_cast<std::size_t>(begin) + i) * p.heads_q + h) * p.dim + d];
          if (!(std::abs(x - expected) <= (empty ? 0 : 1.01 * u_out * std::abs(expected) + row_slack))) {
            ADD_FAILURE() << place << " channel " << d << ": " << x << " expected " << expected;
            ++failures;
          }
        }
        if (failures > 5) return;
      }
    }
  }
}

}  // namespace attnbench::testing
