#include "harness/config/keys.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/config/batch_spec.h"
#include "harness/config/captured.h"
#include "harness/config/key_kinds.h"

namespace attnbench {
namespace {

using P = const CaseParams&;
using C = CaseParams;
using Json = SweepKey::Json;
using Rows = std::vector<SweepKey>;

constexpr uint64_t kNothing = 0;  ///< no feature

bool is_attention(P p) { return p.op == Op::kAttention; }
bool is_append(P p) { return p.op == Op::kKvAppend; }
bool is_merge(P p) { return p.op == Op::kMergeStates; }
bool has_kv(P p) { return !is_merge(p); }
bool is_paged(P p) { return has_kv(p) && p.kv == KvSource::kPaged; }
bool is_contiguous(P p) { return has_kv(p) && p.kv == KvSource::kContiguous; }
bool is_packed(P p) { return has_kv(p) && p.kv == KvSource::kPacked; }
bool turns(P p) { return has_kv(p) && p.rotary != Rotary::kNone; }

/// A feature that the case needs if the condition holds.
auto feature(uint64_t bit, bool (*holds)(P)) {
  return [=](P p) { return holds(p) ? bit : 0; };
}

/// A label that the id has if the condition holds.
auto label(const char* text, bool (*holds)(P)) {
  return [=](P p) { return std::string(holds(p) ? text : ""); };
}

uint64_t types_of_kv(P p) {
  uint64_t f = 0;
  if (p.type_of_k() == DType::kE4m3) f |= kE4m3Kv;
  if (p.type_of_k() == DType::kInt8) f |= kInt8K;
  if (p.type_of_v() == DType::kInt8) f |= kInt8V;
  return f;
}

/// Whether the rotary position of some query is not its position on the diagonal. Positions are linear in the
/// query, so the first and the last query tell.
bool turns_off_diagonal(P p) {
  return turns(p) && std::any_of(p.seqs.begin(), p.seqs.end(), [&](const SeqLen& s) {
           return s.q > 0 &&
                  (p.rotary_position(s, 0) != s.k - s.q || p.rotary_position(s, s.q - 1) != s.k - 1);
         });
}

/// What ids and records call a block table that page_layout did not draw.
const char* table_name(P p) {
  return p.page_layout == PageLayout::kServed ? page_layout_name(p.page_layout) : "given";
}

/// The layout of K and V in memory.
Rows memory_keys() {
  return {
      word_key("kv",
               "where keys and values lie: packed by `cu_seqlens_k`; in blocks found through `block_table` "
               "(`kv_append`: always so); in a cache with a row per sequence",
               &C::kv, words_of(kv_name, {KvSource::kPacked, KvSource::kPaged, KvSource::kContiguous}))
          .when(has_kv)
          .unified([](C& p) {
            if (is_append(p)) p.kv = KvSource::kPaged;
          })
          .labelled([](P p) { return fmt::format("/{}", kv_name(p.kv)); })
          .needing([](P p) -> uint64_t {
            return p.kv == KvSource::kPaged        ? kPagedKv
                   : p.kv == KvSource::kContiguous ? kContiguousKv
                                                   : kPackedKv;
          })
          .always_written(),
      tokens_key("block_size", "tokens of a block of a paged cache", &C::block_size, 1, 65536)
          .when(is_paged)
          .labelled([](P p) { return fmt::format("{}", p.block_size); })
          .always_written(),
      word_key("kv_layout", "order in a block: (token, head, channel) or (head, token, channel)",
               &C::kv_layout, words_of(kv_layout_name, {KvLayout::kNhd, KvLayout::kHnd}))
          .when(is_paged)
          .labelled([](P p) { return fmt::format("-{}", kv_layout_name(p.kv_layout)); })
          .needing(feature(kHnd, [](P p) { return is_paged(p) && p.kv_layout == KvLayout::kHnd; }))
          .always_written(),
      word_key(
          "page_layout",
          "where a sequence's blocks lie in the pool; `shared_prefix`: shuffled, and the first "
          "`shared_prefix` tokens of all sequences are the same blocks; `lifo_aged`: as a last-in, "
          "first-out free list leaves them after many requests; `served`, the default of `batch: {serving: "
          "...}` and for it alone: the block tables of the replay, with shared prefixes",
          &C::page_layout,
          words_of(page_layout_name, {PageLayout::kContiguous, PageLayout::kShuffled,
                                      PageLayout::kSharedPrefix, PageLayout::kLifoAged, PageLayout::kServed}))
          .when(is_paged)
          .labelled([](P p) {
            if (p.blocks) return fmt::format("-{}{}", table_name(p), p.blocks->digest());
            return p.shared_tokens() > 0 ? fmt::format("-shared{}", p.shared_prefix)
                                         : fmt::format("-{}", page_layout_name(p.page_layout));
          })
          .reported([](Json& j, P p) {
            j["page_layout"] = p.blocks ? table_name(p) : page_layout_name(p.page_layout);
          })
          .always_written(),
      tokens_key("shared_prefix",
                 "`page_layout: shared_prefix`: tokens that all sequences share; none has fewer keys",
                 &C::shared_prefix, 0, kMaxSeqLen)
          .taking("multiple of `block_size`")
          .when([](P p) { return is_paged(p) && p.page_layout == PageLayout::kSharedPrefix; }),
      tokens_key("leftpad",
                 "contiguous: most unused rows before a sequence's first key (`cache_leftpad` differs by "
                 "sequence)",
                 &C::leftpad, 0, 1024)
          .when(is_contiguous)
          .labelled([](P p) { return p.leftpad > 0 ? fmt::format("-leftpad{}", p.leftpad) : ""; }),
      word_key<bool>("cache_batch_idx", "contiguous: which row of the cache a sequence has",
                     &C::shuffled_cache, {{"identity", false}, {"shuffled", true}})
          .when(is_contiguous)
          .labelled(label("-identity", [](P p) { return !p.shuffled_cache; })),
      tokens_key("gap_tokens",
                 "packed: unused rows after each sequence's keys, so that `seqused_k` is shorter than "
                 "`cu_seqlens_k` says",
                 &C::gap_tokens, 0, 1024)
          .when(is_packed)
          .labelled([](P p) { return p.gap_tokens > 0 ? fmt::format("-gap{}", p.gap_tokens) : ""; })
          .needing(feature(kPartialKv, [](P p) { return p.gap_tokens > 0; })),
  };
}

/// Types and widths.
Rows shape_keys() {
  return {
      word_key("dtype", "element type of queries, keys, values and outputs", &C::dtype,
               words_of(dtype_name, {DType::kBf16, DType::kFp16, DType::kFp32}))
          .labelled([](P p) { return fmt::format("/{}", dtype_name(p.dtype)); })
          .needing([](P p) { return feature_of(p.dtype); })
          .always_written(),
      word_key<std::optional<DType>>(
          "q_dtype",
          "quantised queries; need keys of that type. Descales per (sequence, KV head) in e4m3, per (token, "
          "head) in int8",
          &C::q_dtype, {{"same", std::nullopt}, {"e4m3", DType::kE4m3}, {"int8", DType::kInt8}})
          .when(is_attention)
          .labelled([](P p) { return p.q_dtype ? fmt::format("-q_{}", dtype_name(*p.q_dtype)) : ""; })
          .needing([](P p) -> uint64_t {
            if (p.type_of_q() == DType::kE4m3) return kE4m3Q;
            return p.type_of_q() == DType::kInt8 ? kInt8Q : kNothing;
          })
          .reported([](Json& j, P p) { j["q_dtype"] = dtype_name(p.type_of_q()); }),
      word_key(
          "kv_dtype",
          "quantised keys and values: e4m3 with descales per (sequence, KV head); int8 keys with one per "
          "(row, KV head) and int8 values with one per (KV head, channel); `int8_k`: values stay in "
          "`dtype`. `kv_append` quantises new rows to it, by `scales`",
          &C::kv_dtype,
          words_of(kv_dtype_name, {KvDType::kSame, KvDType::kE4m3, KvDType::kInt8, KvDType::kInt8K}))
          .when(has_kv)
          .labelled([](P p) {
            return p.kv_dtype == KvDType::kSame ? "" : fmt::format("-kv_{}", kv_dtype_name(p.kv_dtype));
          })
          .needing(types_of_kv)
          .reported([](Json& j, P p) {
            j["kv_dtype"] = p.kv_dtype == KvDType::kSame ? dtype_name(p.dtype) : kv_dtype_name(p.kv_dtype);
          }),
      word_key("scales",
               "`kv_append` with a quantised `kv_dtype`: scales are given, per KV head in e4m3 and per (KV "
               "head, channel) in int8; computed per (token, head) and stored in a cache of their own; or "
               "computed for K and given for V, as attention reads an int8 cache",
               &C::scales, words_of(scales_name, {Scales::kGiven, Scales::kPerToken, Scales::kPerTokenK}))
          .when([](P p) { return p.quantises(false); })
          .unified([](C& p) {
            if (p.scales == Scales::kPerTokenK && !p.quantises(true)) p.scales = Scales::kPerToken;
          })
          .labelled(
              [](P p) { return p.scales == Scales::kGiven ? "" : fmt::format("-{}", scales_name(p.scales)); })
          .needing([](P p) {
            return (p.computes_scales(false) ? kKTokenScales : kNothing) |
                   (p.computes_scales(true) ? kVTokenScales : kNothing);
          }),
      heads_key()
          .unified([](C& p) {
            if (is_append(p)) p.num_heads_q = p.num_heads_kv;
            if (is_merge(p)) p.num_heads_kv = p.num_heads_q;
          })
          .labelled([](P p) {
            return is_attention(p) ? fmt::format("/h{}-{}", p.num_heads_q, p.num_heads_kv)
                                   : fmt::format("/h{}", is_append(p) ? p.num_heads_kv : p.num_heads_q);
          })
          .always_written(),
      integer_key("head_dim", "channels of a head", &C::head_dim, 1, kMaxHeadDim)
          .labelled([](P p) { return fmt::format("/d{}", p.head_dim); })
          .always_written(),
      head_dim_v_key()
          .when(is_attention)
          .unified([](C& p) {
            if (p.head_dim_v == p.head_dim) p.head_dim_v = 0;
          })
          .labelled([](P p) { return p.head_dim_v > 0 ? fmt::format("-{}", p.head_dim_v) : ""; })
          .needing(feature(kHeadDimV, [](P p) { return p.head_dim_v != 0; })),
      bool_key(
          "v_is_k_view",
          "values are the first `head_dim_v` channels of the keys and lie there: MLA's decode is `heads: "
          "16/1, head_dim: 576, head_dim_v: 512`",
          &C::v_is_k_view)
          .when(is_attention)
          .labelled(label("-v_is_k", [](P p) { return p.v_is_k_view; }))
          .needing(feature(kVIsK, [](P p) { return p.v_is_k_view; })),
  };
}

/// Masks, and changes of scores.
Rows score_keys() {
  return {
      word_key<bool>("mask", "`causal` is bottom-right aligned: query i of n sees keys up to i + len_k - n",
                     &C::causal, {{"none", false}, {"causal", true}})
          .when(is_attention)
          .labelled([](P p) { return p.causal ? "/causal" : "/full"; })
          .needing(feature(kCausal, [](P p) { return p.causal; }))
          .reported([](Json& j, P p) { j["causal"] = p.causal; })
          .always_written(),
      window_key()
          .when(is_attention)
          .unified([](C& p) {
            if (p.causal) p.window_right = -1;  // causal bounds it already
          })
          .labelled([](P p) {
            return p.window_left >= 0 || p.window_right >= 0
                       ? fmt::format("/window{},{}", p.window_left, p.window_right)
                       : "";
          })
          .needing(feature(kWindow, [](P p) { return p.window_left >= 0 || p.window_right >= 0; })),
      word_key("expired",
               "what lies in rows of keys that no query's window reaches any more (of a sequence without "
               "queries: all; new tokens excepted). `kept`: values. `nan`: poison. `freed`, paged only: "
               "poison, and blocks that hold only such rows have table entries that lead nowhere. Needs a "
               "`window` with a left side",
               &C::expired, words_of(expired_name, {Expired::kKept, Expired::kNan, Expired::kFreed}))
          .when(is_attention)
          .unified([](C& p) {  // the invariant packed_paged relaunches a paged case without blocks
            if (p.expired == Expired::kFreed && !is_paged(p)) p.expired = Expired::kNan;
          })
          .labelled([](P p) {
            return p.expired == Expired::kKept ? "" : fmt::format("/expired-{}", expired_name(p.expired));
          }),
      number_key("softcap", "scores become softcap * tanh(score / softcap); 0: none", &C::softcap,
                 [](double x) { return x == 0.0 || is_positive_float(x); },
                 "a number from 0 (no cap) up that a float can hold", {{"type", "number"}, {"minimum", 0}})
          .when(is_attention)
          .labelled([](P p) { return p.softcap > 0 ? fmt::format("/softcap{}", p.softcap) : ""; })
          .needing(feature(kSoftcap, [](P p) { return p.softcap > 0; })),
      word_key("alibi",
               "linear bias, after the softcap: score - slope * distance from the diagonal; slopes per query "
               "head, or per sequence and query head",
               &C::alibi, words_of(alibi_name, {Alibi::kNone, Alibi::kPerHead, Alibi::kPerSequence}))
          .when(is_attention)
          .labelled([](P p) {
            return p.alibi == Alibi::kNone ? "" : fmt::format("/alibi-{}", alibi_name(p.alibi));
          })
          .needing(feature(kAlibi, [](P p) { return p.alibi != Alibi::kNone; })),
      bool_key("alibi_sqrt", "ALiBi by the square root of the distance", &C::alibi_sqrt)
          .when([](P p) { return is_attention(p) && p.alibi != Alibi::kNone; })
          .labelled(label("-sqrt", [](P p) { return p.alibi_sqrt; })),
      bool_key("sinks", "one logit per query head, a term of the denominator that has no value", &C::sinks)
          .when(is_attention)
          .labelled(label("/sinks", [](P p) { return p.sinks; }))
          .needing(feature(kSinks, [](P p) { return p.sinks; })),
      integer_key("num_splits",
                  "parts that the keys are cut into, whose partial states are merged; may be more than there "
                  "are keys; 0: the kernel's choice",
                  &C::num_splits, 0, 1024)
          .when(is_attention)
          .labelled([](P p) { return p.num_splits > 0 ? fmt::format("/splits{}", p.num_splits) : ""; })
          .needing(feature(kSplitKv, [](P p) { return p.num_splits > 0; })),
  };
}

/// Appends of new rows to the cache.
Rows append_keys() {
  return {
      word_key<bool>(
          "append",
          "`attention` on a paged or contiguous cache: new keys and values are written to it in the "
          "same call, before it attends",
          &C::append, {{"none", false}, {"in_call", true}})
          .when(is_attention)
          .labelled(label("/append", [](P p) { return p.append; }))
          .needing(feature(kAppend, [](P p) { return p.append; })),
      tokens_key(
          "new_tokens",
          "`append`: most new tokens of a sequence, the last of its keys; 0: as many as it has queries",
          &C::new_tokens, 0, 65536)
          .when([](P p) { return is_attention(p) && p.append; })
          .labelled([](P p) { return p.new_tokens > 0 ? fmt::format("{}", p.new_tokens) : ""; }),
      word_key(
          "rotary",
          "with `kv_append` or `append`: rotary embedding of new keys at the position of their token, and "
          "of queries; channels pair up in halves, or as neighbours",
          &C::rotary, words_of(rotary_name, {Rotary::kNone, Rotary::kNeox, Rotary::kInterleaved}))
          .when(has_kv)
          .labelled([](P p) { return turns(p) ? fmt::format("/{}", rotary_name(p.rotary)) : ""; })
          .needing(feature(kRotary, turns)),
      integer_key("rotary_dim", "channels that turn, from the first on; 0: all", &C::rotary_dim, 0,
                  kMaxRotaryDim)
          .taking(fmt::format("even, 0 to {}", kMaxRotaryDim))
          .when(turns)
          .unified([](C& p) {
            if (p.rotary_dim == p.head_dim) p.rotary_dim = 0;
          })
          .labelled([](P p) { return p.rotary_dim > 0 ? fmt::format("{}", p.rotary_dim) : ""; })
          .reported([](Json& j, P p) { j["rotary_dim"] = turns(p) ? p.rotary_width() : 0; }),
      word_key(
          "rotary_q",
          "`rotary` with `append`: the position of query i is i + len_k - len_q; cache_seqlens + i; or "
          "cache_seqlens for all. cache_seqlens is len_k without the new tokens. "
          "`flash_attn_with_kvcache` does the second under a mask or window, the third without",
          &C::rotary_q,
          words_of(rotary_q_name, {RotaryQ::kDiagonal, RotaryQ::kFromCacheSeqlens, RotaryQ::kAtCacheSeqlens}))
          .when([](P p) { return is_attention(p) && turns(p); })
          .labelled([](P p) {
            return p.rotary_q == RotaryQ::kDiagonal ? "" : fmt::format("-{}", rotary_q_name(p.rotary_q));
          })
          .needing(feature(kRotaryQ, turns_off_diagonal)),
      tokens_key("padding_tokens", "`kv_append`: tokens whose slot is -1, spread over the batch",
                 &C::padding_tokens, 0, 4096)
          .when(is_append)
          .labelled([](P p) { return p.padding_tokens > 0 ? fmt::format("/pad{}", p.padding_tokens) : ""; }),
  };
}

/// Other options of an attention call, and paths of several launches.
Rows call_keys() {
  return {
      softmax_scale_key().when(is_attention).labelled([](P p) {
        return p.softmax_scale ? fmt::format("/scale{}", *p.softmax_scale) : "";
      }),
      bool_key("probs",
               "attention probabilities are returned, float32 (Hq, total_q, longest key length), before "
               "dropout",
               &C::probs)
          .when(is_attention)
          .labelled(label("/probs", [](P p) { return p.probs; }))
          .needing(feature(kProbs, [](P p) { return p.probs; })),
      number_key("dropout", "share of the weights that a counter-based mask drops; its seed is the case's",
                 &C::dropout,
                 // Kernels take a float: the value must stay above 0 and below 1 when it is rounded to one.
                 [](double x) { return x == 0.0 || (is_positive_float(x) && static_cast<float>(x) < 1.0f); },
                 "a number from 0 (none) up to, not including, 1",
                 {{"type", "number"}, {"minimum", 0}, {"exclusiveMaximum", 1}})
          .when(is_attention)
          .labelled([](P p) { return p.dropout > 0 ? fmt::format("/dropout{}", p.dropout) : ""; })
          .needing(feature(kDropout, [](P p) { return p.dropout > 0; })),
      word_key("path", "one launch, or [a plan of several](#paths) that must give the same result", &C::path,
               words_of(path_name, {Path::kOneCall, Path::kCascade, Path::kSplitDecode, Path::kDcp}))
          .when(is_attention)
          .labelled(
              [](P p) { return p.path == Path::kOneCall ? "" : fmt::format("/{}", path_name(p.path)); }),
      tokens_key("decode_threshold", "`split_decode`: most queries of a decode", &C::decode_threshold, 1,
                 1024)
          .when([](P p) { return is_attention(p) && p.path == Path::kSplitDecode; })
          .labelled([](P p) { return fmt::format("{}", p.decode_threshold); })
          .reported([](Json& j, P p) {
            j["decode_threshold"] = p.path == Path::kSplitDecode ? p.decode_threshold : 0;
          })
          .always_written(),
      integer_key("dcp_ranks", "`dcp`: virtual ranks that the keys are spread over", &C::dcp_ranks, 2, 64)
          .when([](P p) { return is_attention(p) && p.path == Path::kDcp; })
          .labelled([](P p) { return fmt::format("{}", p.dcp_ranks); })
          .reported([](Json& j, P p) { j["dcp_ranks"] = p.path == Path::kDcp ? p.dcp_ranks : 0; })
          .always_written(),
      tokens_key("dcp_interleave", "`dcp`: neighbouring keys that lie on one rank", &C::dcp_interleave, 1,
                 65536)
          .when([](P p) { return is_attention(p) && p.path == Path::kDcp; })
          .labelled([](P p) { return fmt::format("x{}", p.dcp_interleave); })
          .reported([](Json& j, P p) { j["dcp_interleave"] = p.path == Path::kDcp ? p.dcp_interleave : 0; })
          .always_written(),
  };
}

Rows merge_keys() {
  return {
      integer_key("states", "`merge_states`: partial states of each row", &C::states, 1, 64)
          .when(is_merge)
          .labelled([](P p) { return fmt::format("/{}x", p.states); })
          .always_written(),
      word_key<bool>("partial_dtype", "`merge_states`: type of the partial O; `same`: that of the output",
                     &C::partial_fp32, {{"fp32", true}, {"same", false}})
          .when(is_merge)
          .unified([](C& p) { p.partial_fp32 = p.partial_fp32 || p.dtype == DType::kFp32; })
          .labelled([](P p) { return std::string(dtype_name(p.type_of_partial())); })
          .reported([](Json& j, P p) { j["partial_dtype"] = dtype_name(p.type_of_partial()); })
          .always_written(),
      number_key("empty_states",
                 "`merge_states`: share of the states that have seen no key: LSE -inf, O poison",
                 &C::empty_states, [](double x) { return x >= 0.0 && x <= 1.0; }, "a number from 0 to 1",
                 {{"type", "number"}, {"minimum", 0}, {"maximum", 1}})
          .when(is_merge)
          .labelled([](P p) { return p.empty_states > 0 ? fmt::format("/empty{}", p.empty_states) : ""; })
          .always_written(),
      word_key<bool>(
          "lse_layout",
          "`merge_states`: order of the partial LSEs, (state, head, token) or (state, token, head)",
          &C::lse_token_major, {{"head_major", false}, {"token_major", true}})
          .when(is_merge)
          .labelled(label("/token_major", [](P p) { return p.lse_token_major; }))
          .always_written(),
  };
}

Rows last_keys() {
  return {
      batch_key()
          .unified([](C& p) {
            if (!is_merge(p)) return;
            for (SeqLen& s : p.seqs) s.k = s.q;  // how many keys a state stands for does not matter
          })
          .labelled([](P p) {
            return p.served ? fmt::format("/{}-{}", p.served->label(), batch_label(p.seqs))
                            : "/" + batch_label(p.seqs);
          })
          .always_written(),
      word_key("data", "kind of input values: which faults can be seen depends on it", &C::data,
               words_of(profile_name, {Profile::kNormal, Profile::kPeaked, Profile::kOutlier, Profile::kLarge,
                                       Profile::kHuge}))
          .unified([](C& p) {  // kv_append has no q, and peaked changes q only
            if (is_append(p) && p.data == Profile::kPeaked) p.data = Profile::kNormal;
          })
          .labelled([](P p) {
            if (p.captured) return fmt::format("/captured{}", p.captured->digest());
            return p.data == Profile::kNormal ? "" : fmt::format("/{}", profile_name(p.data));
          })
          .reported([](Json& j, P p) { j["data"] = p.captured ? "captured" : profile_name(p.data); }),
      bool_key("allow_short_kv",
               "accept sequences with more queries than keys under a causal mask: their first queries see "
               "nothing",
               &C::allow_short_kv)
          .when(is_attention),
  };
}

Rows make_keys() {
  Rows keys = {
      word_key("op",
               "what is computed; `kv_append` writes new keys and values into a paged cache; `merge_states` "
               "makes one state of several partial ones (O and LSE over parts of the keys)",
               &C::op, words_of(op_name, {Op::kAttention, Op::kKvAppend, Op::kMergeStates}))
          .labelled([](P p) { return std::string(op_name(p.op)); })
          .always_written(),
  };
  for (Rows (*rows)() :
       {memory_keys, shape_keys, score_keys, append_keys, call_keys, merge_keys, last_keys}) {
    for (SweepKey& key : rows()) keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace

const std::vector<SweepKey>& sweep_keys() {
  static const std::vector<SweepKey> keys = make_keys();
  return keys;
}

const SweepKey* find_sweep_key(std::string_view name) {
  for (const SweepKey& key : sweep_keys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::vector<std::string> sweep_key_names(const std::vector<std::string>& more) {
  std::vector<std::string> names;
  for (const SweepKey& key : sweep_keys()) names.push_back(key.name);
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

uint64_t features_of(const CaseParams& params) {
  uint64_t features = 0;
  for (const SweepKey& key : sweep_keys()) {
    if (key.features) features |= key.features(params);
  }
  return features;
}

Json reported_params(const CaseParams& params) {
  Json j;
  for (const SweepKey& key : sweep_keys()) key.report(j, params);
  return j;
}

}  // namespace attnbench
