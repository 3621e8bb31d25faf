#include "harness/cases/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "harness/cases/key_lists.h"
#include "harness/cases/kv_rows.h"
#include "harness/cases/moved.h"
#include "harness/cases/paths.h"
#include "harness/cases/seen_keys.h"
#include "harness/cases/visible_keys.h"

namespace attnbench {
namespace {

/// Number of tensors in e4m3 or e5m2 that have a descale per (sequence, KV head).
int descales_per_sequence(const CaseParams& p) {
  const auto usual = [](bool has, DescalesPer per) { return has && per == DescalesPer::kUsual; };
  return usual(is_fp8(p.type_of_q()), p.q_descales) +
         usual(has_fp8_descales(p, false), p.descales_of(false)) +
         usual(has_fp8_descales(p, true), p.descales_of(true));
}

/// Number of fp32 scales of K or V that all sequences share.
double shared_scales(const CaseParams& p, bool is_v, DescalesPer usual) {
  const DescalesPer per = p.descales_of(is_v) == DescalesPer::kUsual ? usual : p.descales_of(is_v);
  if (per == DescalesPer::kTensor) return 1;
  return p.num_heads_kv * (per == DescalesPer::kChannel ? p.dim_of_kv(is_v) : 1);
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

/// Bytes of the descales of attention that all sequences share, but those of int8.
double shared_descale_bytes(const CaseParams& p) {
  double bytes = 0;
  if (p.type_of_q() == DType::kE4m3 && p.q_descales != DescalesPer::kUsual) {
    bytes += 4.0 * (p.q_descales == DescalesPer::kTensor ? 1 : p.num_heads_kv);
  }
  for (const bool is_v : {false, true}) {
    if (p.kv_dtype == KvDType::kNvfp4) bytes += 4.0;
    if (!has_fp8_descales(p, is_v) || p.descales_of(is_v) == DescalesPer::kUsual) continue;
    bytes += 4.0 * shared_scales(p, is_v, DescalesPer::kHead);
  }
  return bytes;
}

/// The formulas of attention, in the symbols of the contract; e_x is the bytes of an element of x. Each int8
/// row of q and K, and each int8 channel of V, has a descale of 4 bytes.
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
  if (p.type_of_q() == DType::kInt8) f += " + 4*Hq*Tq";
  if (int8) f += " + 4*Hkv*Kvis";
  if (p.type_of_v() == DType::kInt8) f += " + 4*Hkv*Dv";
  if (p.probs) f += " + 4*Hq*Tq*max_k";
  return f;
}

/// Number of positions of the keys that turn and of queries: the rows of the rotary tables that a launch reads.
int64_t new_positions(const CaseParams& p) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const SeqLen& s : p.seqs) {
    if (p.rotary_cached) {
      const KeyRange seen = visible_keys_union(mask_of(p), s.q, s.k);
      ranges.emplace_back(seen.begin, seen.end);
    } else {
      ranges.emplace_back(s.k - p.new_len(s), s.k);
    }
    if (s.q > 0) ranges.emplace_back(p.rotary_position(s, 0), p.rotary_position(s, s.q - 1) + 1);
  }
  return union_size(std::move(ranges));
}

/// Blocks of one sequence of k tokens, summed over the ranks of its path.
int64_t blocks_of_sequence(const CaseParams& p, int32_t k) {
  if (p.path != Path::kDcp) return blocks_of(k, p.block_size);
  int64_t blocks = 0;
  for (int32_t rank = 0; rank < p.dcp_ranks; ++rank) {
    blocks += blocks_of(dcp_local_len(k, p.dcp_ranks, p.dcp_interleave, rank), p.block_size);
  }
  return blocks;
}

double element_bytes(DType t) { return static_cast<double>(dtype_size(t)); }

