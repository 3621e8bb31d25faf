// Lays out a problem in memory and runs the cpu kernel on it. Everything that a kernel must not read is NaN,
// and block table entries past the end are junk.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <utility>

#include "kernels/cpu/cpu_kernels.h"
#include "tests/kernels/cpu_attention_problem.h"

namespace attnbench::testing {

/// Tensors of a problem in memory, and the parameters that describe them.
class Layout {
 public:
  explicit Layout(const Problem& problem) : problem_(problem) {
    fill_q();
    fill_terms();
    fill_mask();
    if (problem_.paged()) {
      fill_paged();
    } else if (problem_.contiguous()) {
      fill_contiguous();
    } else {
      fill_packed();
    }
    fill_lists();
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
    p.lse_stride_token = problem_.heads_q;
    // Strides of the probabilities are longer than their rows and heads.
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
      for (int t = 0; t < total; ++t) {
        const int row = problem_.q_begin + t;
        const float x = problem_.lse_token_major ? lse[row * problem_.heads_q + h] : lse[h * rows + row];
        result.lse.push_back(problem_.lse_base2 ? static_cast<float>(x * 0.69314718055994530942) : x);
      }
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

  void put_row(std::vector<uint8_t>& to, int64_t offset, int tensor, std::size_t b, int pos, int head) {
    const DType t = problem_.type_of(tensor);
    for (int d = 0; d < (tensor >= 2 ? problem_.dv() : problem_.dim); ++d) {
      store_float(t, to.data(), offset + d, value(problem_, tensor, id(b), pos, head, d));
    }
  }

  void fill_q() {
    cu_q_ = {problem_.q_begin};
    for (const Seq& s : problem_.seqs) cu_q_.push_back(cu_q_.back() + s.q);
    q_ = poisoned(problem_.types().q, (cu_q_.back() + 1) * static_cast<int64_t>(q_row()));
    if (problem_.qv) qv_ = poisoned(problem_.types().q, (cu_q_.back() + 1) * static_cast<int64_t>(out_row()));
    for (std::size_t b = 0; b < problem_.seqs.size(); ++b) {
      for (int t = 0; t < problem_.seqs[b].q; ++t) {
        for (int h = 0; h < problem_.heads_q; ++h) {
          const int64_t row = int64_t{cu_q_[b]} + t;
          put_row(q_, row * q_row() + h * problem_.dim, 0, b, t, h);
          if (problem_.qv) put_row(qv_, row * out_row() + h * problem_.dv(), 3, b, t, h);
        }
      }
    }
  }

  /// Lists in falling order of the keys, with -1 behind every second one. Entries past their ends, between lists and of
  /// no query are junk.
  void fill_lists() {
    if (problem_.topk == 0) return;
    const std::size_t stride = static_cast<std::size_t>(problem_.topk) + 3;
    lists_.assign((static_cast<std::size_t>(cu_q_.back()) + 1) * problem_.heads_kv * stride, 0x7ffffff0);
    list_lengths_.assign(static_cast<std::size_t>(cu_q_.back()) + 1, problem_.topk);
    for (std::size_t b = 0; b < problem_.seqs.size(); ++b) {
      const Seq& s = problem_.seqs[b];
      for (int i = 0; i < s.q; ++i) {
        std::size_t longest = 0;
        for (int h = 0; h < problem_.heads_kv; ++h) {
          std::vector<int32_t> list;
          for (int j = s.k - 1; j >= 0; --j) {
            if (!problem_.in_interval(s, i, j) || !problem_.lists(id(b), i, h, j)) continue;
            const int size = problem_.block_size;
            list.push_back(problem_.paged() ? table_[b * table_stride_ + j / size] * size + j % size
                                            : cu_k_[b] + j);
            if (list.size() % 3 == 2) list.push_back(-1);
          }
          EXPECT_LE(list.size(), static_cast<std::size_t>(problem_.topk));
          std::copy(list.begin(), list.end(),
                    lists_.begin() +
                        static_cast<std::ptrdiff_t>(((cu_q_[b] + i) * problem_.heads_kv + h) * stride));
          longest = std::max(longest, list.size());
        }
        for (int h = 0; h < problem_.heads_kv; ++h) {  // the lists of a query are of one length
          int32_t* list = &lists_[((cu_q_[b] + i) * problem_.heads_kv + h) * stride];
          std::replace(list, list + longest, 0x7ffffff0, -1);
        }
        list_lengths_[static_cast<std::size_t>(cu_q_[b] + i)] = static_cast<int32_t>(longest);
      }
    }
  }

  /// Bits that belong to no query and key are 1. The first sequence begins at byte 1.
  void fill_mask() {
    mask_.assign(1, 0xff);
    mask_indptr_ = {1};
    for (std::size_t b = 0; b < problem_.seqs.size(); ++b) {
      const Seq& s = problem_.seqs[b];
      mask_.resize(mask_.size() + static_cast<std::size_t>((int64_t{s.q} * s.k + 7) / 8), 0xff);
      for (int n = 0; n < s.q * s.k; ++n) {
        if (!problem_.sees(id(b), n / s.k, n % s.k))
          mask_[static_cast<std::size_t>(mask_indptr_.back() + n / 8)] &=
              static_cast<uint8_t>(~(1u << (n % 8)));
      }
      mask_indptr_.push_back(static_cast<int32_t>(mask_.size()));
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

  /// Descales; those of rows that must not be read are NaN. Strides of K and V differ: (sequence, head) with
  /// a gap, and (head, sequence) with another gap. Those per row are laid out like K, with one element per row, and
  /// twice as far apart for V.
  void fill_descales() {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    const std::size_t batch = problem_.seqs.size();
    const std::size_t heads = static_cast<std::size_t>(problem_.heads_kv);
    const std::size_t heads_q = static_cast<std::size_t>(problem_.heads_q);
    const std::size_t rows = k_.size() / problem_.dim;
    v_descales_.assign(2 * rows + (batch + 1) * (heads + 1) + heads * (problem_.dv() + 1), kNan);
    k_descales_.assign((rows + batch + 2) * (heads + 1), kNan);
    q_descales_.assign(std::max<std::size_t>(cu_q_.back() + 1, batch) * (heads_q + 1), kNan);
    cu_q_descales_ = problem_.descale_begins(true);
    cu_k_descales_ = problem_.descale_begins(false);
    for (std::size_t b = 0; b < batch; ++b) {
      for (int h = 0; h < problem_.heads_kv; ++h) {
        if (!problem_.k_rows()) k_descales_[b * (heads + 1) + h] = problem_.k_descale(id(b), 0, h);
        for (int pos = 0; pos < problem_.seqs[b].k; ++pos) {
          const auto row = (row_offset_(b, pos, k_strides_) + h * k_strides_.head) / problem_.dim;
          const int64_t of_k = problem_.k_shared > 1 ? k_block(b, pos) + h : row;
          if (problem_.k_rows()) k_descales_[of_k] = problem_.k_descale(id(b), pos, h);
          if (problem_.v_rows()) v_descales_[2 * row] = problem_.v_descale(id(b), pos, h, 0);
        }
        if (problem_.v_rows()) continue;
        for (int d = 0; d < (problem_.quantised & kInt8V ? problem_.dv() : 0); ++d) {
          v_descales_[h * (problem_.dv() + 1) + d] = problem_.v_descale(id(b), 0, h, d);
        }
        if (!(problem_.quantised & kInt8V))
          v_descales_[h * (batch + 1) + b] = problem_.v_descale(id(b), 0, h, 0);
      }
      for (int h = 0; h < problem_.heads_q; ++h) {
        if (problem_.quantised & kE4m3Q) {
          const int kv_head = h / (problem_.heads_q / problem_.heads_kv);
          q_descales_[b * (heads_q + 1) + kv_head] = problem_.q_descale(id(b), 0, h);
        } else {
          for (int t = 0; t < problem_.seqs[b].q; ++t) {
            const int row = problem_.q_shared > 1 ? cu_q_descales_[b] + t / problem_.q_shared : cu_q_[b] + t;
            q_descales_[row * (heads_q + 1) + h] = problem_.q_descale(id(b), t, h);
          }
        }
      }
    }
  }

  /// Index of the descale of KV head 0 of the block of keys with key `pos`: there is a gap behind the heads.
  int64_t k_block(std::size_t b, int pos) const {
    const int shared = problem_.k_shared, size = problem_.block_size;
    const int at = problem_.paged() ? table_[b * table_stride_ + pos / size] * size + pos % size : pos;
    return (problem_.heads_kv + 1) * (at / shared + (problem_.paged() ? 0 : cu_k_descales_[b]));
  }

  void fill_packed() {
    cu_k_ = {2};  // two rows of poison come first
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

  /// Two cache rows stay unused, and each row is longer than its sequence.
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

  uint64_t features() const {
    uint64_t f = problem_.paged() ? kPagedKv : problem_.contiguous() ? kContiguousKv : kPackedKv;
    if (problem_.hnd) f |= kHnd;
    if (problem_.gaps) f |= kPartialKv;
    if (problem_.causal) f |= kCausal;
    if (problem_.softcap > 0) f |= kSoftcap;
    if (problem_.window_left >= 0 || problem_.window_right >= 0) f |= kWindow;
    if (problem_.attention_chunk > 0) f |= kAttentionChunk;
    if (problem_.custom_mask) f |= kCustomMask;
    if (problem_.topk > 0) f |= kTopkIndices;
    if (problem_.lse_base2) f |= kLseBase2;
    if (problem_.q_shared > 1 || problem_.k_shared > 1) f |= kDescaleRows;
    if (problem_.lse_token_major) f |= kLseTokenMajor;
    if (problem_.alibi != Slopes::kNone) f |= kAlibi;
    if (problem_.sinks) f |= kSinks;
    if (problem_.dv() != problem_.dim) f |= kHeadDimV;
    if (problem_.v_is_k) f |= kVIsK;
    if (problem_.qv) f |= kQv;
    if (problem_.probs) f |= kProbs;
    if (problem_.p_dropout > 0) f |= kDropout;
    return f | problem_.base() | problem_.quantised;
  }

  void set_params() {
    params_ = {};
    params_.op = Op::kAttention;
    AttentionParams& p = params_.attention;
    p = {};
    p.features = features();
    set_shape(p);
    set_q_and_out(p);
    set_kv(p);
    set_scores(p);
    set_descales(p);
  }

  void set_shape(AttentionParams& p) const {
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
  }

  void set_q_and_out(AttentionParams& p) const {
    p.q = q_.data();
    p.q_stride_token = static_cast<int64_t>(q_row());
    p.q_stride_head = problem_.dim;
    if (problem_.qv) {
      p.qv = qv_.data();
      p.qv_stride_token = static_cast<int64_t>(out_row());
      p.qv_stride_head = problem_.dv();
    }
    p.out_stride_token = static_cast<int64_t>(out_row());
    p.out_stride_head = problem_.dv();
    p.cu_seqlens_q = cu_q_.data();
  }

  void set_kv(AttentionParams& p) const {
    p.k = k_.data();
    p.v = problem_.v_is_k ? k_.data() : v_.data();
    p.k_stride_block = k_strides_.block;
    p.k_stride_token = k_strides_.token;
    p.k_stride_head = k_strides_.head;
    p.v_stride_block = v_strides_.block;
    p.v_stride_token = v_strides_.token;
    p.v_stride_head = v_strides_.head;
    if (problem_.paged()) {
      p.block_table = table_.data();
      p.block_table_stride = static_cast<int64_t>(table_stride_);
      p.block_size = problem_.block_size;
      p.num_blocks = num_blocks_;
    } else if (problem_.contiguous()) {
      p.num_blocks = num_blocks_;
      if (problem_.cache == Cache::kIndexed) {
        p.cache_batch_idx = cache_rows_.data();
        p.cache_leftpad = leftpad_.data();
      }
    } else {
      p.cu_seqlens_k = cu_k_.data();
    }
    if (problem_.paged() || problem_.contiguous() || problem_.gaps) p.seqused_k = used_k_.data();
  }

  void set_scores(AttentionParams& p) const {
    p.causal = problem_.causal;
    p.window_left = problem_.window_left;
    p.window_right = problem_.window_right;
    p.attention_chunk = problem_.attention_chunk;
    if (problem_.topk > 0) {
      p.topk = problem_.topk;
      p.topk_indices = lists_.data();
      p.topk_length = list_lengths_.data();
      p.topk_stride_head = problem_.topk + 3;
      p.topk_stride_token = problem_.heads_kv * p.topk_stride_head;
    }
    if (problem_.custom_mask) {
      p.custom_mask = mask_.data();
      p.mask_indptr = mask_indptr_.data();
    }
    p.softmax_scale = problem_.softmax_scale();
    p.softcap = problem_.softcap;
    p.p_dropout = problem_.p_dropout;
    p.dropout_seed = kDropoutSeed;
    p.dropout_offset = kDropoutOffset;
    if (p.features & kAlibi) {
      p.alibi_slopes = slopes_.data();
      p.alibi_stride_batch = static_cast<int64_t>(slopes_stride_);
      p.alibi_sqrt = problem_.alibi_sqrt;
    }
    if (p.features & kSinks) p.sinks = sinks_.data();
  }

  void set_descales(AttentionParams& p) const {
    if (problem_.quantised & (kE4m3Q | kInt8Q)) {
      p.q_descale = q_descales_.data();
      p.q_descale_stride_outer = problem_.heads_q + 1;
      p.q_descale_stride_head = 1;
    }
    if (problem_.fp8_kv()) {
      p.k_descale = k_descales_.data();
      p.k_descale_stride_outer = problem_.heads_kv + 1;
      p.k_descale_stride_head = 1;
      p.v_descale = v_descales_.data();
      p.v_descale_stride_outer = 1;
      p.v_descale_stride_head = p.batch + 1;
    }
    if (problem_.k_rows()) {
      p.k_descale = k_descales_.data();
      p.k_descale_stride_block = k_strides_.block / problem_.dim;
      p.k_descale_stride_outer = k_strides_.token / problem_.dim;
      p.k_descale_stride_head = k_strides_.head / problem_.dim;
    }
    if (problem_.quantised & kInt8V) {
      p.v_descale = v_descales_.data();
      p.v_descale_stride_head = problem_.dv() + 1;
    }
    if (p.features & kDescaleRows) {
      p.q_descale_rows = problem_.q_shared;
      p.k_descale_rows = problem_.k_shared;
      p.cu_q_descales = cu_q_descales_.data();
      p.cu_k_descales = cu_k_descales_.data();
    }
    if (problem_.k_shared > 1) {
      p.k_descale_stride_outer = problem_.heads_kv + 1;
      p.k_descale_stride_block = problem_.block_size / problem_.k_shared * p.k_descale_stride_outer;
    }
    if (problem_.v_rows()) {
      p.v_descale_stride_block = 2 * k_strides_.block / problem_.dim;
      p.v_descale_stride_outer = 2 * k_strides_.token / problem_.dim;
      p.v_descale_stride_head = 2 * k_strides_.head / problem_.dim;
    }
  }

  const Problem problem_;
  std::vector<uint8_t> q_, qv_, k_, v_, mask_;
  std::vector<int32_t> cu_q_descales_, cu_k_descales_, cu_q_, cu_k_, used_k_, table_, cache_rows_, leftpad_,
      mask_indptr_, lists_, list_lengths_;
  std::vector<float> slopes_, sinks_, q_descales_, k_descales_, v_descales_;
  std::size_t table_stride_ = 0, slopes_stride_ = 0;
  int32_t num_blocks_ = 0;
  Strides k_strides_, v_strides_;
  std::function<int64_t(std::size_t, int, const Strides&)> row_offset_;
  OpParams params_{};
};

inline Result run(const Problem& p, int threads = 2) { return Layout(p).run(threads); }

}  // namespace attnbench::testing
