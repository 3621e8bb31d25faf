#include "harness/ops/attention_backward/judge_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <span>
#include <vector>

#include "harness/judge/bitwise.h"
#include "harness/judge/case_inputs.h"
#include "harness/judge/sample.h"
#include "harness/ops/attention_backward/judge_model.h"
#include "harness/ops/judge_ops.h"

namespace attnbench::ops::attention_backward {
namespace {

std::size_t at(int64_t i) { return static_cast<std::size_t>(i); }

/// The first token of each sequence's keys, and behind them the number of tokens.
std::vector<int64_t> k_begins(const CaseParams& p) {
  std::vector<int64_t> begins = {0};
  for (const SeqLen& s : p.seqs) begins.push_back(begins.back() + s.k);
  return begins;
}

/// One of dq, dk and dv: (tokens, heads, dim).
struct GradientTensor {
  const char* name;
  std::vector<unsigned char> HostOutputs::*values;
  bool of_keys;
  int64_t heads, dim;
};

std::vector<GradientTensor> gradients_of(const CaseParams& p) {
  return {{"dq", &HostOutputs::dq, false, p.num_heads_q, p.head_dim},
          {"dk", &HostOutputs::dk, true, p.num_heads_kv, p.head_dim},
          {"dv", &HostOutputs::dv, true, p.num_heads_kv, p.dim_v()}};
}

/// laid_over for gradients. Those of the sinks are sums over the batch, so only the same batch has them.
HostOutputs laid_over(const CaseParams& p, HostOutputs base, const CaseParams& other_p,
                      const HostOutputs& other, std::span<const int32_t> ids) {
  for (const GradientTensor& g : gradients_of(p)) {
    const std::vector<int64_t> to = g.of_keys ? k_begins(p) : q_begins(p);
    const std::vector<int64_t> from = g.of_keys ? k_begins(other_p) : q_begins(other_p);
    const int64_t row_bytes = g.heads * g.dim * static_cast<int64_t>(dtype_size(p.type_of_out()));
    for (std::size_t i = 0; i < other_p.seqs.size(); ++i) {
      const std::size_t b = ids.empty() ? i : static_cast<std::size_t>(ids[i]);
      std::copy_n((other.*g.values).begin() + from[i] * row_bytes, (from[i + 1] - from[i]) * row_bytes,
                  (base.*g.values).begin() + to[b] * row_bytes);
    }
  }
  if (ids.empty()) base.dsinks = other.dsinks;
  return base;
}

std::optional<std::string> first_difference(const CaseParams& p, const HostOutputs& a, const HostOutputs& b) {
  const std::size_t e = dtype_size(p.type_of_out());
  for (const GradientTensor& g : gradients_of(p)) {
    const std::vector<int64_t> begins = g.of_keys ? k_begins(p) : q_begins(p);
    const std::vector<unsigned char>&x = a.*g.values, &y = b.*g.values;
    if (x == y) continue;
    int64_t i = 0;
    while (std::memcmp(&x[at(i) * e], &y[at(i) * e], e) == 0) ++i;
    const int64_t token = i / (g.heads * g.dim);
    const auto seq = std::ranges::upper_bound(begins, token) - begins.begin() - 1;
    return fmt::format("{} of seq {} pos {} head {} channel {}: {:.9g}, in the first launch {:.9g}", g.name,
                       seq, token - begins[at(seq)], i / g.dim % g.heads, i % g.dim,
                       load_float(p.type_of_out(), y.data(), i), load_float(p.type_of_out(), x.data(), i));
  }
  for (std::size_t h = 0; h < a.dsinks.size(); ++h) {
    if (float_bits(a.dsinks[h]) != float_bits(b.dsinks[h]))
      return fmt::format("dsinks of head {}: {:.9g}, in the first launch {:.9g}", h, b.dsinks[h],
                         a.dsinks[h]);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> first_not_scaled(const Case& c, const HostOutputs& base, const HostOutputs& scaled,
                                            float factor) {
  // Products of numbers this small may lose digits, in which a factor shows.
  constexpr float kLeast = 0x1p-80f;
  const CaseParams& p = c.params;
  const DType type = p.type_of_out();
  // Where a sum lies between two fp32 numbers, a lost digit of the smallest term decides which of them it becomes. Then
  // the gradient, which may have been scaled since, has another last digit.
  const auto slack = static_cast<float>(std::max(2 * unit_roundoff(type), 4 * unit_roundoff(DType::kFp32)));
  const auto differ = [=](float x, float y) {
    const float expected = factor * x;
    return y != expected && (factor == 0 || !(std::abs(y - expected) <= slack * std::abs(expected)));
  };
  for (const GradientTensor& g : gradients_of(p)) {
    const std::vector<int64_t> begins = g.of_keys ? k_begins(p) : q_begins(p);
    for (int64_t i = 0; i < begins.back() * g.heads * g.dim; ++i) {
      const float x = load_float(type, (base.*g.values).data(), i);
      const float y = load_float(type, (scaled.*g.values).data(), i);
      if (!differ(x, y) || (factor != 0 && std::abs(x) < kLeast && std::abs(y) < factor * kLeast)) continue;
      const int64_t token = i / (g.heads * g.dim);
      const auto seq = std::ranges::upper_bound(begins, token) - begins.begin() - 1;
      return fmt::format("{} of seq {} pos {} head {} channel {} is {:.9g}, expected {:.9g}", g.name, seq,
                         token - begins[at(seq)], i / g.dim % g.heads, i % g.dim, y, factor * x);
    }
  }
  for (std::size_t h = 0; h < base.dsinks.size(); ++h) {
    if (!differ(base.dsinks[h], scaled.dsinks[h])) continue;
    return fmt::format("dsinks of head {} is {:.9g}, expected {:.9g}", h, scaled.dsinks[h],
                       factor * base.dsinks[h]);
  }
  return std::nullopt;
}

namespace {

/// Puts a row of a gradient into its tensor. `terms_of` gives the parts of an element's variance; no terms: exactly 0.
template <class TermsOf>
void put_row(ExpectedOutput& to, int64_t row, const BackwardModel& model, std::span<const double> values,
             int64_t terms, const TermsOf& terms_of) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t at = static_cast<std::size_t>(row) * values.size() + i;
    to.value[at] = values[i];
    to.sigma[at] = terms == 0 ? 0.0f : static_cast<float>(std::sqrt(model.variance(terms_of(i))));
  }
}

void expect(const Workload& w, const HostOutputs&, const Numerics& numerics, const Check& check,
            int num_threads, ExpectedOutputs& e) {
  const Case& c = w.item();
  const CaseParams& p = c.params;
  const std::vector<int64_t> q_begin = packed_q_begins(p);
  const std::vector<int64_t> k_begin = k_begins(p);
  const int64_t heads = p.num_heads_q, kv_heads = p.num_heads_kv;
  ExpectedOutput dq = not_compared("dq", {q_begin.back(), heads, p.head_dim});
  ExpectedOutput dk = not_compared("dk", {k_begin.back(), kv_heads, p.head_dim});
  ExpectedOutput dv = not_compared("dv", {k_begin.back(), kv_heads, p.dim_v()});
  const BackwardModel model(c, numerics);
  const std::vector<unsigned char> none;
  const CaseInputs inputs(c, none);
  const reference::Problem problem = problem_of(c);
  std::mutex mutex;
  const auto count = [&](std::size_t rows) {
    const std::lock_guard lock(mutex);
    e.rows += static_cast<int64_t>(rows);
  };
  const auto row_of = [](std::span<const double> all, std::size_t r, int32_t width) {
    return all.subspan(r * static_cast<std::size_t>(width), static_cast<std::size_t>(width));
  };
  const std::vector<float> sink_logits = sinks_of(c);
  std::vector<SinkSum> sinks(sink_logits.size());
  const auto queries = [&](const reference::QueryGrads& g) {
    for (std::size_t r = 0; r < g.rows.size(); ++r) {
      const auto [seq, pos, head] = g.rows[r];
      const auto variance = row_of(g.variance, r, p.head_dim), along = row_of(g.projection, r, p.head_dim);
      const auto values = row_of(g.dq, r, p.head_dim);
      const reference::RowFacts& facts = g.facts[r];
      put_row(dq, (q_begin[static_cast<std::size_t>(seq)] + pos) * heads + head, model, values, facts.keys,
              [&](std::size_t i) {
                return GradTerms{values[i], variance[i], along[i], model.row_errors(facts), facts.keys};
              });
    }
    count(g.rows.size());
  };
  const auto keys = [&](const reference::KeyGrads& g) {
    for (std::size_t r = 0; r < g.keys.size(); ++r) {
      const auto [seq, pos, head] = g.keys[r];
      const int64_t row = (k_begin[static_cast<std::size_t>(seq)] + pos) * kv_heads + head;
      const auto put = [&](ExpectedOutput& to, std::span<const double> values,
                           std::span<const double> variance, std::span<const double> of_heads) {
        put_row(to, row, model, values, g.rows[r], [&](std::size_t i) {
          return GradTerms{values[i], variance[i], 0, {}, g.rows[r], of_heads[i]};
        });
      };
      put(dk, row_of(g.dk, r, p.head_dim), row_of(g.dk_variance, r, p.head_dim),
          row_of(g.dk_heads, r, p.head_dim));
      put(dv, row_of(g.dv, r, p.dim_v()), row_of(g.dv_variance, r, p.dim_v()),
          row_of(g.dv_heads, r, p.dim_v()));
    }
    count(g.keys.size());
  };
  const auto facts = [&](std::span<const reference::RowId> rows, std::span<const reference::RowFacts> of) {
    const std::lock_guard lock(mutex);
    for (std::size_t r = 0; r < rows.size() && !sinks.empty(); ++r) {
      const auto head = static_cast<std::size_t>(rows[r].head);
      sinks[head].add(model, of[r], sink_logits[head]);
    }
  };
  reference::differentiate(problem, inputs, rows_to_compare(c, problem, check),
                           keys_to_compare(c, problem, check),
                           [&](const reference::RowFacts& row) { return model.pair_errors(row); },
                           num_threads, {queries, keys, facts});
  e.rows_total = q_begins(p).back() * heads + k_begin.back() * kv_heads;
  e.tensors = {std::move(dq), std::move(dk), std::move(dv)};
  if (sinks.empty()) return;
  ExpectedOutput dsinks = not_compared("dsinks", {heads});
  for (std::size_t h = 0; h < sinks.size(); ++h) {
    const SinkSum& s = sinks[h];
    if (s.rows != q_begins(p).back()) continue;  // a sample has not all queries of the head
    dsinks.value[h] = s.value;
    dsinks.sigma[h] = static_cast<float>(s.sigma(model));
  }
  e.tensors.push_back(std::move(dsinks));
}

Verdict verify(const Workload& w, const HostOutputs& outputs, const Numerics& numerics, const Check& check,
               int num_threads) {
  return verify_backward(w.item(), outputs, numerics, check, num_threads);
}

}  // namespace

const JudgeOps kJudgeOps = {verify, expect, verify_backward, laid_over, first_difference};

}  // namespace attnbench::ops::attention_backward
