#include "harness/verify/expected.h"

#include <atomic>
#include <limits>

#include "harness/verify/bitwise.h"
#include "harness/verify/case_inputs.h"
#include "harness/verify/row_findings.h"
#include "harness/verify/sample.h"
#include "harness/verify/stored_out.h"

namespace attnbench {

ExpectedOutputs expected_outputs(const Case& c, const Numerics& numerics, CheckMode mode, int num_threads) {
  const CaseParams& p = c.params;
  const std::vector<int64_t> q_begin = packed_q_begins(p);
  const int64_t total_q = q_begin.back();
  const auto d = static_cast<std::size_t>(p.dim_v());
  const auto rows = static_cast<std::size_t>(total_q * p.num_heads_q);
  ExpectedOutputs e;
  e.rows_total = q_begins(p).back() * p.num_heads_q;
  e.out.assign(rows * d, std::numeric_limits<double>::quiet_NaN());
  e.lse.assign(rows, std::numeric_limits<double>::quiet_NaN());
  e.sigma_out.assign(rows * d, std::numeric_limits<float>::quiet_NaN());
  e.sigma_lse.assign(rows, std::numeric_limits<float>::quiet_NaN());

  const std::vector<unsigned char> none_stored;
  const CaseInputs inputs(c, none_stored);
  const ErrorModel model = error_model_of(c, numerics);
  const StoredOut stored(c);
  const reference::Problem problem = problem_of(c);
  std::atomic<int64_t> computed{0};
  reference::attend(
      problem, inputs, rows_to_compare(c, problem, mode), num_threads, [&](const reference::RowBlock& block) {
        for (std::size_t r = 0; r < block.rows.size(); ++r) {
          const reference::RowId id = block.rows[r];
          const int64_t token = q_begin[static_cast<std::size_t>(id.seq)] + id.pos;
          const auto at_lse = static_cast<std::size_t>(id.head * total_q + token);
          const auto at = static_cast<std::size_t>(token * p.num_heads_q + id.head) * d;
          const RowMoments m = moments_of(block, r, inputs);
          const bool empty = m.keys == 0;
          e.lse[at_lse] = m.lse;
          e.sigma_lse[at_lse] = empty ? 0.0f : static_cast<float>(model.sigma_lse(m));
          for (std::size_t i = 0; i < d; ++i) {
            const std::size_t b = r * d + i;
            const double o = stored.reachable(block.o[b]);
            e.out[at + i] = o;
            e.sigma_out[at + i] =
                empty ? 0.0f : static_cast<float>(model.sigma(m, o, block.a2[b], block.v2[b], block.vv[b]));
          }
        }
        computed += static_cast<int64_t>(block.rows.size());
      });
  e.rows = computed;
  return e;
}

}  // namespace attnbench