/// Rows, pairs and blocks of all sequences of a case.
struct Tally {
  int64_t pairs = 0;          ///< visible (query, key) pairs of one head
  int64_t interval = 0;       ///< the same without regard to a custom mask
  int64_t heads = 1;          ///< KV heads that `pairs` and `visible` are sums over
  int64_t visible = 0;        ///< KV rows that some query sees; rows of a shared prefix count once
  int64_t blocks = 0;         ///< block_table entries of visible rows, for each sequence
  int64_t added = 0;          ///< new tokens
  int64_t added_visible = 0;  ///< new tokens that some query sees
  int64_t kv_rows = 0;        ///< rows of the cache
};

/// Rows of given blocks that a query sees and a query of another sequence sees too, without the first time.
int64_t rows_seen_twice(const CaseParams& p) {
  std::unordered_map<int32_t, std::pair<int64_t, int64_t>>
      seen_of;  // block: rows seen in all, most of one place
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const KeyRange seen = visible_keys_union(mask_of(p), p.seqs[b].q, p.seqs[b].k);
    for (int64_t i = seen.begin / p.block_size; i * p.block_size < seen.end; ++i) {
      const int64_t first = std::max<int64_t>(seen.begin, i * p.block_size);
      const int64_t rows = std::min<int64_t>(seen.end, (i + 1) * p.block_size) - first;
      auto& [all, most] = seen_of[p.blocks->ids()[b][static_cast<std::size_t>(i)]];
      all += rows;
      most = std::max(most, rows);
    }
  }
  int64_t twice = 0;
  for (const auto& [block, rows] : seen_of) twice += rows.first - rows.second;
  return twice;
}

/// Whether key j of a sequence is seen with a KV head, for each j.
std::vector<bool> any_sees(const SeenKeys& seen, std::size_t b, const SeqLen& s, int32_t kv_head,
                           bool lists) {
  std::vector<bool> any(static_cast<std::size_t>(s.k), false);
  for (int64_t i = 0; i < s.q; ++i) {
    if (lists) {
      for (const int32_t j : seen.listed(b, i, kv_head)) any[static_cast<std::size_t>(j)] = true;
      continue;
    }
    const KeyRange keys = seen.range(b, i);
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      if (seen.in_no_gap(b, i, kv_head, j)) any[static_cast<std::size_t>(j)] = true;
    }
  }
  return any;
}

/// Counts pairs and rows that a custom mask or lists of keys show. Each KV head has lists of its own.
void count_with_gaps(const CaseParams& p, uint64_t seed, Tally& t) {
  const SeenKeys seen(p, seed);
  t.pairs = t.visible = t.added_visible = 0;
  t.heads = p.topk > 0 ? p.num_heads_kv : 1;
  for (int32_t h = 0; h < t.heads; ++h) {
    std::vector<std::vector<bool>> rows;  // seen ones, each where its owner has it
    for (const SeqLen& s : p.seqs) rows.emplace_back(static_cast<std::size_t>(s.k), false);
    for (std::size_t b = 0; b < p.seqs.size(); ++b) {
      const SeqLen& s = p.seqs[b];
      for (int64_t i = 0; i < s.q; ++i) t.pairs += seen.count(b, i, h);
      const std::vector<bool> any = any_sees(seen, b, s, h, p.topk > 0);
      for (int32_t j = 0; j < s.k; ++j) {
        if (!any[static_cast<std::size_t>(j)]) continue;
        if (j >= s.k - p.new_len(s)) ++t.added_visible;
        GivenBlocks::Row owner{j < p.shared_tokens() ? 0 : static_cast<int32_t>(b), j};
        if (p.blocks) owner = p.blocks->owner(static_cast<int32_t>(b), j);
        std::vector<bool>::reference row =
            rows[static_cast<std::size_t>(owner.seq)][static_cast<std::size_t>(owner.pos)];
        t.visible += row ? 0 : 1;
        row = true;
      }
    }
  }
}

/// The seed of the masks that are drawn; none: no mask is drawn.
using DrawSeed = std::optional<uint64_t>;

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

