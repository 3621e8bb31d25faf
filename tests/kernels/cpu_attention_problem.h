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
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/common/checks.h"
#include "kernels/contract/dropout.h"
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
  int dim_v = 0;        ///< 0: dim
  bool v_is_k = false;  ///< V is a view of K
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
  uint64_t quantised = 0;   ///< kE4m3Kv, kE4m3Q, kInt8Q, kInt8K, kInt8V
  float k_descale_factor = 1.0f;
  float p_dropout = 0.0f;
  bool probs = false;

  int dv() const { return dim_v == 0 ? dim : dim_v; }
  uint64_t base() const { return dtype_feature(dtype); }
  InputDTypes types() const { return input_dtypes(base() | quantised); }
  DType type_of(uint64_t tensor) const {
    return tensor == 0 ? types().q : tensor == 1 || v_is_k ? types().k : types().v;
  }
  // Descales of position `pos` of sequence `id`: no two near each other agree, and none of one tensor is one
  // of another. e4m3 has one per sequence and KV head. Stored numbers reach 8 in e4m3 and 127 in int8.
  float q_descale(uint64_t id, int pos, int head) const {
    if (quantised & kInt8Q) return 0.004f + 0.0007f * static_cast<float>((id * 5 + pos * 7 + head * 3) % 11);
    const int kv_head = head / (heads_q / heads_kv);
    return quantised & kE4m3Q ? 0.07f + 0.011f * static_cast<float>((id * 7 + kv_head * 5) % 16) : 1.0f;
  }
  float k_descale(uint64_t id, int pos, int head) const {
    const float e4m3 = 0.08f + 0.013f * static_cast<float>((id * 5 + head * 3) % 16);
    const float int8 = 0.005f + 0.0009f * static_cast<float>((id * 3 + pos * 5 + head * 7) % 13);
    return k_descale_factor * (quantised & kE4m3Kv ? e4m3 : quantised & kInt8K ? int8 : 1.0f);
  }
  float v_descale(uint64_t id, int head, int channel) const {
    if (v_is_k) return k_descale(id, 0, head);
    if (quantised & kInt8V) return 0.003f + 0.0011f * static_cast<float>((head * 3 + channel * 5) % 9);
    return quantised & kE4m3Kv ? 0.05f + 0.017f * static_cast<float>((id * 3 + head * 7) % 16) : 1.0f;
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

/// Uniform in [-1, 1), in e4m3 [-8, 8), in int8 [-127, 127), rounded to the tensor's dtype: what is stored.
/// Tensors are q, K, V.
inline float value(const Problem& p, uint64_t tensor, uint64_t seq, uint64_t pos, uint64_t head,
                   uint64_t channel) {
  if (tensor == 2 && p.v_is_k) tensor = 1;
  uint64_t x = (((tensor * 1000003 + seq) * 1000003 + pos) * 1009 + head) * 1009 + channel;
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  const float uniform = static_cast<float>(x >> 40) * 0x1p-23f - 1.0f;
  const DType t = p.type_of(tensor);
  const float range = t == DType::kE4m3 ? 8.0f : t == DType::kInt8 ? 127.0f : 1.0f;
  return round_to(t, uniform * range * (tensor == 0 ? p.magnitude : 1.0f));
}

/// O (total_q, Hq, Dv), LSE (Hq, total_q) and probabilities (Hq, total_q, longest key length), rows counted
/// without q_begin.
inline constexpr DType kDTypes[] = {DType::kBf16, DType::kFp16, DType::kFp32};

struct Result {
  std::vector<float> out;
  std::vector<float> lse;
  std::vector<float> probs;
  bool operator==(const Result& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * 4) == 0);
    };
    return same(out, other.out) && same(lse, other.lse) && same(probs, other.probs);
  }
};

/// In elements.
struct Strides {
  int64_t block = 0, token = 0, head = 0;
};

