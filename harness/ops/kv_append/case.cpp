// kv_append as a case: what its keys must agree on, and what it costs.
#include <fmt/format.h>

#include "harness/cases/tally.h"
#include "harness/ops/case_ops.h"

namespace attnbench::ops::kv_append {
namespace {

void check(const CaseParams& p, const GivenKeys& given, const FailAt& fail) {
  if (given("kv") && p.kv != KvSource::kPaged) {
    fail("kv",
         "kv_append writes through a slot mapping into a paged cache; write 'kv: paged' or drop the key");
  }
  check_no_block_scales(p, fail);
  if (p.head_dim > kMaxWrittenKey) {
    fail("head_dim", fmt::format("kv_append writes keys of up to {} channels; lower head_dim {}",
                                 kMaxWrittenKey, p.head_dim));
  }
  if (p.v_is_k_view) {
    fail("v_is_k_view", "kv_append writes values of their own; drop v_is_k_view, or set one_row");
  }
  if (p.dim_v() > kMaxWrittenValue) {
    fail("head_dim_v", fmt::format("kv_append writes values of up to {} channels; lower head_dim_v {}",
                                   kMaxWrittenValue, p.dim_v()));
  }
  for (const bool is_v : {false, true}) {
    if (p.descales_of(is_v) != DescalesPer::kToken) continue;
    fail(is_v && !p.one_row ? "v_descales" : "k_descales",
         "kv_append computes descales per_token: write 'scales: per_token' in place of it");
  }
  if (!p.one_row) return;
  refuse(
      fail,
      {{p.kv_dtype == KvDType::kInt8 || p.kv_dtype == KvDType::kInt8K, "kv_dtype",
        "a value and its key in one row share a descale, and in int8 they have others; take kv_dtype e4m3, "
        "e5m2 or same, or drop one_row"},
       {p.computes_scales(false), "scales",
        "a value and its key in one row share a given scale; write 'scales: given' or drop one_row"}});
}

/// Bytes of the fp32 scales that kv_append is given.
double given_scale_bytes(const CaseParams& p) {
  double bytes = 0;
  for (const bool is_v : {false, true}) {
    if (!p.quantises(is_v) || p.computes_scales(is_v)) continue;
    const bool int8 = p.type_of_kv(is_v) == DType::kInt8;
    bytes += 4.0 * shared_scales(p, is_v, int8 ? DescalesPer::kChannel : DescalesPer::kHead);
  }
  return bytes;
}

/// Each new row of K and V is read once and written once, with its scales. Each token has a slot number of
/// 8 bytes.
void set_cost(const CaseParams& p, DrawSeed seed, CaseCost& c) {
  const Tally t = tally_of(p, seed);
  const int computed = p.computes_scales(false) + p.computes_scales(true);
  const double in_row = element_bytes(p.dtype) * p.num_heads_kv * (p.head_dim + p.dim_v());
  const double out_row = kv_row_bytes(p) + 4.0 * p.num_heads_kv * computed;
  const double given = given_scale_bytes(p);
  c.written = out_row * static_cast<double>(c.total_q);
  c.bytes = in_row * static_cast<double>(c.total_q) + c.written +
            8.0 * static_cast<double>(c.total_q + p.padding_tokens) + given;
  if (p.dim_v() != p.head_dim) {
    c.formula = "kv_append: ((e+e_k)*D+(e+e_v)*Dv)*Hkv*T + 8*T";
  } else {
    c.formula =
        p.quantises(false) ? "kv_append: (2*e+e_k+e_v)*Hkv*D*T + 8*T" : "kv_append: 4*e*Hkv*D*T + 8*T";
  }
  if (computed > 0) c.formula += fmt::format(" + 4*{}*Hkv*T", computed);
  double query_rows = 0;  // of a token, in bytes: read, then written
  if (p.query_out != QueryOut::kNone) {
    const double row = static_cast<double>(p.num_heads_q) * p.head_dim;
    const double out = element_bytes(p.query_out == QueryOut::kE4m3 ? DType::kE4m3 : p.dtype) * row;
    query_rows = element_bytes(p.dtype) * row + out;
    c.written += out * static_cast<double>(c.total_q);
    c.bytes += query_rows * static_cast<double>(c.total_q);
    c.formula += " + (e+e_q)*Hq*D*T";
  }
  if (given > 0) c.formula += " + scales";
  c.device_bytes = out_row * static_cast<double>(t.kv_rows) +
                   (in_row + query_rows) * static_cast<double>(c.total_q + p.padding_tokens) + given;
  if (p.rotary != Rotary::kNone) {  // a position per token, a row of both tables per position
    const double position = p.positions64 ? 8.0 : 4.0;
    c.bytes += position * static_cast<double>(c.total_q) +
               rotary_row_bytes(p) * static_cast<double>(new_positions(p));
    c.formula += fmt::format(" + {}*T + 4*Dr*positions", position);
    c.device_bytes += rotary_row_bytes(p) * p.rotary_positions();
  }
}

}  // namespace

const CaseOps kCaseOps = {check, set_cost};

}  // namespace attnbench::ops::kv_append
