// What cannot be in one case, and what makes no difference in it. See cases_cover_rules.h.
#include "tests/unit/cases_cover_rules.h"

#include <algorithm>

namespace attnbench::cover_rules {
namespace {

using P = CaseParams;

bool any_seq(const P& p, bool (*holds)(const P&, const SeqLen&)) {
  return std::any_of(p.seqs.begin(), p.seqs.end(), [&](const SeqLen& s) { return holds(p, s); });
}
bool shares(const P& p) { return p.page_layout == PageLayout::kSharedPrefix; }
bool of_parts(const P& p) { return p.path == Path::kCascade || p.path == Path::kDcp; }
bool windowed(const P& p) { return p.window_left >= 0 || p.window_right >= 0; }
bool repeats(const P& p) {
  return p.op == Op::kAttention && p.kv == KvSource::kPaged && p.page_layout == PageLayout::kRepeated;
}
bool appends(const P& p) { return p.op == Op::kKvAppend; }
bool quantised(const P& p) { return p.kv_dtype != KvDType::kSame; }
bool moves(const P& p) { return p.op == Op::kKvMove; }
bool is_int8(KvDType t) { return t == KvDType::kInt8 || t == KvDType::kInt8K; }

}  // namespace

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {{"append", "kv"}, [](const P& p) { return p.append && p.kv == KvSource::kPacked; }},
      {{"append", "kv_dtype", "new_dtype", "rotary"},
       [](const P& p) { return p.append && quantised(p) && p.new_as_stored && p.rotary != Rotary::kNone; }},
      {{"path", "out_dtype"}, [](const P& p) { return p.path != Path::kOneCall && p.e4m3_out; }},
      {{"path", "qv"}, [](const P& p) { return p.path != Path::kOneCall && p.qv; }},
      {{"qv", "kv_dtype"}, [](const P& p) { return p.qv && quantised(p); }},
      {{"qv", "q_dtype"}, [](const P& p) { return p.qv && p.q_dtype; }},
      {{"qv", "v_is_k_view"}, [](const P& p) { return p.qv && p.v_is_k_view; }},
      {{"path", "gap_queries"}, [](const P& p) { return p.path != Path::kOneCall && p.gap_queries > 0; }},
      {{"leftpad", "kv", "page_layout"},
       [](const P& p) {
         return p.leftpad > 0 && p.kv == KvSource::kPaged &&
                (shares(p) || p.page_layout == PageLayout::kRepeated);
       }},
      {{"path", "leftpad", "kv"}, [](const P& p) { return p.path == Path::kDcp && p.leftpad > 0; }},
      {{"path", "block_table_rows", "kv"},
       [](const P& p) { return p.path == Path::kDcp && p.shuffled_table; }},
      {{"one_row", "kv_dtype"}, [](const P& p) { return p.one_row && is_int8(p.kv_dtype); }},
      {{"one_row", "kv_dtype", "scales"},
       [](const P& p) { return p.one_row && p.kv_dtype != KvDType::kSame && p.scales != Scales::kGiven; }},
      {{"append", "head_dim"}, [](const P& p) { return p.append && p.head_dim > 256; }},
      {{"append", "head_dim", "head_dim_v"},
       [](const P& p) { return p.append && p.head_dim_v != 0 && p.head_dim_v != p.head_dim; }},
      {{"append", "v_is_k_view"}, [](const P& p) { return p.append && p.v_is_k_view; }},
      {{"append", "page_layout"}, [](const P& p) { return p.append && shares(p); }},
      {{"append", "path"}, [](const P& p) { return p.append && p.path != Path::kOneCall; }},
      {{"append", "new_tokens", "batch"},
       [](const P& p) {
         return p.append && p.new_tokens == 0 &&
                any_seq(p, [](const P&, const SeqLen& s) { return s.q > s.k; });
       }},
      {{"op", "rotary", "append", "rotary_cached"},
       [](const P& p) {
         return p.op == Op::kAttention && p.rotary != Rotary::kNone && p.append == p.rotary_cached;
       }},
      {{"op", "rotary", "q_dtype"},
       [](const P& p) { return p.op == Op::kAttention && p.rotary != Rotary::kNone && p.q_dtype; }},
      {{"rotary", "batch", "rotary_q"},
       [](const P& p) {
         return p.rotary != Rotary::kNone && p.rotary_q == RotaryQ::kDiagonal &&
                any_seq(p, [](const P&, const SeqLen& s) { return s.q > s.k; });
       }},
      {{"q_dtype", "kv_dtype"},
       [](const P& p) { return p.q_dtype == DType::kE4m3 && p.kv_dtype != KvDType::kE4m3; }},
      {{"q_dtype", "kv_dtype"}, [](const P& p) { return p.q_dtype == DType::kInt8 && !is_int8(p.kv_dtype); }},
      {{"op", "head_dim", "head_dim_v"},
       [](const P& p) { return p.op == Op::kAttention && (p.head_dim_v ? p.head_dim_v : p.head_dim) > 512; }},
      {{"op", "v_is_k_view", "head_dim", "head_dim_v"},
       [](const P& p) { return !moves(p) && p.v_is_k_view && p.head_dim_v > p.head_dim; }},
      {{"v_is_k_view", "kv_dtype"}, [](const P& p) { return p.v_is_k_view && is_int8(p.kv_dtype); }},
      {{"page_layout", "kv"}, [](const P& p) { return shares(p) && p.kv != KvSource::kPaged; }},
      {{"page_layout", "shared_prefix", "block_size"},
       [](const P& p) { return shares(p) && p.shared_prefix % p.block_size != 0; }},
      {{"op", "path", "page_layout", "shared_prefix", "batch"},
       [](const P& p) {
         const auto is_short = [](const P& x, const SeqLen& s) { return s.k < x.shared_prefix; };
         const bool whole = std::ranges::any_of(p.seqs, [&](const SeqLen& s) { return !is_short(p, s); });
         return shares(p) && (moves(p) || p.path != Path::kOneCall || !whole) && any_seq(p, is_short);
       }},
      {{"path", "probs"}, [](const P& p) { return p.path != Path::kOneCall && p.probs; }},
      {{"path", "dropout"}, [](const P& p) { return p.path != Path::kOneCall && p.dropout > 0; }},
      {{"path", "kv"}, [](const P& p) { return of_parts(p) && p.kv != KvSource::kPaged; }},
      {{"path", "page_layout"},
       [](const P& p) { return of_parts(p) && shares(p) != (p.path == Path::kCascade); }},
      {{"path", "window"}, [](const P& p) { return of_parts(p) && windowed(p); }},
      {{"path", "alibi"}, [](const P& p) { return of_parts(p) && p.alibi != Alibi::kNone; }},
      {{"expired", "window", "attention_chunk"},
       [](const P& p) { return p.expired != Expired::kKept && p.window_left < 0 && p.attention_chunk == 0; }},
      {{"page_layout", "kv", "append"}, [](const P& p) { return repeats(p) && p.append; }},
      {{"page_layout", "kv", "expired"},
       [](const P& p) { return repeats(p) && p.expired != Expired::kKept; }},
      {{"page_layout", "kv", "kv_dtype"}, [](const P& p) { return repeats(p) && is_int8(p.kv_dtype); }},
      {{"page_layout", "kv", "path"}, [](const P& p) { return repeats(p) && p.path != Path::kOneCall; }},
      {{"bad_launch", "op", "kv"},
       [](const P& p) {
         return p.bad_launch == BadLaunch::kBlockTable || p.bad_launch == BadLaunch::kBlockSize
                    ? p.op == Op::kAttention && p.kv != KvSource::kPaged
                    : false;
       }},
      {{"expired", "kv"},
       [](const P& p) { return p.expired == Expired::kFreed && p.kv != KvSource::kPaged; }},
      {{"path", "mask", "batch"},
       [](const P& p) {
         return p.path == Path::kDcp && p.causal &&
                any_seq(p, [](const P&, const SeqLen& s) { return s.q > 1; });
       }},
      {{"path", "mask", "batch", "shared_prefix"},
       [](const P& p) {
         return p.path == Path::kCascade && p.causal && any_seq(p, [](const P& x, const SeqLen& s) {
                  return s.q > 0 && s.k - s.q < x.shared_prefix;
                });
       }},
      {{"path", "decode_threshold", "batch"},
       [](const P& p) {  // decodes come first: if one is longer, none is short
         bool longer = false;
         bool mixed = false;
         for (const SeqLen& s : p.seqs) {
           mixed = mixed || (longer && s.q <= p.decode_threshold);
           longer = longer || s.q > p.decode_threshold;
         }
         return p.path == Path::kSplitDecode && mixed;
       }},
      {{"op", "move", "kv_dtype"},
       [](const P& p) { return moves(p) && p.move == Move::kGather && is_int8(p.kv_dtype); }},
      {{"op", "page_layout", "kv_dtype"},
       [](const P& p) { return moves(p) && p.page_layout == PageLayout::kRepeated && is_int8(p.kv_dtype); }},
      // Another spelling of the same problem.
      {{"head_dim", "head_dim_v"}, [](const P& p) { return p.head_dim_v == p.head_dim; }},
      {{"mask", "window"}, [](const P& p) { return p.causal && p.window_left < 0 && p.window_right >= 0; }},
      {{"kv_dtype", "scales"},
       [](const P& p) { return p.kv_dtype == KvDType::kInt8K && p.scales == Scales::kPerTokenK; }},
      {{"op", "kv_dtype", "k_descales"},
       [](const P& p) { return appends(p) && is_fp8(p.type_of_k()) && p.k_descales == DescalesPer::kHead; }},
      {{"op", "kv_dtype", "v_descales"},
       [](const P& p) {
         return appends(p) && ((is_fp8(p.type_of_v()) && p.v_descales == DescalesPer::kHead) ||
                               (p.kv_dtype == KvDType::kInt8 && p.v_descales == DescalesPer::kChannel));
       }},
  };
  return all;
}

