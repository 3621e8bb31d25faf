// attention_backward as a case: what its keys must agree on, and what it costs.
#include <fmt/format.h>

#include <algorithm>

#include "harness/cases/tally.h"
#include "harness/ops/case_ops.h"

namespace attnbench::ops::attention_backward {
namespace {

/// Most channels of a row.
constexpr int32_t kMaxDim = 256;

void check(const CaseParams& p, const GivenKeys& given, const FailAt& fail) {
  if (given("kv") && p.kv != KvSource::kPacked) {
    fail("kv",
         "attention_backward takes packed keys, as training has them; write 'kv: packed' or drop the key");
  }
  if (std::max(p.head_dim, p.dim_v()) > kMaxDim) {
    fail(p.dim_v() > kMaxDim && p.head_dim_v != 0 ? "head_dim_v" : "head_dim",
         fmt::format("attention_backward has rows of up to {} channels; lower head_dim {} or head_dim_v {}",
                     kMaxDim, p.head_dim, p.dim_v()));
  }
  check_widths(p, fail);
}

/// Five products: q.k, dO.v, P^T dO, dS K and dS^T q. Every row of K and V has its gradients written, visible
/// or not.
void set_cost(const CaseParams& p, DrawSeed seed, CaseCost& c) {
  const Tally t = tally_of(p, seed);
  const double d = p.head_dim;
  const double dv = p.dim_v();
  const double e = element_bytes(p.dtype);
  const double rows_q = p.num_heads_q * static_cast<double>(c.total_q);
  const double rows_k = p.num_heads_kv * static_cast<double>(c.total_k);
  const double sinks = p.sinks ? 4.0 * p.num_heads_q : 0;
  c.pairs = static_cast<double>(t.pairs);
  c.flop = p.num_heads_q * (6 * d + 4 * dv) * c.pairs;
  c.written = e * (d * rows_q + (d + dv) * rows_k) + sinks;
  c.bytes = (e * (d + 2 * dv) + 4) * rows_q + e * (d + dv) * p.num_heads_kv * static_cast<double>(t.visible) +
            c.written + sinks;
  c.formula = "Hq*(6*D+4*Dv)*pairs; (2*e*(D+Dv)+4)*Hq*Tq + e*(D+Dv)*Hkv*(Kvis+Tk)";
  if (p.sinks) c.formula += " + 8*Hq";
  c.device_bytes = (2 * e * (d + dv) + 4) * rows_q + 2 * e * (d + dv) * rows_k + 2 * sinks;
}

}  // namespace

const CaseOps kCaseOps = {check, set_cost};

}  // namespace attnbench::ops::attention_backward
