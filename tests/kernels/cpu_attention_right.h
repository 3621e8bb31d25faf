// The expected result of the cpu kernel for a problem, from plain double loops.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/contract/dropout.h"
#include "tests/kernels/cpu_attention_layout.h"

namespace attnbench::testing {

/// Expected output row of one head.
struct ExpectedRow {
  bool empty = false;         ///< no key is visible
  double lse = 0;             ///< for an empty row: the sink, or -inf
  std::vector<double> probs;  ///< per key, without dropout
  std::vector<double> out;    ///< per channel
  double slack = 0;           ///< tolerance for the row's fp32 arithmetic
};

/// Score of query `i` of sequence `s` with key `j`; -inf if the key is masked. `id` selects the sequence's
/// values.
inline double score_of(const Problem& p, const Seq& s, uint64_t id, int i, int head, int j) {
  const int kv_head = head / (p.heads_q / p.heads_kv);
  const int64_t diagonal = int64_t{i} + s.k - s.q;
  if (!p.in_interval(s, i, j) || !p.sees(id, i, j) || !p.lists(id, i, kv_head, j)) {
    return -std::numeric_limits<double>::infinity();
  }
  double dot = 0;
  for (int d = 0; d < p.dim; ++d) dot += double{value(p, 0, id, i, head, d)} * value(p, 1, id, j, kv_head, d);
  for (int d = 0; p.qv && d < p.dv(); ++d)
    dot += double{value(p, 3, id, i, head, d)} * value(p, 2, id, j, kv_head, d);
  dot *= double{p.q_descale(id, i, head)} * p.k_descale(id, j, kv_head) * p.softmax_scale();
  if (p.softcap > 0) dot = p.softcap * std::tanh(dot / p.softcap);
  if (p.alibi != Slopes::kNone) {
    const double distance = static_cast<double>(std::abs(diagonal - j));
    dot -= p.slope(id, head) * (p.alibi_sqrt ? std::sqrt(distance) : distance);
  }
  return dot;
}

/// The row of query `i` of sequence `s`; `token` is its packed token.
inline ExpectedRow expected_row(const Problem& p, const Seq& s, uint64_t id, int i, int token, int head) {
  const int kv_head = head / (p.heads_q / p.heads_kv);
  std::vector<double> score(static_cast<std::size_t>(s.k));
  double top = -std::numeric_limits<double>::infinity();
  for (int j = 0; j < s.k; ++j) {
    score[j] = score_of(p, s, id, i, head, j);
    top = std::max(top, score[j]);
  }
  ExpectedRow row;
  row.empty = std::isinf(top);
  // The error of an fp32 score is its own rounding, which grows with the bias in it.
  row.slack = 4e-6 * std::max(1.0f, p.magnitude) * (row.empty ? 1.0 : std::max(1.0, std::abs(top) / 8));
  row.probs.assign(score.size(), 0.0);
  row.out.assign(static_cast<std::size_t>(p.dv()), 0.0);
  const float sink = p.sinks ? p.sink(head) : -std::numeric_limits<float>::infinity();
  row.lse = sink;
  if (row.empty) return row;
  top = std::max(top, double{sink});
  double sum = std::isinf(sink) ? 0 : std::exp(sink - top);
  for (int j = 0; j < s.k; ++j) {
    if (std::isinf(score[j])) continue;
    row.probs[j] = std::exp(score[j] - top);
    sum += row.probs[j];
    if (p.p_dropout > 0 &&
        !dropout_keeps(kDropoutSeed, kDropoutOffset, head, token, j, dropout_threshold(p.p_dropout))) {
      continue;
    }
    for (int d = 0; d < p.dv(); ++d)
      row.out[d] += row.probs[j] * value(p, 2, id, j, kv_head, d) * p.v_descale(id, j, kv_head, d);
  }
  row.lse = top + std::log(sum);
  for (double& x : row.probs) x /= sum;
  for (double& x : row.out) x /= (1 - double{p.p_dropout}) * sum;
  return row;
}

/// Expects the kernel's result to match plain double loops, up to the rounding of outputs and a few fp32
/// ulps.
inline void expect_right(const Problem& p, int threads = 2) {
  const Result got = run(p, threads);
  const double u_out = unit_roundoff(p.dtype_out);
  int total = 0;
  int longest = 0;
  for (const Seq& s : p.seqs) {
    total += s.q;
    longest = std::max(longest, s.k);
  }
  int begin = 0;
  int failures = 0;
  for (std::size_t b = 0; b < p.seqs.size(); begin += p.seqs[b++].q) {
    const Seq& s = p.seqs[b];
    const uint64_t id = s.id >= 0 ? s.id : b;
    for (int h = 0; h < p.heads_q; ++h) {
      for (int i = 0; i < s.q; ++i) {
        const ExpectedRow row = expected_row(p, s, id, i, p.q_begin + begin + i, h);
        const auto expect_near = [&, b, h, i](const char* what, int at, double x, double expected,
                                              double room) {
          if (x == expected || std::abs(x - expected) <= room || failures++ > 5) return;
          ADD_FAILURE() << "sequence " << b << " row " << i << " head " << h << ' ' << what << ' ' << at
                        << ": " << x << " expected " << expected;
        };
        const std::size_t at = static_cast<std::size_t>(h) * total + begin + i;
        expect_near("lse of token", p.q_begin + begin + i, got.lse[at], row.lse,
                    row.empty ? 0 : row.slack * (1 + std::abs(row.lse)));
        for (int j = 0; p.probs && j < longest; ++j) {
          const double expected = j < s.k ? row.probs[j] : 0.0;
          expect_near("key", j, got.probs[at * longest + j], expected,
                      2 * row.slack * expected + std::numeric_limits<float>::denorm_min());
        }
        for (int d = 0; d < p.dv(); ++d) {
          const double room = row.empty ? 0 : 1.01 * u_out * std::abs(row.out[d]) + row.slack;
          const float x = got.out[((static_cast<std::size_t>(begin) + i) * p.heads_q + h) * p.dv() + d];
          expect_near("channel", d, x, row.out[d], room);
        }
        if (failures > 5) return;
      }
    }
  }
}

}  // namespace attnbench::testing
