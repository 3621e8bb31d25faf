#include "harness/judge/case_inputs.h"

#include <algorithm>
#include <cmath>

#include "harness/config/captured.h"
#include "harness/judge/interval.h"
#include "harness/tensors/descales.h"
#include "harness/values/values.h"

namespace attnbench {
namespace {

constexpr int kMaxHeadDim = 256;  ///< largest head_dim of cases that append

}  // namespace

CaseInputs::CaseInputs(const Case& c, const std::vector<unsigned char>& stored_new_k,
                       const std::vector<unsigned char>* stored_new_v)
    : case_(&c), stored_new_k_(&stored_new_k), stored_new_v_(stored_new_v), appended_(c) {
  int64_t begin = 0;
  for (const SeqLen& s : c.params.seqs) {
    new_begin_.push_back(begin);
    begin += c.params.new_len(s);
  }
  if (c.params.rotary_cached) {
    key_errors_ =
        std::make_unique<KeyError[]>(c.params.seqs.size() * static_cast<std::size_t>(c.params.num_heads_kv));
  }
}

int CaseInputs::position_of_query(int seq, int pos) const {
  const CaseParams& p = case_->params;
  return p.rotary_position(p.seqs[static_cast<std::size_t>(seq)], pos);
}

void CaseInputs::load_q(int seq, int head, int begin, int end, double* out) const {
  const CaseParams& p = case_->params;
  load(Tensor::kQ, seq, head, begin, end, p.head_dim, out);
  if (p.rotary == Rotary::kNone) return;
  const auto d = static_cast<std::size_t>(p.head_dim);
  for (int pos = begin; pos < end; ++pos, out += d) {
    appended_.rotate(position_of_query(seq, pos), {out, d}, {});
    for (std::size_t c = 0; c < d; ++c) out[c] = round_to(p.dtype, static_cast<float>(out[c]));
  }
}

void CaseInputs::load_k(int seq, int head, int begin, int end, double* out) const {
  const CaseParams& p = case_->params;
  load(Tensor::kK, seq, head, begin, end, p.head_dim, out);
  if (!p.rotary_cached) return;
  const auto d = static_cast<std::size_t>(p.head_dim);
  for (int pos = begin; pos < end; ++pos, out += d) {
    appended_.rotate(pos, {out, d}, {});
    for (std::size_t c = 0; c < d; ++c) out[c] = round_to(p.dtype, static_cast<float>(out[c]));
  }
}

void CaseInputs::load_v(int seq, int head, int begin, int end, double* out) const {
  const CaseParams& p = case_->params;
  load(p.v_is_k_view ? Tensor::kK : Tensor::kV, seq, head, begin, end, p.dim_v(), out);
}

void CaseInputs::load_qv(int seq, int head, int begin, int end, double* out) const {
  load(Tensor::kQv, seq, head, begin, end, case_->params.dim_v(), out);
}

void CaseInputs::load_d_out(int seq, int head, int begin, int end, double* out) const {
  const CaseParams& p = case_->params;
  std::vector<float> row(static_cast<std::size_t>(p.dim_v()));
  for (int pos = begin; pos < end; ++pos) {
    value_row({case_->seed, p.data}, Tensor::kDOut, static_cast<uint32_t>(seq), static_cast<uint32_t>(pos),
              static_cast<uint32_t>(head), p.dim_v(), row.data());
    for (const float x : row) *out++ = round_to(p.dtype, x);
  }
}

void CaseInputs::load(Tensor tensor, int seq, int head, int begin, int end, int dim, double* out) const {
  const CaseParams& p = case_->params;
  const ValueSpec spec{case_->seed, p.data};
  const SeqLen& s = p.seqs[static_cast<std::size_t>(seq)];
  const int first_own = is_query(tensor) ? 0 : p.shared_tokens();  // keys before it are sequence 0's
  const int first_new = is_query(tensor) ? end : s.k - p.new_len(s);
  std::vector<float> row(static_cast<std::size_t>(dim));
  for (int pos = begin; pos < end; ++pos, out += dim) {
    if (p.captured) {
      const unsigned char* values = p.captured->row(tensor, seq, pos, head);
      for (int c = 0; c < dim; ++c) out[c] = static_cast<double>(load_float(p.dtype, values, c));
      continue;
    }
    if (pos >= first_new) {
      load_new(tensor == Tensor::kV, seq, head, pos, out);
      continue;
    }
    const int owner = pos < first_own ? 0 : seq;
    const GivenBlocks::Row row_of = is_query(tensor) ? GivenBlocks::Row{seq, pos} : stored_row(p, seq, pos);
    value_row(spec, tensor, static_cast<uint32_t>(row_of.seq), static_cast<uint32_t>(row_of.pos),
              static_cast<uint32_t>(head), dim, row.data());
    double descale = descale_of(*case_, tensor, owner, pos, head, 0);
    for (int c = 0; c < dim; ++c) {
      if (tensor == Tensor::kV) descale = descale_of(*case_, tensor, owner, pos, head, c);
      const float value =
          scaled_value(*case_, tensor, row_of.seq, row_of.pos, head, c, row[static_cast<std::size_t>(c)]);
      out[c] = static_cast<double>(value) * descale;
    }
  }
}

void CaseInputs::load_new(bool is_v, int seq, int head, int pos, double* out) const {
  const CaseParams& p = case_->params;
  const auto d = static_cast<std::size_t>(p.head_dim);
  const DType type = p.type_of_kv(is_v);
  const auto descale = [&](int c) {
    return static_cast<double>(descale_of(*case_, is_v ? Tensor::kV : Tensor::kK, seq, pos, head, c));
  };
  const std::vector<unsigned char>* stored = is_v ? stored_new_v_ : stored_new_k_;
  if (!appended_.copied(is_v) && stored != nullptr && !stored->empty()) {
    const SeqLen& s = p.seqs[static_cast<std::size_t>(seq)];
    const int64_t token = new_begin_[static_cast<std::size_t>(seq)] + pos - (s.k - p.new_len(s));
    const int64_t at = (token * p.num_heads_kv + head) * p.head_dim;
    for (int c = 0; c < p.head_dim; ++c) out[c] = load_float(type, stored->data(), at + c) * descale(c);
    return;
  }
  double slack[kMaxHeadDim];
  appended_.row(is_v, {seq, pos}, head, {out, d}, {slack, d});
  for (std::size_t c = 0; c < d; ++c) {
    const double factor = descale(static_cast<int>(c));
    if (p.rounds_new(is_v)) out[c] /= factor;
    out[c] = round_to(type, static_cast<float>(out[c])) * factor;
  }
}

double CaseInputs::q_error(int seq, int head, int pos) const {
  const CaseParams& p = case_->params;
  if (p.rotary == Rotary::kNone) return 0;
  const auto d = static_cast<std::size_t>(p.head_dim);
  double q[kMaxHeadDim], slack[kMaxHeadDim] = {};
  load(Tensor::kQ, seq, head, pos, pos + 1, p.head_dim, q);
  appended_.rotate(position_of_query(seq, pos), {q, d}, {slack, d});
  double norm2 = 0, spread2 = 0;
  for (std::size_t c = 0; c < d; ++c) {
    norm2 += q[c] * q[c];
    if (slack[c] == 0) continue;
    const Interval x = rounded_to(p.dtype, {q[c] - slack[c], q[c] + slack[c]});
    spread2 += (x.hi - x.lo) * (x.hi - x.lo);
  }
  const double own = norm2 > 0 ? std::sqrt(spread2 / 12 / norm2) : 0;
  return p.rotary_cached ? std::hypot(own, k_error(seq, head / (p.num_heads_q / p.num_heads_kv))) : own;
}

double CaseInputs::k_error(int seq, int kv_head) const {
  KeyError& e = key_errors_[static_cast<std::size_t>(seq * case_->params.num_heads_kv + kv_head)];
  std::call_once(e.measured, [&] { e.value = measure_k_error(seq, kv_head); });
  return e.value;
}

double CaseInputs::measure_k_error(int seq, int kv_head) const {
  const CaseParams& p = case_->params;
  const auto d = static_cast<std::size_t>(p.head_dim);
  double k[kMaxHeadDim], slack[kMaxHeadDim], worst2 = 0;
  for (int pos = 0; pos < p.seqs[static_cast<std::size_t>(seq)].k; ++pos) {
    load(Tensor::kK, seq, kv_head, pos, pos + 1, p.head_dim, k);
    appended_.rotate(pos, {k, d}, {slack, d});
    double norm2 = 0, spread2 = 0;
    for (std::size_t c = 0; c < d; ++c) {
      norm2 += k[c] * k[c];
      if (slack[c] == 0) continue;
      const Interval x = rounded_to(p.dtype, {k[c] - slack[c], k[c] + slack[c]});
      spread2 += (x.hi - x.lo) * (x.hi - x.lo);
    }
    if (norm2 > 0) worst2 = std::max(worst2, spread2 / norm2);
  }
  return std::sqrt(worst2);  // not over sqrt(12): it may be one element of one key that carries the row
}

}  // namespace attnbench