Tally tally_of(const CaseParams& p, DrawSeed seed) {
  Tally t;
  const Mask mask = mask_of(p);
  int64_t longest = 0;
  const int64_t shared = p.shared_tokens();
  std::vector<std::pair<int64_t, int64_t>> shared_visible;  // visible part of the prefix, by sequence
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const SeqLen& s = p.seqs[b];
    const int32_t leftpad = leftpad_of(p, b);
    t.interval += visible_pairs(mask, s.q, s.k);
    const KeyRange seen = visible_keys_union(mask, s.q, s.k);
    t.visible += seen.size();
    t.added += p.new_len(s);
    if (!seen.empty()) {
      // A window may begin within a block.
      t.added_visible += std::max<int64_t>(0, seen.end - std::max<int64_t>(seen.begin, s.k - p.new_len(s)));
      t.blocks += p.path == Path::kDcp
                      ? blocks_of_sequence(p, s.k)
                      : (leftpad + seen.end - 1) / p.block_size - (leftpad + seen.begin) / p.block_size + 1;
      if (seen.begin < shared) {
        shared_visible.emplace_back(seen.begin, std::min(seen.end, shared));
        t.visible -= shared_visible.back().second - seen.begin;
      }
    }
    longest = std::max<int64_t>(longest, s.k);
    t.kv_rows += p.kv == KvSource::kPaged ? blocks_of_sequence(p, s.k + p.leftpad) * p.block_size - shared
                                          : int64_t{s.k} + p.gap_tokens;
  }
  t.visible += union_size(std::move(shared_visible));
  if (p.blocks) t.visible -= rows_seen_twice(p);
  t.pairs = t.interval;
  if (seed && has_gaps(p)) count_with_gaps(p, *seed, t);
  t.kv_rows += p.seqs.empty() ? 0 : shared;
  if (p.blocks) t.kv_rows = int64_t{p.blocks->num_blocks()} * p.block_size;
  if (p.kv == KvSource::kPaged) t.kv_rows = std::max(t.kv_rows, int64_t{p.pool_blocks} * p.block_size);
  if (p.kv == KvSource::kContiguous) {
    t.kv_rows = contiguous_rows(p.seqs.size()) * contiguous_capacity(longest, p.leftpad);
  }
  return t;
}

/// Bytes of one cached row of K and V, all heads, with its own scales. If V is a view of K, V takes no bytes.
double kv_row_bytes(const CaseParams& p) {
  const auto row = [&p](bool is_v) {
    const int64_t scales = has_scale_tensor(p, is_v) ? block_scales(p, is_v) : 0;
    return element_bytes(p.type_of_kv(is_v)) * static_cast<double>(row_elements(p, is_v)) +
           static_cast<double>(scales);
  };
  const double k_descale = p.op == Op::kAttention && p.type_of_k() == DType::kInt8 ? 4 : 0;
  return p.num_heads_kv * (row(false) + k_descale + (p.v_is_k_view ? 0 : row(true)));
}

/// Bytes of one row of both rotary tables (sines and cosines).
double rotary_row_bytes(const CaseParams& p) { return 4.0 * p.rotary_width(); }

