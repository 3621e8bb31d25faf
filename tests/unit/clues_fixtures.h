// Cases and outputs shared by the tests of clues.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "harness/cases/cost.h"
#include "harness/judge/case_inputs.h"
#include "harness/judge/clues.h"
#include "harness/judge/sample.h"

namespace attnbench::test {

inline constexpr Numerics kNumerics{DType::kFp32, DType::kFp32, 0x1p-22};
inline const std::vector<unsigned char> kNoneStored;

inline Case case_of(bool causal) {
  Case c;
  c.params.num_heads_q = 4;
  c.params.num_heads_kv = 2;
  c.params.head_dim = 32;
  c.params.causal = causal;
  c.params.kv = KvSource::kPaged;
  c.params.seqs = {{5, 9}, {7, 33}, {0, 5}, {1, 40}, {3, 48}};
  return c;
}

inline int64_t token_of(const Case& c, const reference::RowId& id) {
  int64_t token = id.pos;
  for (int b = 0; b < id.seq; ++b) token += c.params.seqs[static_cast<std::size_t>(b)].q;
  return token;
}

/// The outputs of a kernel that solves `problem` on `inputs` and writes each row where `place` says.
inline HostOutputs outputs_of(
    const Case& c, const reference::Problem& problem, const reference::Inputs& inputs,
    const std::function<reference::RowId(reference::RowId)>& place = std::identity()) {
  const int hq = c.params.num_heads_q, d = c.params.dim_v();
  const int64_t total = cost_of(c.params).total_q;
  HostOutputs h;
  h.out.assign(static_cast<std::size_t>(total * hq * d) * dtype_size(c.params.dtype), 0xff);
  h.lse.assign(static_cast<std::size_t>(total * hq), std::bit_cast<float>(~uint32_t{0}));
  reference::attend(problem, inputs, reference::all_rows(problem), 1, [&](const reference::RowBlock& b) {
    for (std::size_t r = 0; r < b.rows.size(); ++r) {
      const reference::RowId id = place(b.rows[r]);
      const int64_t token = token_of(c, id);
      h.lse[static_cast<std::size_t>(id.head * total + token)] = static_cast<float>(b.lse[r]);
      for (int ch = 0; ch < d; ++ch)
        store_float(c.params.dtype, h.out.data(), (token * hq + id.head) * d + ch,
                    static_cast<float>(b.o[r * static_cast<std::size_t>(d) + static_cast<std::size_t>(ch)]));
    }
  });
  return h;
}

inline HostOutputs right_outputs(const Case& c) {
  return outputs_of(c, problem_of(c), CaseInputs(c, kNoneStored));
}

inline std::vector<std::string> clues(const Case& c, const HostOutputs& outputs) {
  return clues_of({c, outputs, kNumerics}, 1);
}

/// A kernel in plain loops, with a mistake.
struct Mistake {
  std::string text;
  bool causal = true;
  std::function<double(double)> score = [](double x) { return x / std::sqrt(32.0); };
  std::function<bool(int, int, SeqLen)> sees = [](int i, int j, SeqLen s) { return j <= i + s.k - s.q; };
  std::function<int(int)> k_head = [](int h) { return h / 2; };
  std::function<int(int)> v_head = k_head;
  /// The token that is read for key j; `end`: keys that the query sees.
  std::function<int(int, int, SeqLen)> k_token = [](int j, int, SeqLen) { return j; };
  std::function<int(int, int, SeqLen)> v_token = k_token;
  int block = 0;  ///< keys of a block; sums are relative to the maximum so far and never rescaled. 0: right
  bool backwards = false;
};

/// A key that a query sees.
struct SeenKey {
  int j;
  double score;
  std::vector<double> v;
};

inline HostOutputs computed_by(const Mistake& m, const Case& c) {
  constexpr std::size_t kDim = 32;
  const CaseInputs inputs(c, kNoneStored);
  HostOutputs h = right_outputs(c);
  const int64_t total = cost_of(c.params).total_q;
  for (const reference::RowId& id : reference::all_rows(problem_of(c))) {
    const SeqLen s = c.params.seqs[static_cast<std::size_t>(id.seq)];
    std::vector<double> q(kDim), k(kDim), v(kDim), o(kDim, 0.0);
    inputs.load_q(id.seq, id.head, id.pos, id.pos + 1, q.data());
    std::vector<SeenKey> seen;
    for (int j = 0; j < s.k; ++j) {
      if (c.params.causal && !m.sees(id.pos, j, s)) continue;
      const int end = c.params.causal ? id.pos + s.k - s.q + 1 : s.k;
      const int from_k = m.k_token(j, end, s), from_v = m.v_token(j, end, s);
      inputs.load_k(id.seq, m.k_head(id.head), from_k, from_k + 1, k.data());
      inputs.load_v(id.seq, m.v_head(id.head), from_v, from_v + 1, v.data());
      double dot = 0;
      for (std::size_t ch = 0; ch < kDim; ++ch) dot += q[ch] * k[ch];
      seen.push_back({j, m.score(dot), v});
    }
    if (m.backwards) std::reverse(seen.begin(), seen.end());
    double sum = 0, maximum = m.block > 0 ? -INFINITY : 0;
    for (const SeenKey& key : seen) {
      for (const SeenKey& other : seen) {
        if (m.block > 0 && other.j / m.block == key.j / m.block) maximum = std::max(maximum, other.score);
      }
      const double e = std::exp(key.score - maximum);
      sum += e;
      for (std::size_t ch = 0; ch < kDim; ++ch) o[ch] += e * key.v[ch];
    }
    const int64_t token = token_of(c, id);
    h.lse[static_cast<std::size_t>(id.head * total + token)] = static_cast<float>(maximum + std::log(sum));
    for (std::size_t ch = 0; ch < kDim; ++ch)
      store_float(c.params.dtype, h.out.data(), (token * 4 + id.head) * 32 + static_cast<int64_t>(ch),
                  static_cast<float>(o[ch] / sum));
  }
  return h;
}

}  // namespace attnbench::test
