// Comparison of two launches, and what the judge expects as arrays (judge_ops.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numbers>
#include <vector>

#include "harness/judge/bitwise.h"
#include "harness/judge/case_inputs.h"
#include "harness/judge/row_findings.h"
#include "harness/judge/sample.h"
#include "harness/judge/stored_out.h"
#include "harness/ops/judge_ops.h"
#include "harness/ops/kv_append/judge_cache.h"

namespace attnbench {
namespace {

int64_t longest_k(const CaseParams& p) {
  int64_t longest = 0;
  for (const SeqLen& s : p.seqs) longest = std::max<int64_t>(longest, s.k);
  return longest;
}

std::size_t at(int64_t i) { return static_cast<std::size_t>(i); }

/// An element of O. The bits before a launch are those of poison.
std::string o_text(DType type, const std::vector<unsigned char>& out, int64_t index) {
  const float value = load_float(type, out.data(), index);
  if (!std::isnan(value)) return fmt::format("{:.9g}", value);
  const std::size_t e = dtype_size(type);
  const auto first = out.begin() + static_cast<std::ptrdiff_t>(at(index) * e);
  const bool ones =
      std::all_of(first, first + static_cast<std::ptrdiff_t>(e), [](unsigned char x) { return x == 0xff; });
  return ones ? "NaN (not written, or poison that was read)" : "NaN";
}

std::string lse_text(float lse) {
  if (float_bits(lse) == ~uint32_t{0}) return "not written";
  return std::isnan(lse) ? "NaN" : fmt::format("{:.9g}", lse);
}

HostOutputs laid_over(const CaseParams& p, HostOutputs base, const CaseParams& other_p,
                      const HostOutputs& other, std::span<const int32_t> ids) {
  const std::vector<int64_t> to = q_begins(p);
  const std::vector<int64_t> from = q_begins(other_p);
  const int64_t row_bytes =
      int64_t{p.num_heads_q} * p.dim_v() * static_cast<int64_t>(dtype_size(p.type_of_out()));
  for (std::size_t i = 0; i < other_p.seqs.size(); ++i) {
    const std::size_t b = ids.empty() ? i : static_cast<std::size_t>(ids[i]);
    const int64_t rows = other_p.seqs[i].q;
    std::copy_n(other.out.begin() + from[i] * row_bytes, rows * row_bytes,
                base.out.begin() + to[b] * row_bytes);
    for (int64_t h = 0; h < p.num_heads_q; ++h) {
      std::copy_n(other.lse.begin() + h * from.back() + from[i], rows,
                  base.lse.begin() + h * to.back() + to[b]);
      // A row of probabilities has room for the longest sequence of its batch; the rest of the row is 0.
      for (int64_t i_row = 0; p.probs && i_row < rows; ++i_row) {
        const int64_t k = other_p.seqs[i].k;
        std::copy_n(other.probs.begin() + (h * from.back() + from[i] + i_row) * longest_k(other_p), k,
                    base.probs.begin() + (h * to.back() + to[b] + i_row) * longest_k(p));
      }
    }
  }
  return base;
}

std::optional<std::string> first_difference(const CaseParams& p, const HostOutputs& a, const HostOutputs& b) {
  const std::vector<int64_t> begin = q_begins(p);
  const std::size_t e = dtype_size(p.type_of_out());
  for (std::size_t s = 0; s < p.seqs.size(); ++s) {
    for (int i = 0; i < p.seqs[s].q; ++i) {
      const int64_t token = begin[s] + i;
      for (int h = 0; h < p.num_heads_q; ++h) {
        for (int ch = 0; ch < p.dim_v(); ++ch) {
          const int64_t index = (token * p.num_heads_q + h) * p.dim_v() + ch;
          if (std::memcmp(&a.out[at(index) * e], &b.out[at(index) * e], e) == 0) continue;
          return fmt::format("O of seq {} pos {} head {} channel {}: {}, in the first launch {}", s, i, h, ch,
                             o_text(p.type_of_out(), b.out, index), o_text(p.type_of_out(), a.out, index));
        }
        const std::size_t l = at(h * begin.back() + token);
        if (float_bits(a.lse[l]) != float_bits(b.lse[l]))
          return fmt::format("LSE of seq {} pos {} head {}: {}, in the first launch {}", s, i, h,
                             lse_text(b.lse[l]), lse_text(a.lse[l]));
        for (int key = 0; p.probs && key < p.seqs[s].k; ++key) {
          const std::size_t at_key = l * at(longest_k(p)) + at(key);
          if (float_bits(a.probs[at_key]) == float_bits(b.probs[at_key])) continue;
          return fmt::format(
              "probability of seq {} pos {} head {} key {}: {:.9g}, in the first launch {:.9g}", s, i, h, key,
              b.probs[at_key], a.probs[at_key]);
        }
      }
    }
  }
  return std::nullopt;
}

}  // namespace

PaddedOutputs cut_padding(const Case& c, HostOutputs padded) {
  const CaseParams& p = c.params;
  const std::size_t total = at(q_begins(p).back());
  const auto heads = static_cast<std::size_t>(p.num_heads_q);
  const std::size_t row_bytes = heads * static_cast<std::size_t>(p.dim_v()) * dtype_size(p.type_of_out());
  const std::size_t room = padded.lse.size() / heads;
  PaddedOutputs cut;
  if (!padded.unused_written.empty()) cut.padding_written = padded.unused_written;
  for (std::size_t i = total * row_bytes; i < padded.out.size() && !cut.padding_written; ++i) {
    if (padded.out[i] != 0xff)
      cut.padding_written = fmt::format("O of padding token {} was written", i / row_bytes);
  }
  for (std::size_t h = 0; h < heads; ++h) {
    for (std::size_t t = 0; t < room; ++t) {
      const float lse = padded.lse[h * room + t];
      if (t < total) {
        cut.outputs.lse.push_back(lse);
      } else if (float_bits(lse) != 0xffffffffu && !cut.padding_written) {
        cut.padding_written = fmt::format("LSE of padding token {} head {} was written", t, h);
      }
    }
  }
  padded.out.resize(total * row_bytes);
  cut.outputs.out = std::move(padded.out);
  cut.outputs.no_lse = padded.no_lse;
  cut.outputs.inf_empty_lse = padded.inf_empty_lse;
  return cut;
}

HostOutputs merged(const Case& c, const HostOutputs& a, const HostOutputs& b) {
  const CaseParams& p = c.params;
  const int64_t total = q_begins(p).back();
  const double u = unit_roundoff(p.type_of_out());
  HostOutputs m;
  m.out.resize(a.out.size());
  m.lse.resize(a.lse.size());
  m.extra_variance.resize(at(total * p.num_heads_q * p.dim_v()));
  for (int64_t token = 0; token < total; ++token) {
    for (int64_t h = 0; h < p.num_heads_q; ++h) {
      const std::size_t l = at(h * total + token);
      const double la = a.lse[l];
      const double lb = b.lse[l];
      // An empty state is O = 0, LSE = -inf; fmax would drop a NaN.
      const double top = la > lb || std::isnan(la) ? la : lb;
      const bool empty = top == -INFINITY;
      const double sum = std::exp(la - top) + std::exp(lb - top);
      m.lse[l] = static_cast<float>(empty ? top : top + std::log(sum));
      const double wa = empty ? 0 : std::exp(la - top) / sum;
      const double wb = empty ? 0 : std::exp(lb - top) / sum;
      for (int64_t ch = 0; ch < p.dim_v(); ++ch) {
        const int64_t i = (token * p.num_heads_q + h) * p.dim_v() + ch;
        const double oa = wa * static_cast<double>(load_float(p.type_of_out(), a.out.data(), i));
        const double ob = wb * static_cast<double>(load_float(p.type_of_out(), b.out.data(), i));
        store_float(p.type_of_out(), m.out.data(), i, static_cast<float>(oa + ob));
        m.extra_variance[at(i)] = u * u * (oa * oa + ob * ob) / 3.0;
      }
    }
  }
  return m;
}

namespace ops::attention {
namespace {

void expect(const Workload& w, const HostOutputs& got, const Numerics& numerics, const Check& check,
            int num_threads, ExpectedOutputs& e) {
  const Case& c = w.item();
  const CaseParams& p = c.params;
  const std::vector<int64_t> q_begin = packed_q_begins(p), judged_begin = q_begins(p);
  const int64_t total_q = q_begin.back(), heads = p.num_heads_q;
  ExpectedOutput out = not_compared("out", {total_q, heads, p.dim_v()});
  ExpectedOutput lse = not_compared("lse", p.out_lse_token_major ? std::vector<int64_t>{total_q, heads}
                                                                 : std::vector<int64_t>{heads, total_q});
  int64_t longest_k = 0;  // of the rows of probabilities
  for (const SeqLen& s : p.seqs) longest_k = p.probs ? std::max<int64_t>(longest_k, s.k) : 0;
  ExpectedOutput probs = not_compared("probs", {heads, total_q, longest_k});
  const double lse_unit = p.lse_base2 ? std::numbers::ln2 : 1;
  const CaseInputs inputs(c, got.new_k, got.new_k.empty() ? nullptr : &got.new_v);
  const ErrorModel model = error_model_of(c, numerics);
  const StoredOut stored(c);
  const reference::Problem problem = problem_of(c);
  std::mutex mutex;
  e.rows_total = q_begins(p).back() * heads;
  reference::attend(
      problem, inputs, rows_to_compare(c, problem, check), num_threads,
      [&](const reference::RowBlock& block) {
        for (std::size_t r = 0; r < block.rows.size(); ++r) {
          const reference::RowId id = block.rows[r];
          const int64_t token = q_begin[static_cast<std::size_t>(id.seq)] + id.pos;
          const auto at_lse = static_cast<std::size_t>(p.out_lse_token_major ? token * heads + id.head
                                                                             : id.head * total_q + token);
          const auto d = static_cast<std::size_t>(p.dim_v());
          const auto at = static_cast<std::size_t>(token * heads + id.head) * d;
          const RowMoments m = moments_of(block, r, inputs);
          const bool empty = m.keys == 0;
          const double of_sink = std::isfinite(m.lse) ? 0x1p-22 * (1 + std::abs(m.lse)) / kMaxZ : 0;
          lse.value[at_lse] = (empty && std::isinf(m.lse) && got.inf_empty_lse ? -m.lse : m.lse) / lse_unit;
          lse.sigma[at_lse] = static_cast<float>((empty ? of_sink : model.sigma_lse(m)) / lse_unit);
          for (int64_t j = 0; j < longest_k; ++j) {
            const auto to = static_cast<std::size_t>((id.head * total_q + token) * longest_k + j);
            const int64_t key = j - block.key_begin;
            const bool seen = key >= 0 && key < block.key_count;
            probs.value[to] = seen ? block.probs[r * static_cast<std::size_t>(block.key_count) +
                                                 static_cast<std::size_t>(key)]
                                   : 0;
            probs.sigma[to] =
                probs.value[to] == 0 ? 0.0f : static_cast<float>(model.sigma_p(m, probs.value[to]));
          }
          for (std::size_t i = 0; i < d; ++i) {
            const std::size_t b = r * d + i;
            const double o = stored.reachable(block.o[b]);
            double sigma = empty ? 0 : model.sigma(m, o, block.a2[b], block.v2[b], block.vv[b]);
            if (!got.extra_variance.empty() && !empty) {
              const int64_t row = (judged_begin[static_cast<std::size_t>(id.seq)] + id.pos) * heads + id.head;
              sigma = std::sqrt(sigma * sigma + got.extra_variance[static_cast<std::size_t>(row) * d + i]);
            }
            out.value[at + i] = o / stored.scale;
            out.sigma[at + i] = static_cast<float>(sigma / stored.scale);
          }
        }
        const std::lock_guard lock(mutex);
        e.rows += static_cast<int64_t>(block.rows.size());
      });
  e.tensors = {std::move(out), std::move(lse)};
  if (p.probs) e.tensors.push_back(std::move(probs));
  if (!got.k_cache.empty()) expect_caches(w, AppendedRows(c), got, e);
}

Verdict verify(const Workload& workload, const HostOutputs& outputs, const Numerics& numerics,
               const Check& check, int num_threads) {
  Verdict v = verify_attention(workload.item(), outputs, numerics, check, num_threads);
  if (!outputs.unused_written.empty()) v.fail(detector::kGuard, outputs.unused_written);
  if (!workload.item().params.append) return v;
  check_caches(workload, AppendedRows(workload.item()), outputs, v);
  return v;
}

}  // namespace

const JudgeOps kJudgeOps = {verify, expect, verify_attention, laid_over, first_difference};

}  // namespace ops::attention
}  // namespace attnbench
