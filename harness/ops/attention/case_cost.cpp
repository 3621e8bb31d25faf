#include "harness/ops/attention/case_cost.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/cases/key_lists.h"
#include "harness/cases/kv_rows.h"
#include "harness/cases/paths.h"
#include "harness/cases/tally.h"

namespace attnbench::ops::attention {
namespace {

/// Number of tensors in e4m3 or e5m2 that have a descale per (sequence, KV head).
int descales_per_sequence(const CaseParams& p) {
  const auto usual = [](bool has, DescalesPer per) { return has && per == DescalesPer::kUsual; };
  return usual(is_fp8(p.type_of_q()), p.q_descales) +
         usual(has_fp8_descales(p, false), p.descales_of(false)) +
         usual(has_fp8_descales(p, true), p.descales_of(true));
}

/// Bytes of the descales of attention that all sequences share, but those of int8.
double shared_descale_bytes(const CaseParams& p) {
  double bytes = 0;
  if (p.type_of_q() == DType::kE4m3 && p.q_descales != DescalesPer::kUsual) {
    bytes += 4.0 * (p.q_descales == DescalesPer::kTensor ? 1 : p.num_heads_kv);
  }
  for (const bool is_v : {false, true}) {
    if (p.kv_dtype == KvDType::kNvfp4) bytes += 4.0;
    if (!has_fp8_descales(p, is_v) || p.descales_of(is_v) == DescalesPer::kUsual || p.row_descales(is_v))
      continue;
    bytes += 4.0 * shared_scales(p, is_v, DescalesPer::kHead);
  }
  return bytes;
}

/// The formulas of attention, in the symbols of the contract; e_x is the bytes of an element of x. Each int8
/// row of q and K, each int8 channel of V, and each row with a descale of its own has one of 4 bytes.
std::string formula_of(const CaseParams& p) {
  const bool int8 = p.type_of_k() == DType::kInt8;
  const bool plain = p.head_dim_v == 0 && !p.v_is_k_view && !int8 && !p.qv;
  std::string f = plain  ? "4*Hq*D*pairs; (e_q+e)*Hq*D*Tq"
                  : p.qv ? "2*Hq*(D+2*Dv)*pairs; (e*D+2*e*Dv)*Hq*Tq"
                         : "2*Hq*(D+Dv)*pairs; (e_q*D+e*Dv)*Hq*Tq";
  if (p.kv_dtype == KvDType::kDsMla) {
    f += " + (33/32*Dv+2*(D-Dv))*Hkv*Kvis";
  } else if (p.kv_dtype == KvDType::kNvfp4) {
    f += p.v_is_k_view ? " + 9/16*D*Hkv*Kvis" : " + 9/16*(D+Dv)*Hkv*Kvis";
  } else if (p.v_is_k_view) {
    f += " + e_k*Hkv*D*Kvis";
  } else {
    f += plain ? " + 2*e_kv*Hkv*D*Kvis" : " + (e_k*D+e_v*Dv)*Hkv*Kvis";
  }
  f += " + 4*Hq*Tq";
  if (p.kv == KvSource::kPaged && p.topk == 0) f += " + 4*blocks";
  if (const int n = descales_per_sequence(p); n > 0) f += fmt::format(" + 4*{}*B*Hkv", n);
  if (shared_descale_bytes(p) > 0) f += " + descales";
  const auto shared = [](int32_t rows) { return rows > 1 ? fmt::format(" + 4/{}*", rows) : " + 4*"; };
  if (p.type_of_q() == DType::kInt8) f += shared(p.q_descale_rows) + "Hq*Tq";
  const bool v_rows = p.row_descales(true) && !p.v_is_k_view;
  if (p.row_descales(false)) f += shared(p.k_descale_rows) + "Hkv*Kvis";
  if (v_rows) f += " + 4*Hkv*Kvis";
  if (p.type_of_v() == DType::kInt8 && !v_rows) f += " + 4*Hkv*Dv";
  if (p.probs) f += " + 4*Hq*Tq*max_k";
  return f;
}

/// Entries of all lists of keys that count; at most so many if nothing is drawn.
double list_entries(const CaseParams& p, DrawSeed seed) {
  double entries = 0;
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    for (int32_t i = 0; i < p.seqs[b].q; ++i)
      entries += p.num_heads_kv * (seed ? key_list_length(p, {*seed, static_cast<int32_t>(b), i}) : p.topk);
  }
  return entries;
}

/// Bytes of a packed custom mask.
int64_t mask_bytes(const CaseParams& p) {
  int64_t bytes = 0;
  if (p.custom_mask == CustomMask::kNone) return bytes;
  for (const SeqLen& s : p.seqs) bytes += (int64_t{s.q} * s.k + 7) / 8;
  return bytes;
}

}  // namespace

