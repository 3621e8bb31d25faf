#include "harness/selftest/host_attention.h"

#include <algorithm>
#include <cmath>

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
  const int64_t table_rows =
      paged && !cache_rows.empty() ? 1 + *std::max_element(cache_rows.begin(), cache_rows.end()) : b;
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
  Mask mask = mask_of_launch(p_);
  mask.chunk = p_.attention_chunk;
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

bool HostView::sees(const HostRow& row, int64_t j) const {
  if (!lists.empty()) {
    const int64_t length = list_lengths.empty() ? p_.topk : list_lengths[size_of(row.token)];
    const int64_t kv_head = row.head / (p_.num_heads_q / p_.num_heads_kv);
    const auto list = lists.begin() + row.token * p_.topk_stride_token + kv_head * p_.topk_stride_head;
    return std::find(list, list + length, physical_row(row.seq, j)) != list + length;
  }
  if (mask_bytes.empty()) return true;
  const int64_t bit = int64_t{row.i} * row.k_len + j;
  return (mask_bytes[size_of(mask_indptr[size_of(row.seq)] + bit / 8)] >> (bit % 8) & 1) != 0;
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

std::vector<double> HostView::load_kv(int seq, int kv_head, bool is_v) const {
  const int n = k_len(seq);
  const std::vector<float>& descales = is_v ? v_descale : k_descale;
  const int64_t outer = is_v ? p_.v_descale_stride_outer : p_.k_descale_stride_outer;
  const int64_t per_head = is_v ? p_.v_descale_stride_head : p_.k_descale_stride_head;
  const double descale =
      descales.empty() ? 1.0 : static_cast<double>(descales[size_of(seq * outer + kv_head * per_head)]);
  std::vector<double> out;
  out.reserve(size_of(int64_t{n} * p_.head_dim));
  for (int j = 0; j < n; ++j) {
    if (freed(seq, j)) {
      out.insert(out.end(), size_of(p_.head_dim), std::nan(""));
      continue;
    }
    const int64_t from = kv_offset(seq, j, kv_head, is_v);
    for (int c = 0; c < p_.head_dim; ++c) {
      const float x =
          is_v ? load_float(p_.dtype_v, v.data(), from + c) : load_float(p_.dtype_k, k.data(), from + c);
      out.push_back(static_cast<double>(x) * descale);
    }
  }
  return out;
}

std::vector<double> HostView::load_q(const HostRow& row) const {
  const int64_t from = row.token * p_.q_stride_token + row.head * p_.q_stride_head;
  const int kv_head = row.head / (p_.num_heads_q / p_.num_heads_kv);
  const double descale =
      q_descale.empty()
          ? 1.0
          : static_cast<double>(
                q_descale[size_of(row.seq * p_.q_descale_stride_outer + kv_head * p_.q_descale_stride_head)]);
  std::vector<double> out;
  for (int c = 0; c < p_.head_dim; ++c)
    out.push_back(static_cast<double>(load_float(p_.dtype_q, q.data(), from + c)) * descale);
  return out;
}

std::vector<double> HostView::load_qv(const HostRow& row) const {
  std::vector<double> out(size_of(p_.head_dim), 0.0);
  const int64_t from = row.token * p_.qv_stride_token + row.head * p_.qv_stride_head;
  for (int c = 0; !qv.empty() && c < p_.head_dim; ++c)
    out[size_of(c)] = static_cast<double>(load_float(p_.dtype_q, qv.data(), from + c));
  return out;
}

const HostAttention::Pair& HostAttention::loaded(int seq, int kv_head) {
  if (cache_.empty()) {
    cache_.resize(size_of(view_->p().batch));
    for (auto& heads : cache_) heads.resize(size_of(view_->p().num_heads_kv));
  }
  std::optional<Pair>& pair = cache_[size_of(seq)][size_of(kv_head)];
  if (!pair) pair = Pair{view_->load_kv(seq, kv_head, false), view_->load_kv(seq, kv_head, true)};
  return *pair;
}

/// The score in double, or, if `naive`, with each step rounded to the output's type.
double HostAttention::score(const HostRow& row, int64_t j, double qk, bool naive) const {
  const AttentionParams& p = view_->p();
  const auto step = [&](double x) {
    return naive ? static_cast<double>(round_to(p.dtype_out, static_cast<float>(x))) : x;
  };
  double s = naive ? step(qk) : qk * static_cast<double>(p.softmax_scale);
  if (p.softcap > 0) {
    const double cap = static_cast<double>(p.softcap);
    s = step(cap * step(std::tanh(step(s / cap))));
  }
  if (p.alibi_slopes) {
    const double distance = static_cast<double>(std::abs(row.diag - j));
    s = step(s - step(static_cast<double>(view_->slope(row.seq, row.head)) *
                      (p.alibi_sqrt ? std::sqrt(distance) : distance)));
  }
  return s;
}

HostResult HostAttention::by_rule(HostRow row, const HostRule& rule) {
  const AttentionParams& p = view_->p();
  const int d = p.head_dim;
  if (rule.keys) rule.keys(*view_, row);
  const int kv_head =
      rule.kv_head ? rule.kv_head(*view_, row.head) : row.head / (p.num_heads_q / p.num_heads_kv);
  const std::vector<double>& k = loaded(row.seq, kv_head).k;
  const std::vector<double>& v = loaded(row.seq, rule.v_head ? rule.v_head(*view_, row.head) : kv_head).v;
  const std::vector<double> q = view_->load_q(row), qv = view_->load_qv(row);
  const bool second = !view_->qv.empty();
  const int64_t begin = rule.masked_score ? 0 : row.lo;
  const int64_t end = rule.masked_score ? row.k_len : row.hi;
  std::vector<double> scores;
  double top = rule.first_maximum.value_or(-INFINITY);
  const auto exponential = [&](double x) {
    return rule.first_maximum ? static_cast<double>(static_cast<float>(std::exp(x))) : std::exp(x);
  };
  for (int64_t j = begin; j < end; ++j) {
    double s = -INFINITY;
    if (j < row.lo || j >= row.hi) {
      s = *rule.masked_score;
    } else if (view_->sees(row, j) && (!rule.hidden || !rule.hidden(row, j))) {
      double qk = 0;
      for (int c = 0; c < d; ++c) qk += q[size_of(c)] * k[size_of(j * d + c)];
      for (int c = 0; second && c < d; ++c) qk += qv[size_of(c)] * v[size_of(j * d + c)];
      s = rule.score ? rule.score(*view_, row, j, qk) : score(row, j, qk, false);
    }
    top = std::max(top, s);
    scores.push_back(s);
  }
  if (p.sinks) top = std::max(top, static_cast<double>(view_->sink(row.head)));
  HostResult r{std::vector<double>(size_of(d), 0.0), -INFINITY};
  if (top == -INFINITY) return r;
  double z = p.sinks ? exponential(static_cast<double>(view_->sink(row.head)) - top) : 0.0;
  for (const double s : scores) z += exponential(s - top);
  if (z == 0) return r;
  for (int64_t j = begin; j < end; ++j) {
    const double e = exponential(scores[size_of(j - begin)] - top);
    if (e == 0) continue;
    const double w = (rule.weight ? rule.weight(e) : e) / z;
    for (int c = 0; c < d; ++c) r.o[size_of(c)] += w * v[size_of(j * d + c)];
  }
  r.lse = top + std::log(z);
  return r;
}

std::vector<double> HostAttention::naive(const HostRow& row) {
  const AttentionParams& p = view_->p();
  const int d = p.head_dim;
  const auto rounded = [&](double x) {
    return static_cast<double>(round_to(p.dtype_out, static_cast<float>(x)));
  };
  const Pair& kv = loaded(row.seq, row.head / (p.num_heads_q / p.num_heads_kv));
  std::vector<double> q = view_->load_q(row);
  for (double& x : q) x = rounded(x * static_cast<double>(p.softmax_scale));
  std::vector<double> qv = view_->load_qv(row);
  for (double& x : qv) x = rounded(x * static_cast<double>(p.softmax_scale));
  std::vector<double> scores;
  double top = p.sinks ? rounded(static_cast<double>(view_->sink(row.head))) : -INFINITY;
  double z = 0;
  for (int64_t j = row.lo; j < row.hi; ++j) {
    double qk = 0;
    for (int c = 0; c < d; ++c) qk += q[size_of(c)] * kv.k[size_of(j * d + c)];
    for (int c = 0; !view_->qv.empty() && c < d; ++c) qk += qv[size_of(c)] * kv.v[size_of(j * d + c)];
    scores.push_back(view_->sees(row, j) ? score(row, j, qk, true) : -INFINITY);
    top = std::max(top, scores.back());
  }
  std::vector<double> o(size_of(d), 0.0);
  if (top == -INFINITY) return o;
  if (p.sinks) z = std::exp(rounded(static_cast<double>(view_->sink(row.head))) - top);
  for (const double s : scores) z += std::exp(s - top);
  for (int64_t j = row.lo; j < row.hi; ++j) {
    if (scores[size_of(j - row.lo)] == -INFINITY) continue;  // its value may be NaN
    const double w = rounded(std::exp(scores[size_of(j - row.lo)] - top) / z);
    for (int c = 0; c < d; ++c) o[size_of(c)] += w * kv.v[size_of(j * d + c)];
  }
  for (double& x : o) x = rounded(x);
  return o;
}

}  // namespace attnbench