inline constexpr uint64_t kDropoutSeed = 0x123456789abcdefull;
inline constexpr uint64_t kDropoutOffset = 0x500000007ull;

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
    // Rows and heads of the probabilities lie further apart than they are long.
    p.probs_stride_token = p.max_seqlen_k + 3;
    p.probs_stride_head = static_cast<int64_t>(rows) * p.probs_stride_token + 5;
    std::vector<float> probs(
        problem_.probs ? static_cast<std::size_t>(problem_.heads_q * p.probs_stride_head) : 1,
        std::numeric_limits<float>::quiet_NaN());
    p.probs = problem_.probs ? probs.data() : nullptr;
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
    for (int h = 0; problem_.probs && h < problem_.heads_q; ++h) {
      for (int t = 0; t < total; ++t) {
        float* row = &probs[h * p.probs_stride_head + (problem_.q_begin + t) * p.probs_stride_token];
        result.probs.insert(result.probs.end(), row, row + p.max_seqlen_k);
        std::fill_n(row, p.max_seqlen_k, std::numeric_limits<float>::quiet_NaN());
      }
    }
    EXPECT_TRUE(std::all_of(probs.begin(), probs.end(), [](float x) { return std::isnan(x); }))
        << "written outside the probabilities";
    return result;
  }

 private:
  int total_q() const {
    return std::accumulate(problem_.seqs.begin(), problem_.seqs.end(), 0,
                           [](int n, const Seq& s) { return n + s.q; });
  }
  std::size_t q_row() const { return static_cast<std::size_t>(problem_.heads_q) * problem_.dim; }
  std::size_t out_row() const { return static_cast<std::size_t>(problem_.heads_q) * problem_.dv(); }
  uint64_t id(std::size_t b) const { return problem_.seqs[b].id >= 0 ? problem_.seqs[b].id : b; }

  /// All ones is NaN in every floating type; int8 has none, and takes its extreme.
  static std::vector<uint8_t> poisoned(DType t, int64_t elements) {
    return std::vector<uint8_t>(static_cast<std::size_t>(elements) * dtype_size(t),
                                t == DType::kInt8 ? 0x80 : 0xff);
  }
  void put_row(std::vector<uint8_t>& to, int64_t offset, int tensor, std::size_t b, int pos, int head) {
    const DType t = problem_.type_of(tensor);
    for (int d = 0; d < (tensor == 2 ? problem_.dv() : problem_.dim); ++d) {
      store_float(t, to.data(), offset + d, value(problem_, tensor, id(b), pos, head, d));
    }
  }

  void fill_q() {
    cu_q_ = {problem_.q_begin};
    for (const Seq& s : problem_.seqs) cu_q_.push_back(cu_q_.back() + s.q);
    q_ = poisoned(problem_.types().q, (cu_q_.back() + 1) * static_cast<int64_t>(q_row()));
    for (std::size_t b = 0; b < problem_.seqs.size(); ++b) {
      for (int t = 0; t < problem_.seqs[b].q; ++t) {
        for (int h = 0; h < problem_.heads_q; ++h) {
          put_row(q_, (int64_t{cu_q_[b]} + t) * q_row() + h * problem_.dim, 0, b, t, h);
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
  }

  /// Descales, those of rows that must not be read NaN. Strides of K and V differ: (sequence, head) with a
  /// gap, and (head, sequence) with one. Those of int8 K are laid out as K is, with one element to a row.
  void fill_descales() {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    const std::size_t batch = problem_.seqs.size();
    const std::size_t heads = static_cast<std::size_t>(problem_.heads_kv);
    const std::size_t heads_q = static_cast<std::size_t>(problem_.heads_q);
    v_descales_.assign((batch + 1) * (heads + 1) + heads * (problem_.dv() + 1), kNan);
    k_descales_.assign(problem_.quantised & kInt8K ? k_.size() / problem_.dim : (batch + 1) * (heads + 1),
                       kNan);
    q_descales_.assign(std::max<std::size_t>(cu_q_.back() + 1, batch) * (heads_q + 1), kNan);
    for (std::size_t b = 0; b < batch; ++b) {
      for (int h = 0; h < problem_.heads_kv; ++h) {
        if (problem_.quantised & kInt8K) {
          for (int pos = 0; pos < problem_.seqs[b].k; ++pos) {
            k_descales_[(row_offset_(b, pos, k_strides_) + h * k_strides_.head) / problem_.dim] =
                problem_.k_descale(id(b), pos, h);
          }
        } else {
          k_descales_[b * (heads + 1) + h] = problem_.k_descale(id(b), 0, h);
        }
        for (int d = 0; d < (problem_.quantised & kInt8V ? problem_.dv() : 0); ++d) {
          v_descales_[h * (problem_.dv() + 1) + d] = problem_.v_descale(id(b), h, d);
        }
        if (!(problem_.quantised & kInt8V))
          v_descales_[h * (batch + 1) + b] = problem_.v_descale(id(b), h, 0);
      }
      for (int h = 0; h < problem_.heads_q; ++h) {
        if (problem_.quantised & kE4m3Q) {
          const int kv_head = h / (problem_.heads_q / problem_.heads_kv);
          q_descales_[b * (heads_q + 1) + kv_head] = problem_.q_descale(id(b), 0, h);
        } else {
          for (int t = 0; t < problem_.seqs[b].q; ++t) {
            q_descales_[(cu_q_[b] + t) * (heads_q + 1) + h] = problem_.q_descale(id(b), t, h);
          }
        }
      }
    }
  }

  void fill_packed() {
    cu_k_ = {2};  // two rows of poison in front
    for (const Seq& s : problem_.seqs) {
      cu_k_.push_back(cu_k_.back() + s.k + (problem_.gaps ? 3 : 0));
      used_k_.push_back(s.k);
    }
    fill_kv(cu_k_.back() + 2, 1,
            [this](std::size_t b, int pos, const Strides& s) { return (int64_t{cu_k_[b]} + pos) * s.token; });
  }

  void fill_paged() {
    const int size = problem_.block_size;
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
    fill_kv(blocks, size, [this, size](std::size_t b, int pos, const Strides& s) {
      return table_[b * table_stride_ + pos / size] * s.block + pos % size * s.token;
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
    fill_kv(rows, capacity, [this](std::size_t b, int pos, const Strides& s) {
      return cache_rows_[b] * s.block + (leftpad_[b] + pos) * s.token;
    });
  }

  /// Allocates and fills K and V of `blocks` blocks of `size` rows.
  void fill_kv(int64_t blocks, int64_t size,
               std::function<int64_t(std::size_t b, int pos, const Strides&)> row_offset) {
    row_offset_ = std::move(row_offset);
    const auto strides = [&](int64_t dim) {
      const int64_t heads = problem_.heads_kv;
      return problem_.hnd ? Strides{heads * size * dim, dim, size * dim}
                          : Strides{heads * size * dim, heads * dim, dim};
    };
    const int64_t rows = blocks * size * problem_.heads_kv;
    k_strides_ = strides(problem_.dim);
    v_strides_ = problem_.v_is_k ? k_strides_ : strides(problem_.dv());
    k_ = poisoned(problem_.types().k, rows * problem_.dim);
    if (!problem_.v_is_k) v_ = poisoned(problem_.types().v, rows * problem_.dv());
    for (std::size_t b = 0; b < problem_.seqs.size(); ++b) {
      for (int pos = 0; pos < problem_.seqs[b].k; ++pos) {
        for (int h = 0; h < problem_.heads_kv; ++h) {
          put_row(k_, row_offset_(b, pos, k_strides_) + h * k_strides_.head, 1, b, pos, h);
          if (problem_.v_is_k) continue;
          put_row(v_, row_offset_(b, pos, v_strides_) + h * v_strides_.head, 2, b, pos, h);
        }
      }
    }
    fill_descales();
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
    p.features |= problem_.base() | problem_.quantised;
    if (problem_.dv() != problem_.dim) p.features |= kHeadDimV;
    if (problem_.v_is_k) p.features |= kVIsK;
    if (problem_.probs) p.features |= kProbs;
    if (problem_.p_dropout > 0) p.features |= kDropout;
    p.p_dropout = problem_.p_dropout;
    p.dropout_seed = kDropoutSeed;
    p.dropout_offset = kDropoutOffset;
    p.batch = static_cast<int32_t>(problem_.seqs.size());
    p.num_heads_q = problem_.heads_q;
    p.num_heads_kv = problem_.heads_kv;
    p.head_dim = problem_.dim;
    p.head_dim_v = problem_.dv();
    p.total_q = cu_q_.back();
    for (const Seq& s : problem_.seqs) {
      p.max_seqlen_q = std::max(p.max_seqlen_q, s.q);
      p.max_seqlen_k = std::max(p.max_seqlen_k, s.k);
    }
    p.dtype_q = problem_.types().q;
    p.dtype_k = problem_.types().k;
    p.dtype_v = problem_.types().v;
    p.dtype_out = problem_.dtype_out;
    p.q = q_.data();
    p.q_stride_token = static_cast<int64_t>(q_row());
    p.q_stride_head = problem_.dim;
    p.out_stride_token = static_cast<int64_t>(out_row());
    p.out_stride_head = problem_.dv();
    p.cu_seqlens_q = cu_q_.data();
    p.k = k_.data();
    p.v = problem_.v_is_k ? k_.data() : v_.data();
    p.k_stride_block = k_strides_.block;
    p.k_stride_token = k_strides_.token;
    p.k_stride_head = k_strides_.head;
    p.v_stride_block = v_strides_.block;
    p.v_stride_token = v_strides_.token;
    p.v_stride_head = v_strides_.head;
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
    if (problem_.quantised & (kE4m3Q | kInt8Q)) {
      p.q_descale = q_descales_.data();
      p.q_descale_stride_outer = problem_.heads_q + 1;
      p.q_descale_stride_head = 1;
    }
    if (problem_.quantised & kE4m3Kv) {
      p.k_descale = k_descales_.data();
      p.k_descale_stride_outer = problem_.heads_kv + 1;
      p.k_descale_stride_head = 1;
      p.v_descale = v_descales_.data();
      p.v_descale_stride_outer = 1;
      p.v_descale_stride_head = p.batch + 1;
    }
    if (problem_.quantised & kInt8K) {
      p.k_descale = k_descales_.data();
      p.k_descale_stride_block = k_strides_.block / problem_.dim;
      p.k_descale_stride_outer = k_strides_.token / problem_.dim;
      p.k_descale_stride_head = k_strides_.head / problem_.dim;
    }
    if (problem_.quantised & kInt8V) {
      p.v_descale = v_descales_.data();
      p.v_descale_stride_head = problem_.dv() + 1;
    }
  }

  const Problem problem_;
  std::vector<uint8_t> q_, k_, v_;
  std::vector<int32_t> cu_q_, cu_k_, used_k_, table_, cache_rows_, leftpad_;
  std::vector<float> slopes_, sinks_, q_descales_, k_descales_, v_descales_;
  std::size_t table_stride_ = 0, slopes_stride_ = 0;
  int32_t num_blocks_ = 0;
  Strides k_strides_, v_strides_;
  std::function<int64_t(std::size_t, int, const Strides&)> row_offset_;
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
  int longest = 0;
  for (const Seq& s : p.seqs) longest = std::max(longest, s.k);
  int begin = 0;
  int failures = 0;
  for (std::size_t b = 0; b < p.seqs.size(); begin += p.seqs[b++].q) {
    const Seq& s = p.seqs[b];
    const uint64_t id = s.id >= 0 ? s.id : b;
    std::vector<double> score(static_cast<std::size_t>(s.k)), o(static_cast<std::size_t>(p.dv()));
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
          dot *= double{p.q_descale(id, i, h)} * p.k_descale(id, j, kv_head) * p.softmax_scale();
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
          if (p.p_dropout > 0 && !dropout_keeps(kDropoutSeed, kDropoutOffset, h, p.q_begin + begin + i, j,
                                                dropout_threshold(p.p_dropout))) {
            continue;
          }
          for (int d = 0; d < p.dv(); ++d) o[d] += weight * value(p, 2, id, j, kv_head, d);
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
        for (int j = 0; p.probs && j < longest; ++j) {
          const bool seen = j < s.k && !std::isinf(score[j]);
          const double expected = seen ? std::exp(score[j] - top) / sum : 0.0;
          const float x = got.probs[(static_cast<std::size_t>(h) * total + begin + i) * longest + j];
          if (!(std::abs(x - expected) <= 2 * row_slack * expected)) {
            ADD_FAILURE() << place << " key " << j << ": p " << x << " expected " << expected;
            ++failures;
          }
        }
        for (int d = 0; d < p.dv(); ++d) {
          const double expected =
              empty ? 0 : o[d] * p.v_descale(id, kv_head, d) / (1 - double{p.p_dropout}) / sum;
          const float x = got.out[((static_cast<std::size_t>(begin) + i) * p.heads_q + h) * p.dv() + d];
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