void set_merge_cost(const CaseParams& p, CaseCost& c) {
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

/// Bytes of one row of K and V in dtype, all heads, as gather writes it.
double gathered_row_bytes(const CaseParams& p) {
  return element_bytes(p.dtype) * p.num_heads_kv * (p.head_dim + (p.v_is_k_view ? 0 : p.dim_v()));
}

/// Each block or row is read once, however often it is written. A pair has 16 bytes, an entry of a table 4.
void set_move_cost(const CaseParams& p, const Tally& t, CaseCost& c) {
  const double row = kv_row_bytes(p);
  const auto batch = static_cast<double>(p.seqs.size());
  if (p.gathers()) {
    const Moved m = gathered_rows(p);
    int64_t entries = 0;
    for (std::size_t b = 0; b < p.seqs.size(); ++b)
      entries += blocks_of(p.seqs[b].k, p.block_size) - p.start_of(b) / p.block_size;
    const double tables =
        4.0 * static_cast<double>(entries) + (p.starts == Starts::kNone ? 4.0 : 8.0) * batch;
    c.written = gathered_row_bytes(p) * static_cast<double>(m.written);
    c.bytes = row * static_cast<double>(m.read) + c.written + tables;
    c.formula = "kv_move: ((e_k*D+e_v*Dv)*Tread + e*(D+Dv)*T)*Hkv + 4*(blocks+B)";
    if (p.starts != Starts::kNone) c.formula += " + 4*B";
  } else {
    const Moved m = moved_blocks(p);
    const double block = row * p.block_size;
    c.written = block * static_cast<double>(m.written);
    c.bytes = block * static_cast<double>(m.read) + c.written + 16.0 * static_cast<double>(m.written);
    c.formula = "kv_move: (e_k*D+e_v*Dv)*Hkv*block_size*(blocks+pairs) + 16*pairs";
  }
  c.device_bytes = row * static_cast<double>(t.kv_rows) + c.written;
}

/// Each new row of K and V is read once and written once, with its scales. Each token has a slot number of
/// 8 bytes.
void set_append_cost(const CaseParams& p, const Tally& t, CaseCost& c) {
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

void set_attention_cost(const CaseParams& p, DrawSeed seed, const Tally& t, CaseCost& c) {
  const double d = p.head_dim;
  const double dv = p.dim_v();
  const double rows_q = p.num_heads_q * static_cast<double>(c.total_q);
  const double q_row_bytes = element_bytes(p.type_of_q()) * d + (p.type_of_q() == DType::kInt8 ? 4 : 0) +
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
            (p.type_of_v() == DType::kInt8 ? 4.0 * p.num_heads_kv * dv : 0.0) + shared_descale_bytes(p);
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

/// Five products: q.k, dO.v, P^T dO, dS K and dS^T q. Every row of K and V has its gradients written, visible
/// or not.
void set_backward_cost(const CaseParams& p, const Tally& t, CaseCost& c) {
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

CaseCost cost_with(const CaseParams& p, DrawSeed seed) {
  CaseCost c;
  for (const SeqLen& s : p.seqs) {
    c.total_q += s.q;
    c.total_k += s.k;
    c.max_q = std::max(c.max_q, s.q);
    c.max_k = std::max(c.max_k, s.k);
  }
  switch (p.op) {
    case Op::kAttention:
      set_attention_cost(p, seed, tally_of(p, seed), c);
      break;
    case Op::kKvAppend:
      set_append_cost(p, tally_of(p, seed), c);
      break;
    case Op::kMergeStates:
      set_merge_cost(p, c);
      break;
    case Op::kAttentionBackward:
      set_backward_cost(p, tally_of(p, seed), c);
      break;
    case Op::kKvMove:
      set_move_cost(p, tally_of(p, seed), c);
      break;
  }
  return c;
}

}  // namespace

CaseCost cost_of(const CaseParams& p, uint64_t seed) { return cost_with(p, seed); }

CaseCost most_cost_of(const CaseParams& p) { return cost_with(p, std::nullopt); }

double executed_flop(const CaseParams& p, const Tile& tile) {
  if (p.op != Op::kAttention || p.path != Path::kOneCall || p.topk > 0) return 0;
  if (std::min({tile.tokens, tile.heads, tile.rows, tile.keys}) <= 0) return 0;
  const Mask mask = mask_of(p);
  int64_t blocks = 0;
  for (const SeqLen& s : p.seqs) {
    for (int64_t first = 0; first < s.q; first += tile.tokens) {
      const int64_t last = std::min<int64_t>(first + tile.tokens, s.q) - 1;
      const KeyRange seen = visible_keys(mask, s.q, s.k, first, last);
      if (!seen.empty()) blocks += (seen.end - 1) / tile.keys - seen.begin / tile.keys + 1;
    }
  }
  const double tiles_of_heads = static_cast<double>(p.num_heads_q) / tile.heads;
  return 2.0 * (p.head_dim + (p.qv ? 2 : 1) * p.dim_v()) * tiles_of_heads * tile.rows * tile.keys *
         static_cast<double>(blocks);
}

}  // namespace attnbench
