// Ids and inline YAML of a case.
#include <fmt/format.h>

#include <cstdint>

#include "harness/cases/case.h"
#include "harness/config/batch_spec.h"

namespace attnbench {
namespace {

constexpr std::size_t kLongestBatchInId = 48;

/// FNV-1a over the lengths: stable across platforms, only to tell batches apart in an id.
uint64_t lengths_digest(const std::vector<SeqLen>& seqs) {
  uint64_t h = 1469598103934665603ull;
  const auto mix = [&h](uint32_t x) {
    for (int byte = 0; byte < 4; ++byte) h = (h ^ ((x >> (8 * byte)) & 0xffu)) * 1099511628211ull;
  };
  for (const SeqLen& s : seqs) {
    mix(static_cast<uint32_t>(s.q));
    mix(static_cast<uint32_t>(s.k));
  }
  return h;
}

const char* layout_name(KvLayout l) { return l == KvLayout::kNhd ? "nhd" : "hnd"; }
std::string path_label(const CaseParams& p) {
  switch (p.path) {
    case Path::kOneCall:
      return "";
    case Path::kCascade:
      return "/cascade";
    case Path::kSplitDecode:
      return fmt::format("/split_decode{}", p.decode_threshold);
    case Path::kDcp:
      return fmt::format("/dcp{}x{}", p.dcp_ranks, p.dcp_interleave);
  }
  return "";
}

std::string rotary_label(const CaseParams& p) {
  if (p.rotary == Rotary::kNone) return "";
  std::string label = std::string("/") + rotary_name(p.rotary);
  if (p.rotary_dim > 0) label += fmt::format("{}", p.rotary_dim);
  if (p.rotary_q != RotaryQ::kDiagonal) label += fmt::format("-{}", rotary_q_name(p.rotary_q));
  return label;
}

}  // namespace

std::string batch_label(const std::vector<SeqLen>& seqs) {
  std::string spec = format_batch_spec(seqs);
  if (spec.size() <= kLongestBatchInId) return spec;
  int64_t q = 0;
  int64_t k = 0;
  for (const SeqLen& s : seqs) {
    q += s.q;
    k += s.k;
  }
  return fmt::format("{}seqs-q{}-s{}-{:08x}", seqs.size(), q, k, static_cast<uint32_t>(lengths_digest(seqs)));
}

std::string case_id(const CaseParams& p) {
  std::string id = op_name(p.op);
  if (p.op == Op::kMergeStates) {
    id += fmt::format("/{}/h{}/d{}/{}x{}", dtype_name(p.dtype), p.num_heads_q, p.head_dim, p.states,
                      dtype_name(p.type_of_partial()));
    if (p.empty_states > 0) id += fmt::format("/empty{}", p.empty_states);
    if (p.lse_token_major) id += "/token_major";
    id += "/" + batch_label(p.seqs);
    if (p.data != Profile::kNormal) id += fmt::format("/{}", profile_name(p.data));
    return id;
  }
  if (p.kv == KvSource::kPaged) {
    id += fmt::format(
        "/paged{}-{}-{}", p.block_size, layout_name(p.kv_layout),
        p.shared_tokens() > 0 ? fmt::format("shared{}", p.shared_prefix) : page_layout_name(p.page_layout));
  } else if (p.kv == KvSource::kContiguous) {
    id += "/contiguous";
    if (p.leftpad > 0) id += fmt::format("-leftpad{}", p.leftpad);
    if (!p.shuffled_cache) id += "-identity";
  } else {
    id += "/packed";
    if (p.gap_tokens > 0) id += fmt::format("-gap{}", p.gap_tokens);
  }
  id += fmt::format("/{}", dtype_name(p.dtype));
  if (p.q_dtype) id += fmt::format("-q_{}", dtype_name(*p.q_dtype));
  if (p.kv_dtype != KvDType::kSame) id += fmt::format("-kv_{}", kv_dtype_name(p.kv_dtype));
  if (p.scales != Scales::kGiven) id += fmt::format("-{}", scales_name(p.scales));
  if (p.op == Op::kKvAppend) {
    id += fmt::format("/h{}/d{}", p.num_heads_kv, p.head_dim);
    id += rotary_label(p);
    if (p.padding_tokens > 0) id += fmt::format("/pad{}", p.padding_tokens);
  } else {
    id += fmt::format("/h{}-{}/d{}", p.num_heads_q, p.num_heads_kv, p.head_dim);
    if (p.head_dim_v != 0) id += fmt::format("-{}", p.head_dim_v);
    if (p.v_is_k_view) id += "-v_is_k";
    id += p.causal ? "/causal" : "/full";
    if (p.window_left >= 0 || p.window_right >= 0)
      id += fmt::format("/window{},{}", p.window_left, p.window_right);
    if (p.expired != Expired::kKept) id += fmt::format("/expired-{}", expired_name(p.expired));
    if (p.softcap > 0) id += fmt::format("/softcap{}", p.softcap);
    if (p.alibi != Alibi::kNone) {
      id += fmt::format("/alibi-{}{}", alibi_name(p.alibi), p.alibi_sqrt ? "-sqrt" : "");
    }
    if (p.sinks) id += "/sinks";
    if (p.num_splits > 0) id += fmt::format("/splits{}", p.num_splits);
    if (p.append) id += fmt::format("/append{}", p.new_tokens > 0 ? fmt::format("{}", p.new_tokens) : "");
    id += rotary_label(p);
    if (p.softmax_scale) id += fmt::format("/scale{}", *p.softmax_scale);
    if (p.probs) id += "/probs";
    if (p.dropout > 0) id += fmt::format("/dropout{}", p.dropout);
    id += path_label(p);
  }
  id += "/" + batch_label(p.seqs);
  if (p.data != Profile::kNormal) id += fmt::format("/{}", profile_name(p.data));
  return id;
}

std::string case_yaml(const CaseParams& p) {
  if (p.op == Op::kMergeStates) {
    return fmt::format(
        "{{op: merge_states, dtype: {}, heads: {}, head_dim: {}, states: {}, empty_states: {}, lse_layout: "
        "{}, "
        "partial_dtype: {}, data: {}, batch: {}}}",
        dtype_name(p.dtype), p.num_heads_q, p.head_dim, p.states, p.empty_states,
        p.lse_token_major ? "token_major" : "head_major", p.partial_fp32 ? "fp32" : "same",
        profile_name(p.data), format_batch_spec(p.seqs));
  }
  std::string y =
      fmt::format("{{op: {}, kv: {}, dtype: {}", op_name(p.op), kv_name(p.kv), dtype_name(p.dtype));
  if (p.q_dtype) y += fmt::format(", q_dtype: {}", dtype_name(*p.q_dtype));
  if (p.kv_dtype != KvDType::kSame) y += fmt::format(", kv_dtype: {}", kv_dtype_name(p.kv_dtype));
  if (p.scales != Scales::kGiven) y += fmt::format(", scales: {}", scales_name(p.scales));
  y += fmt::format(", heads: {}/{}, head_dim: {}", p.num_heads_q, p.num_heads_kv, p.head_dim);
  if (p.head_dim_v != 0) y += fmt::format(", head_dim_v: {}", p.head_dim_v);
  if (p.v_is_k_view) y += ", v_is_k_view: true";
  if (p.kv == KvSource::kPaged) {
    y += fmt::format(", block_size: {}, kv_layout: {}, page_layout: {}", p.block_size,
                     layout_name(p.kv_layout), page_layout_name(p.page_layout));
    if (p.shared_prefix > 0) y += fmt::format(", shared_prefix: {}", p.shared_prefix);
  }
  if (p.kv == KvSource::kContiguous) {
    if (p.leftpad > 0) y += fmt::format(", leftpad: {}", p.leftpad);
    if (!p.shuffled_cache) y += ", cache_batch_idx: identity";
  }
  if (p.gap_tokens > 0) y += fmt::format(", gap_tokens: {}", p.gap_tokens);
  if (p.op == Op::kAttention) y += fmt::format(", mask: {}", p.causal ? "causal" : "none");
  if (p.window_left >= 0 || p.window_right >= 0) {
    y += fmt::format(", window: \"{},{}\"", p.window_left, p.window_right);
  }
  if (p.expired != Expired::kKept) y += fmt::format(", expired: {}", expired_name(p.expired));
  if (p.softcap > 0) y += fmt::format(", softcap: {}", p.softcap);
  if (p.alibi != Alibi::kNone) y += fmt::format(", alibi: {}", alibi_name(p.alibi));
  if (p.alibi_sqrt) y += ", alibi_sqrt: true";
  if (p.sinks) y += ", sinks: true";
  if (p.num_splits > 0) y += fmt::format(", num_splits: {}", p.num_splits);
  if (p.softmax_scale) y += fmt::format(", softmax_scale: {}", *p.softmax_scale);
  if (p.append) y += ", append: in_call";
  if (p.new_tokens > 0) y += fmt::format(", new_tokens: {}", p.new_tokens);
  if (p.rotary != Rotary::kNone) y += fmt::format(", rotary: {}", rotary_name(p.rotary));
  if (p.rotary_dim > 0) y += fmt::format(", rotary_dim: {}", p.rotary_dim);
  if (p.rotary_q != RotaryQ::kDiagonal) y += fmt::format(", rotary_q: {}", rotary_q_name(p.rotary_q));
  if (p.probs) y += ", probs: true";
  if (p.dropout > 0) y += fmt::format(", dropout: {}", p.dropout);
  if (p.path != Path::kOneCall) y += fmt::format(", path: {}", path_name(p.path));
  if (p.path == Path::kSplitDecode) y += fmt::format(", decode_threshold: {}", p.decode_threshold);
  if (p.path == Path::kDcp) {
    y += fmt::format(", dcp_ranks: {}, dcp_interleave: {}", p.dcp_ranks, p.dcp_interleave);
  }
  if (p.padding_tokens > 0) y += fmt::format(", padding_tokens: {}", p.padding_tokens);
  if (p.data != Profile::kNormal) y += fmt::format(", data: {}", profile_name(p.data));
  if (p.allow_short_kv) y += ", allow_short_kv: true";
  return y + fmt::format(", batch: {}}}", format_batch_spec(p.seqs));
}

}  // namespace attnbench
