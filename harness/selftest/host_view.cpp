#include "harness/selftest/host_view.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <utility>

#include "harness/cases/visible_keys.h"

namespace attnbench {
namespace {

std::size_t size_of(int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

HostView::HostView(Tamper& t, const AttentionParams& p) : p_(p) {
  const auto ints = [&](const int32_t* from, int64_t n) {
    return from ? t.read<int32_t>(from, n) : std::vector<int32_t>{};
  };
  const auto bytes = [&](const void* from, int64_t elements, DType type) {
    return t.read<unsigned char>(from, elements * static_cast<int64_t>(dtype_size(type)));
  };
  const int64_t b = p.batch;
  cu_q = ints(p.cu_seqlens_q, b + 1);
  cu_k = ints(p.cu_seqlens_k, b + 1);
  used_q = ints(p.seqused_q, b);
  used = ints(p.seqused_k, b);
  cache_rows = ints(p.cache_batch_idx, b);
  const bool paged = (p.features & kPagedKv) != 0;
  const int64_t table_rows = paged && !cache_rows.empty() ? 1 + *std::ranges::max_element(cache_rows) : b;
  table = ints(p.block_table, table_rows * p.block_table_stride);
  leftpad = ints(p.cache_leftpad, b);
  if (p.alibi_slopes)
    slopes = t.read<float>(p.alibi_slopes, p.alibi_stride_batch ? b * p.alibi_stride_batch : p.num_heads_q);
  if (p.custom_mask) {
    mask_indptr = ints(p.mask_indptr, b + 1);
    mask_bytes = t.read<unsigned char>(p.custom_mask, mask_indptr.back());
  }
  if (p.topk_indices) lists = ints(p.topk_indices, p.total_q * p.topk_stride_token);
  list_lengths = ints(p.topk_length, p.total_q);
  if (p.sinks) sinks = t.read<float>(p.sinks, p.num_heads_q);
  const auto descales = [&](const float* from, int64_t outer, int64_t head) {  // a stride of 0 shares them
    const int64_t n = outer > 0 ? b * outer : (p.num_heads_kv - 1) * head + 1;
    return from ? t.read<float>(from, n) : std::vector<float>{};
  };
  q_descale = descales(p.q_descale, p.q_descale_stride_outer, p.q_descale_stride_head);
  k_descale = descales(p.k_descale, p.k_descale_stride_outer, p.k_descale_stride_head);
  v_descale = descales(p.v_descale, p.v_descale_stride_outer, p.v_descale_stride_head);
  q = bytes(p.q, p.total_q * p.q_stride_token, p.dtype_q);
  if (p.qv) qv = bytes(p.qv, p.total_q * p.qv_stride_token, p.dtype_q);
  k = bytes(p.k, kv_elements(p, cu_k, false), p.dtype_k);
  v = bytes(p.v, kv_elements(p, cu_k, true), p.dtype_v);
}

int HostView::q_len(int seq) const {
  return used_q.empty() ? cu_q[size_of(seq + 1)] - cu_q[size_of(seq)] : used_q[size_of(seq)];
}

int HostView::k_len(int seq) const {
  return used.empty() ? cu_k[size_of(seq + 1)] - cu_k[size_of(seq)] : used[size_of(seq)];
}

std::vector<HostRow> HostView::rows() const {
  const Mask mask = mask_of_launch(p_);
  std::vector<HostRow> rows;
  for (int b = 0; b < p_.batch; ++b) {
    const int q_len = this->q_len(b);
    for (int i = 0; i < q_len; ++i) {
      for (int h = 0; h < p_.num_heads_q; ++h) {
        HostRow r{b, i, h, q_len, k_len(b), int64_t{cu_q[size_of(b)]} + i, 0, 0, 0};
        r.diag = int64_t{i} + (mask.top_left ? 0 : r.k_len - q_len);
        const KeyRange seen = visible_keys(mask, q_len, r.k_len, i);
        r.lo = seen.begin;
        r.hi = seen.end;
        rows.push_back(r);
      }
    }
  }
  return rows;
}

float HostView::slope(int seq, int head) const {
  return slopes[size_of((p_.alibi_stride_batch ? seq * p_.alibi_stride_batch : 0) + head)];
}

int64_t HostView::kv_offset(int seq, int64_t j, int kv_head, bool is_v) const {
  const int64_t block = is_v ? p_.v_stride_block : p_.k_stride_block;
  const int64_t token = is_v ? p_.v_stride_token : p_.k_stride_token;
  const int64_t head = kv_head * (is_v ? p_.v_stride_head : p_.k_stride_head);
  if (p_.features & kPagedKv) return page(seq, j) * block + padded(seq, j) % p_.block_size * token + head;
  if (p_.features & kContiguousKv) {
    const int64_t row = cache_rows.empty() ? seq : cache_rows[size_of(seq)];
    return row * block + padded(seq, j) * token + head;
  }
  return (cu_k[size_of(seq)] + j) * token + head;
}

bool HostView::sees(int seq, int i, int head, int64_t j) const {
  if (!lists.empty()) {
    const int64_t token = int64_t{cu_q[size_of(seq)]} + i,
                  kv_head = head / (p_.num_heads_q / p_.num_heads_kv);
    const int64_t length = list_lengths.empty() ? p_.topk : list_lengths[size_of(token)];
    const auto list = lists.begin() + token * p_.topk_stride_token + kv_head * p_.topk_stride_head;
    return std::find(list, list + length, physical_row(seq, j)) != list + length;
  }
  const int64_t bit = int64_t{i} * k_len(seq) + j;
  return (mask_bytes[size_of(mask_indptr[size_of(seq)] + bit / 8)] >> (bit % 8) & 1) != 0;
}

int64_t HostView::physical_row(int seq, int64_t j) const {
  if (!(p_.features & kPagedKv)) return cu_k[size_of(seq)] + j;
  return page(seq, j) * p_.block_size + padded(seq, j) % p_.block_size;
}

int64_t HostView::padded(int seq, int64_t j) const { return leftpad.empty() ? j : leftpad[size_of(seq)] + j; }

int64_t HostView::page(int seq, int64_t j) const {
  const int64_t row = cache_rows.empty() ? seq : cache_rows[size_of(seq)];
  return table[size_of(row * p_.block_table_stride + padded(seq, j) / p_.block_size)];
}

bool HostView::freed(int seq, int64_t j) const {
  if (!(p_.features & kPagedKv)) return false;
  const int64_t block = page(seq, j);
  return block < 0 || block >= p_.num_blocks;
}

void HostView::load_kv(bool is_v, int seq, int kv_head, int begin, int end, double* out) const {
  const std::vector<float>& descales = is_v ? v_descale : k_descale;
  const int64_t outer = is_v ? p_.v_descale_stride_outer : p_.k_descale_stride_outer;
  const int64_t per_head = is_v ? p_.v_descale_stride_head : p_.k_descale_stride_head;
  const double descale =
      descales.empty() ? 1.0 : static_cast<double>(descales[size_of(seq * outer + kv_head * per_head)]);
  // The reference multiplies keys between those that a row sees by 0, and they may hold NaN.
  const bool gaps = !lists.empty() || !mask_bytes.empty();
  const int dim = is_v ? p_.head_dim_v : p_.head_dim;
  const DType type = is_v ? p_.dtype_v : p_.dtype_k;
  for (int j = begin; j < end; ++j, out += dim) {
    if (freed(seq, j)) {
      std::fill_n(out, dim, std::nan(""));
      continue;
    }
    const int64_t from = kv_offset(seq, j, kv_head, is_v);
    for (int c = 0; c < dim; ++c) {
      const float x = load_float(type, is_v ? v.data() : k.data(), from + c);
      out[c] = gaps && std::isnan(x) ? 0.0 : static_cast<double>(x) * descale;
    }
  }
}

void HostView::load_q(int seq, int head, int begin, int end, double* out) const {
  const int64_t kv_head = head / (p_.num_heads_q / p_.num_heads_kv);
  const double descale =
      q_descale.empty()
          ? 1.0
          : static_cast<double>(
                q_descale[size_of(seq * p_.q_descale_stride_outer + kv_head * p_.q_descale_stride_head)]);
  for (int i = begin; i < end; ++i) {
    const int64_t from = (int64_t{cu_q[size_of(seq)]} + i) * p_.q_stride_token + head * p_.q_stride_head;
    for (int c = 0; c < p_.head_dim; ++c)
      *out++ = static_cast<double>(load_float(p_.dtype_q, q.data(), from + c)) * descale;
  }
}

void HostView::load_qv(int seq, int head, int begin, int end, double* out) const {
  for (int i = begin; i < end; ++i) {
    const int64_t from = (int64_t{cu_q[size_of(seq)]} + i) * p_.qv_stride_token + head * p_.qv_stride_head;
    for (int c = 0; c < p_.head_dim_v; ++c)
      *out++ = static_cast<double>(load_float(p_.dtype_q, qv.data(), from + c));
  }
}

reference::Problem HostView::problem() const {
  reference::Problem x;
  x.head_dim = p_.head_dim;
  x.head_dim_v = p_.head_dim_v;
  x.num_heads_q = p_.num_heads_q;
  x.num_heads_kv = p_.num_heads_kv;
  for (int b = 0; b < p_.batch; ++b) {
    x.q_lens.push_back(q_len(b));
    x.k_lens.push_back(k_len(b));
    x.q_begins.push_back(cu_q[size_of(b)]);
  }
  x.causal = p_.causal != 0;
  x.top_left = (p_.features & kTopLeft) != 0;
  x.window_left = p_.window_left;
  x.window_right = p_.window_right;
  x.attention_chunk = p_.attention_chunk;
  if (!lists.empty() || !mask_bytes.empty())
    x.sees = [this](int seq, int pos, int head, int64_t key) { return sees(seq, pos, head, key); };
  x.softmax_scale = static_cast<double>(p_.softmax_scale);
  x.softcap = static_cast<double>(p_.softcap);
  const int sets = slopes.empty() ? 0 : p_.alibi_stride_batch ? p_.batch : 1;  // of slopes
  for (int b = 0; b < sets; ++b) {
    for (int h = 0; h < p_.num_heads_q; ++h) x.alibi_slopes.push_back(static_cast<double>(slope(b, h)));
  }
  x.alibi_sqrt = p_.alibi_sqrt != 0;
  x.sinks.assign(sinks.begin(), sinks.end());
  x.p_dropout = p_.features & kDropout ? p_.p_dropout : 0;
  x.dropout_seed = p_.dropout_seed;
  x.dropout_offset = p_.dropout_offset;
  x.qv = !qv.empty();
  return x;
}

Layout HostView::layout() const {
  Layout layout;
  layout.custom_mask = !mask_bytes.empty();
  layout.key_lists = !lists.empty();
  layout.v_is_k_view = (p_.features & kVIsK) != 0;
  if ((p_.features & kPagedKv) == 0) return layout;
  layout.page_size = p_.block_size;
  layout.leftpad.assign(leftpad.begin(), leftpad.end());
  return layout;
}

std::vector<std::vector<double>> naive(const HostView& view) {
  const AttentionParams& p = view.p();
  const auto d = size_of(p.head_dim);
  const auto rounded = [&](double x) {
    return static_cast<double>(round_to(p.dtype_out, static_cast<float>(x)));
  };
  const reference::Problem problem = view.problem();
  std::vector<std::vector<double>> all;
  std::map<std::pair<int, int>, std::pair<std::vector<double>, std::vector<double>>> loaded;
  for (const HostRow& row : view.rows()) {
    const int kv_head = row.head / (p.num_heads_q / p.num_heads_kv);
    auto& [k, v] = loaded[{row.seq, kv_head}];
    if (k.empty()) {
      k.resize(size_of(row.k_len) * d);
      v.resize(k.size());
      view.load_k(row.seq, kv_head, 0, row.k_len, k.data());
      view.load_v(row.seq, kv_head, 0, row.k_len, v.data());
    }
    std::vector<double> q(d), qv(d, 0.0), scores;
    view.load_q(row.seq, row.head, row.i, row.i + 1, q.data());
    if (problem.qv) view.load_qv(row.seq, row.head, row.i, row.i + 1, qv.data());
    for (std::vector<double>* of : {&q, &qv}) {
      for (double& x : *of) x = rounded(x * problem.softmax_scale);
    }
    const double sink = p.sinks ? rounded(static_cast<double>(view.sink(row.head))) : -INFINITY;
    double top = sink;
    for (int64_t j = row.lo; j < row.hi; ++j) {
      double s = 0;
      for (std::size_t c = 0; c < d; ++c) s += q[c] * k[size_of(j) * d + c];
      for (std::size_t c = 0; problem.qv && c < d; ++c) s += qv[c] * v[size_of(j) * d + c];
      s = rounded(s);
      if (p.softcap > 0) s = rounded(problem.softcap * rounded(std::tanh(rounded(s / problem.softcap))));
      if (p.alibi_slopes) {
        const double distance = static_cast<double>(std::abs(row.diag - j));
        s = rounded(s - rounded(static_cast<double>(view.slope(row.seq, row.head)) *
                                (p.alibi_sqrt ? std::sqrt(distance) : distance)));
      }
      const bool seen = !problem.sees || problem.sees(row.seq, row.i, row.head, j);
      scores.push_back(seen ? s : -INFINITY);
      top = std::max(top, scores.back());
    }
    std::vector<double>& o = all.emplace_back(d, 0.0);
    if (top == -INFINITY) continue;
    double z = std::exp(sink - top);
    for (const double s : scores) z += std::exp(s - top);
    for (std::size_t n = 0; n < scores.size(); ++n) {
      if (scores[n] == -INFINITY) continue;  // its value may be NaN
      const double w = rounded(std::exp(scores[n] - top) / z);
      for (std::size_t c = 0; c < d; ++c) o[c] += w * v[(size_of(row.lo) + n) * d + c];
    }
    for (double& x : o) x = rounded(x);
  }
  return all;
}

}  // namespace attnbench
