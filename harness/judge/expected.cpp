#include "harness/judge/expected.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <numbers>
#include <span>

#include "harness/judge/backward_model.h"
#include "harness/judge/bitwise.h"
#include "harness/judge/case_inputs.h"
#include "harness/judge/row_findings.h"
#include "harness/judge/sample.h"
#include "harness/judge/stored_out.h"

namespace attnbench {
namespace {

const std::vector<unsigned char> kNoneStored;  // CaseInputs' stored_new_k without a launch

ExpectedOutput not_compared(const char* name, std::vector<int64_t> shape) {
  std::size_t count = 1;
  for (const int64_t n : shape) count *= static_cast<std::size_t>(n);
  return {name, std::move(shape), std::vector<double>(count, std::numeric_limits<double>::quiet_NaN()),
          std::vector<float>(count, std::numeric_limits<float>::quiet_NaN())};
}

void expect_attention(const Case& c, const Numerics& numerics, CheckMode mode, int num_threads,
                      ExpectedOutputs& e) {
  const CaseParams& p = c.params;
  const std::vector<int64_t> q_begin = packed_q_begins(p);
  const int64_t total_q = q_begin.back(), heads = p.num_heads_q;
  ExpectedOutput out = not_compared("out", {total_q, heads, p.dim_v()});
  ExpectedOutput lse = not_compared("lse", p.out_lse_token_major ? std::vector<int64_t>{total_q, heads}
                                                                 : std::vector<int64_t>{heads, total_q});
  int64_t longest_k = 0;  // of the rows of probabilities
  for (const SeqLen& s : p.seqs) longest_k = p.probs ? std::max<int64_t>(longest_k, s.k) : 0;
  ExpectedOutput probs = not_compared("probs", {heads, total_q, longest_k});
  const double lse_unit = p.lse_base2 ? std::numbers::ln2 : 1;
  const CaseInputs inputs(c, kNoneStored);
  const ErrorModel model = error_model_of(c, numerics);
  const StoredOut stored(c);
  const reference::Problem problem = problem_of(c);
  std::mutex mutex;
  e.rows_total = q_begins(p).back() * heads;
  reference::attend(
      problem, inputs, rows_to_compare(c, problem, {mode, c.seed}), num_threads,
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
          lse.value[at_lse] = m.lse / lse_unit;
          lse.sigma[at_lse] = empty ? 0.0f : static_cast<float>(model.sigma_lse(m) / lse_unit);
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
            const double sigma = empty ? 0 : model.sigma(m, o, block.a2[b], block.v2[b], block.vv[b]);
            out.value[at + i] = o / stored.scale;
            out.sigma[at + i] = static_cast<float>(sigma / stored.scale);
          }
        }
        const std::lock_guard lock(mutex);
        e.rows += static_cast<int64_t>(block.rows.size());
      });
  e.tensors = {std::move(out), std::move(lse)};
  if (p.probs) e.tensors.push_back(std::move(probs));
}

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

void expect_gradients(const Case& c, const Numerics& numerics, CheckMode mode, int num_threads,
                      ExpectedOutputs& e) {
  const CaseParams& p = c.params;
  const std::vector<int64_t> q_begin = packed_q_begins(p);
  std::vector<int64_t> k_begin = {0};
  for (const SeqLen& s : p.seqs) k_begin.push_back(k_begin.back() + s.k);
  const int64_t heads = p.num_heads_q, kv_heads = p.num_heads_kv;
  ExpectedOutput dq = not_compared("dq", {q_begin.back(), heads, p.head_dim});
  ExpectedOutput dk = not_compared("dk", {k_begin.back(), kv_heads, p.head_dim});
  ExpectedOutput dv = not_compared("dv", {k_begin.back(), kv_heads, p.dim_v()});
  const BackwardModel model(c, numerics);
  const CaseInputs inputs(c, kNoneStored);
  const reference::Problem problem = problem_of(c);
  std::mutex mutex;
  const auto count = [&](std::size_t rows) {
    const std::lock_guard lock(mutex);
    e.rows += static_cast<int64_t>(rows);
  };
  const auto row_of = [](std::span<const double> all, std::size_t r, int32_t width) {
    return all.subspan(r * static_cast<std::size_t>(width), static_cast<std::size_t>(width));
  };
  struct Sink {
    double value = 0, squares = 0, variance = 0;
    int64_t rows = 0;
  };
  std::vector<Sink> sinks(sinks_of(c).size());
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
  const std::vector<float> sink_logits = sinks_of(c);
  const auto facts = [&](std::span<const reference::RowId> rows, std::span<const reference::RowFacts> of) {
    const std::lock_guard lock(mutex);
    for (std::size_t r = 0; r < rows.size() && !sinks.empty(); ++r) {
      const auto head = static_cast<std::size_t>(rows[r].head);
      ++sinks[head].rows;
      if (of[r].keys == 0) continue;
      const double weight = std::exp(static_cast<double>(sink_logits[head]) - of[r].lse);
      sinks[head].value -= weight * of[r].delta;
      sinks[head].squares += weight * weight * of[r].delta * of[r].delta;
      sinks[head].variance += model.sink_variance(of[r], weight);
    }
  };
  reference::differentiate(problem, inputs, rows_to_compare(c, problem, mode),
                           keys_to_compare(c, problem, mode),
                           [&](const reference::RowFacts& row) { return model.pair_errors(row); },
                           num_threads, {queries, keys, facts});
  e.rows_total = q_begins(p).back() * heads + k_begin.back() * kv_heads;
  e.tensors = {std::move(dq), std::move(dk), std::move(dv)};
  if (sinks.empty()) return;
  ExpectedOutput dsinks = not_compared("dsinks", {heads});
  for (std::size_t h = 0; h < sinks.size(); ++h) {
    const Sink& s = sinks[h];
    if (s.rows != q_begins(p).back()) continue;  // a sample has not all queries of the head
    dsinks.value[h] = s.value;
    dsinks.sigma[h] =
        static_cast<float>(std::sqrt(s.variance + model.sink_sum_variance(s.value, s.squares, s.rows)));
  }
  e.tensors.push_back(std::move(dsinks));
}

}  // namespace

ExpectedOutputs expected_outputs(const Case& c, const Numerics& numerics, CheckMode mode, int num_threads) {
  ExpectedOutputs e;
  (c.params.op == Op::kAttentionBackward ? expect_gradients : expect_attention)(c, numerics, mode,
                                                                                num_threads, e);
  return e;
}

}  // namespace attnbench