const std::vector<std::pair<std::string, Rule>>& dead() {
  const auto not_paged = [](const P& p) { return p.op == Op::kAttention && p.kv != KvSource::kPaged; };
  const auto not_contiguous = [](const P& p) { return p.kv != KvSource::kContiguous; };
  static const std::vector<std::pair<std::string, Rule>> all = {
      {"block_size", {{"op", "kv"}, not_paged}},
      {"kv_layout", {{"op", "kv"}, not_paged}},
      {"page_layout", {{"op", "kv"}, not_paged}},
      {"pool_blocks", {{"op", "kv"}, not_paged}},
      {"shared_prefix", {{"page_layout"}, [](const P& p) { return !shares(p); }}},
      {"gap_tokens", {{"kv"}, [](const P& p) { return p.kv != KvSource::kPacked; }}},
      {"leftpad", {{"kv"}, [](const P& p) { return p.kv == KvSource::kPacked; }}},
      {"block_table_rows", {{"kv"}, [](const P& p) { return p.kv != KvSource::kPaged; }}},
      {"cache_batch_idx", {{"kv"}, not_contiguous}},
      {"new_tokens", {{"append"}, [](const P& p) { return !p.append; }}},
      {"rotary_dim", {{"rotary"}, [](const P& p) { return p.rotary == Rotary::kNone; }}},
      {"rotary_q", {{"rotary"}, [](const P& p) { return p.rotary == Rotary::kNone; }}},
      {"alibi_sqrt", {{"alibi"}, [](const P& p) { return p.alibi == Alibi::kNone; }}},
      {"decode_threshold", {{"path"}, [](const P& p) { return p.path != Path::kSplitDecode; }}},
      {"dcp_ranks", {{"path"}, [](const P& p) { return p.path != Path::kDcp; }}},
      {"dcp_interleave", {{"path"}, [](const P& p) { return p.path != Path::kDcp; }}},
      {"positions", {{"rotary"}, [](const P& p) { return p.rotary == Rotary::kNone; }}},
      {"scales", {{"kv_dtype"}, [](const P& p) { return p.kv_dtype == KvDType::kSame; }}},
      {"pools", {{"move"}, [](const P& p) { return p.move == Move::kGather; }}},
      {"starts", {{"move"}, [](const P& p) { return p.move == Move::kBlocks; }}},
      {"head_dim_v", {{"op", "v_is_k_view"}, [](const P& p) { return moves(p) && p.v_is_k_view; }}},
      {"empty_lse", {{"empty_states"}, [](const P& p) { return p.empty_states == 0; }}},
      {"lse_layout", {{"states_per_row"}, [](const P& p) { return p.ragged_states; }}},
      {"q_descales", {{"q_dtype"}, [](const P& p) { return p.q_dtype != DType::kE4m3; }}},
      {"k_descales",
       {{"op", "kv_dtype"},
        [](const P& p) { return appends(p) ? p.kv_dtype == KvDType::kSame : !is_fp8(p.type_of_k()); }}},
      {"k_descales", {{"scales"}, [](const P& p) { return appends(p) && p.scales != Scales::kGiven; }}},
      {"v_descales",
       {{"op", "kv_dtype"},
        [](const P& p) {
          return appends(p) ? p.kv_dtype == KvDType::kSame || p.kv_dtype == KvDType::kInt8K
                            : !is_fp8(p.type_of_k());
        }}},
      {"v_descales", {{"scales"}, [](const P& p) { return appends(p) && p.scales == Scales::kPerToken; }}},
      {"v_descales", {{"v_is_k_view"}, [](const P& p) { return p.v_is_k_view; }}},
      {"v_descales", {{"one_row"}, [](const P& p) { return p.one_row; }}},
      {"new_dtype",
       {{"append", "kv_dtype"}, [](const P& p) { return !p.append || p.kv_dtype == KvDType::kSame; }}},
      {"partial_dtype", {{"dtype"}, [](const P& p) { return p.dtype == DType::kFp32; }}},
  };
  return all;
}

}  // namespace attnbench::cover_rules
