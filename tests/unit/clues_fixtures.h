// Cases and outputs shared by the tests of clues.
#pragma once

#include <bit>
#include <functional>
#include <string>
#include <vector>

#include "harness/cases/cost.h"
#include "harness/verify/case_inputs.h"
#include "harness/verify/clues.h"
#include "harness/verify/sample.h"

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

}  // namespace attnbench::test