void set_cost(const CaseParams& p, DrawSeed seed, CaseCost& c) {
  const Tally t = tally_of(p, seed);
  const double d = p.head_dim;
  const double dv = p.dim_v();
  const double rows_q = p.num_heads_q * static_cast<double>(c.total_q);
  const double q_row_bytes = element_bytes(p.type_of_q()) * d +
                             (p.type_of_q() == DType::kInt8 ? 4.0 / p.q_descale_rows : 0) +
                             (p.qv ? element_bytes(p.dtype) * dv : 0);
  const double kv_row = kv_row_bytes(p);
  const double probs_bytes = p.probs ? 4.0 * c.max_k : 0;
  c.pairs = static_cast<double>(t.pairs) / static_cast<double>(t.heads);
  c.flop = 2.0 * p.num_heads_q * (d + (p.qv ? 2 : 1) * dv) * c.pairs;
  c.written = (element_bytes(p.type_of_out()) * dv + 4 + probs_bytes) * rows_q;
  const double visible = static_cast<double>(t.visible) / static_cast<double>(t.heads);
  c.bytes = q_row_bytes * rows_q + kv_row * visible + c.written +
            (p.kv == KvSource::kPaged && p.topk == 0 ? 4.0 * static_cast<double>(t.blocks) : 0.0) +
            4.0 * p.num_heads_kv * static_cast<double>(p.seqs.size()) * descales_per_sequence(p) +
            (p.type_of_v() == DType::kInt8 && !p.row_descales(true) ? 4.0 * p.num_heads_kv * dv : 0.0) +
            shared_descale_bytes(p);
  c.formula = formula_of(p);
  if (p.custom_mask != CustomMask::kNone) {  // bits outside of the other masks need not be read
    c.bytes += static_cast<double>(t.interval) / 8;
    c.formula += " + mask";
  }
  if (p.topk > 0) {
    const double lengths = p.topk_length == TopkLength::kFull ? 0 : 4.0 * static_cast<double>(c.total_q);
    c.bytes += 4.0 * list_entries(p, seed) + lengths;
    c.formula += " + 4*entries";
    if (lengths > 0) c.formula += " + 4*Tq";
  }
  c.device_bytes = q_row_bytes * rows_q +
                   kv_row * (static_cast<double>(t.kv_rows) / p.devices() + static_cast<double>(t.added)) +
                   c.written;
  c.device_bytes +=
      static_cast<double>(mask_bytes(p)) + 4.0 * static_cast<double>(c.total_q) * p.num_heads_kv * p.topk;
  c.device_bytes += (c.written + q_row_bytes * rows_q) / std::max(1.0, rows_q) * p.num_heads_q *
                    p.gap_queries * static_cast<double>(p.seqs.size());
  const double out_row = p.num_heads_q * element_bytes(p.type_of_out()) * dv;
  const double least_there = 2 * (256 + (1 << 20) / out_row + 1);  // of a gap, see Workload::seen_of_cache
  c.hole_bytes += std::max(0.0, p.gap_queries - least_there) * static_cast<double>(p.seqs.size()) *
                  (out_row + p.num_heads_q * element_bytes(p.type_of_q()) * d);
  c.device_bytes += merged_states(p) * (element_bytes(p.dtype) * dv + 4) * rows_q;  // partial states
  if (p.append) {  // new rows are read and written once; t.visible already has those that a query sees
    const double new_row =
        p.num_heads_kv * (element_bytes(p.type_of_new(false)) * d + element_bytes(p.type_of_new(true)) * dv);
    c.bytes +=
        new_row * static_cast<double>(t.added) + kv_row * static_cast<double>(t.added - t.added_visible);
    c.written += kv_row * static_cast<double>(t.added);
    c.formula +=
        p.rounds_new(false) ? " + 2*Hkv*D*(e*Tnew+e_kv*(Tnew-Tnewvis))" : " + 2*e_kv*Hkv*D*(2*Tnew-Tnewvis)";
  }
  if (p.rotary != Rotary::kNone) {
    c.bytes += rotary_row_bytes(p) * static_cast<double>(new_positions(p));
    c.formula += " + 4*Dr*positions";
    c.device_bytes += rotary_row_bytes(p) * p.rotary_positions();
  }
}

}  // namespace attnbench::ops::attention
