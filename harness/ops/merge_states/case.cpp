// merge_states as a case: what it costs.
#include "harness/cases/tally.h"
#include "harness/ops/case_ops.h"

namespace attnbench::ops::merge_states {
namespace {

void check(const CaseParams&, const GivenKeys&, const FailAt&) {}

void set_cost(const CaseParams& p, DrawSeed, CaseCost& c) {
  const double d = p.head_dim;
  const double rows = static_cast<double>(c.total_q) * p.num_heads_q;
  const double e_p = element_bytes(p.type_of_partial());
  const double states = p.ragged_states ? 0.5 * p.states : p.states;  // of a row; ragged: on average
  const double filled = rows * states * (1 - p.empty_states);         // states whose O is read
  c.total_k = c.max_k = 0;
  c.flop = 2 * d * filled;
  c.written = (element_bytes(p.type_of_out()) * d + 4) * rows;
  c.bytes = e_p * d * filled + 4.0 * rows * states + c.written +
            (p.ragged_states ? 4.0 * static_cast<double>(c.total_q) : 0.0);
  c.formula = "merge_states: 2*D*R*N'; (e_p*N'*D + 4*N + e*D + 4)*R, R = H*Tq, N' = N*(1 - empty)";
  if (p.ragged_states) c.formula += " + 4*Tq, N on average";
  c.device_bytes = (e_p * d + 4) * rows * states + c.written;
}

}  // namespace

const CaseOps kCaseOps = {check, set_cost};

}  // namespace attnbench::ops::merge_states
