// Keys of what lies in memory: the layout of K and V, types and widths.
#include <fmt/format.h>

#include "harness/config/batch_spec.h"
#include "harness/config/given_blocks.h"
#include "harness/config/key_rows.h"

namespace attnbench::key_rows {
namespace {

/// What ids and records call a block table that page_layout did not draw.
const char* table_name(P p) {
  return p.page_layout == PageLayout::kServed ? page_layout_name(p.page_layout) : "given";
}

/// Whether K or V has descales, or scales that kv_append is given, of its own.
bool has_descales(P p, bool is_v) {
  if (is_append(p)) return p.quantises(is_v) && !p.computes_scales(is_v) && !(is_v && p.one_row);
  return is_attention(p) && is_fp8(p.type_of_kv(is_v)) && p.kv_dtype != KvDType::kDsMla &&
         !(is_v && p.v_is_k_view);
}

/// Whether int8 V has its descales by row, not by channel as usual.
bool int8_rows(P p) {
  return is_attention(p) && p.type_of_v() == DType::kInt8 && p.v_descales == DescalesPer::kToken;
}

/// kv_append has the granularity that `usual` stands for under its own name, too.
void unify_descales(C& p, bool is_v) {
  const DescalesPer usual = p.type_of_kv(is_v) == DType::kInt8 ? DescalesPer::kChannel : DescalesPer::kHead;
  DescalesPer& per = is_v ? p.v_descales : p.k_descales;
  if (is_append(p) && per == usual) per = DescalesPer::kUsual;
}

std::string descales_label(const char* tensor, DescalesPer per) {
  return per == DescalesPer::kUsual ? "" : fmt::format("/{}_{}", tensor, descales_per_name(per));
}

uint64_t types_of_kv(P p) {
  uint64_t f = 0;
  if (p.type_of_k() == DType::kE4m3) f |= kE4m3Kv;
  if (p.type_of_k() == DType::kE5m2) f |= kE5m2Kv;
  if (p.type_of_k() == DType::kInt8) f |= kInt8K;
  if (p.type_of_v() == DType::kInt8) f |= kInt8V;
  if (p.type_of_k() == DType::kE2m1x2) f |= kE2m1Kv;
  if (p.scale_block() > 0) f |= kBlockScales;
  if (p.kv_dtype == KvDType::kDsMla) f |= kKTail;
  return f;
}

}  // namespace

/// The layout of K and V in memory.
Rows memory_keys() {
  return {
      word_key(
          "kv",
          "layout of keys and values: packed by `cu_seqlens_k`; blocks found through `block_table`; or a "
          "cache with one row per sequence. `kv_append` and `kv_move` are always paged, "
          "`attention_backward` always packed",
          &C::kv, kKvNames)
          .when(has_kv)
          .unified([](C& p) {
            if (is_append(p) || is_move(p)) p.kv = KvSource::kPaged;
            if (is_backward(p)) p.kv = KvSource::kPacked;
          })
          .labelled([](P p) { return fmt::format("/{}", kv_name(p.kv)); })
          .needing([](P p) -> uint64_t {
            return p.kv == KvSource::kPaged        ? kPagedKv
                   : p.kv == KvSource::kContiguous ? kContiguousKv
                                                   : kPackedKv;
          })
          .always_written(),
      tokens_key("block_size", "tokens per block of a paged cache", &C::block_size, 1, 65536)
          .when(is_paged)
          .labelled([](P p) { return fmt::format("{}", p.block_size); })
          .always_written(),
      word_key("kv_layout", "order in a block: (token, head, channel) or (head, token, channel)",
               &C::kv_layout, kKvLayoutNames)
          .when(is_paged)
          .labelled([](P p) { return fmt::format("-{}", kv_layout_name(p.kv_layout)); })
          .needing(feature(kHnd, [](P p) { return is_paged(p) && p.kv_layout == KvLayout::kHnd; }))
          .always_written(),
      word_key(
          "page_layout",
          "where a sequence's blocks lie in the pool. `shared_prefix`: shuffled, and the first "
          "`shared_prefix` tokens of all sequences share their blocks. `lifo_aged`: as a last-in, first-out "
          "free list leaves them after many requests. `repeated` (not `kv_append`): each block is drawn "
          "anew, so a block may serve several places and sequences. `served`: the block tables of a "
          "replayed server, with shared prefixes; default of `batch: {serving: ...}`, and only legal there",
          &C::page_layout, kPageLayoutNames)
          .when(is_paged)
          .labelled([](P p) {
            if (p.blocks && p.page_layout != PageLayout::kRepeated)
              return fmt::format("-{}{}", table_name(p), p.blocks->digest());
            return p.shared_tokens() > 0 ? fmt::format("-shared{}", p.shared_prefix)
                                         : fmt::format("-{}", page_layout_name(p.page_layout));
          })
          .reported([](Json& j, P p) {
            const bool drawn = !p.blocks || p.page_layout == PageLayout::kRepeated;
            j["page_layout"] = drawn ? page_layout_name(p.page_layout) : table_name(p);
          })
          .always_written(),
      tokens_key(
          "shared_prefix",
          "`page_layout: shared_prefix`: number of tokens that all sequences share. `path: one_call` passes "
          "the number to the kernel; there a sequence may have fewer keys, if another one has so many",
          &C::shared_prefix, 0, kMaxSeqLen)
          .taking("multiple of `block_size`")
          .when([](P p) { return is_paged(p) && p.page_layout == PageLayout::kSharedPrefix; }),
      integer_key(
          "pool_blocks",
          "paged: size of the pool, if larger than the sequences need. Used blocks then lie anywhere in it, "
          "unless `page_layout` is contiguous",
          &C::pool_blocks, 0, 1 << 24)
          .when(is_paged)
          .labelled("-pool"),
      tokens_key(
          "leftpad",
          "paged, contiguous: maximum number of unused rows before a sequence's first key (`cache_leftpad`, "
          "drawn for each sequence)",
          &C::leftpad, 0, 1024)
          .when([](P p) { return is_attention(p) && p.kv != KvSource::kPacked; })
          .labelled("-leftpad")
          .needing(feature(kPagedLeftpad, [](P p) { return is_paged(p) && p.leftpad > 0; })),
      word_key<bool>("cache_batch_idx", "contiguous: the cache row of each sequence, in order or shuffled",
                     &C::shuffled_cache, {{"identity", false}, {"shuffled", true}})
          .when(is_contiguous)
          .labelled(label("-identity", [](P p) { return !p.shuffled_cache; })),
      word_key<bool>(
          "block_table_rows",
          "paged: row b of `block_table` belongs to sequence b, or to another one; `cache_batch_idx` says "
          "which. `shuffled` adds unused rows",
          &C::shuffled_table, {{"sequence", false}, {"shuffled", true}})
          .when([](P p) { return is_attention(p) && is_paged(p); })
          .labelled(label("-rows_shuffled", [](P p) { return p.shuffled_table; }))
          .needing(kPagedBatchIdx),
      tokens_key("gap_tokens",
                 "packed: unused rows after each sequence's keys, so that `seqused_k` is shorter than "
                 "`cu_seqlens_k` says",
                 &C::gap_tokens, 0, 1 << 20)
          .when(is_packed)
          .labelled("-gap")
          .needing(kPartialKv),
      tokens_key("gap_queries",
                 "unused rows after each sequence's queries, so that `seqused_q` is shorter than "
                 "`cu_seqlens_q` says: that many after the first sequence, and a random number up to that "
                 "after each other one",
                 &C::gap_queries, 0, 1 << 20)
          .when(is_attention)
          .labelled("-gapq")
          .needing(kSequsedQ),
  };
}

/// What shares a descale, and the type of O.
Rows descale_keys() {
  return {
      word_key("q_descales",
               "granularity of the descales of e4m3 queries. `usual`: one per sequence and KV head; "
               "`per_head`: one per KV head for all sequences; `per_tensor`: a single one",
               &C::q_descales, std::span(kDescalesPerNames).first(3))
          .when([](P p) { return is_attention(p) && p.type_of_q() == DType::kE4m3; })
          .labelled([](P p) { return descales_label("q", p.q_descales); }),
      word_key(
          "k_descales",
          "the same for e4m3 and e5m2 keys, and for scales given to `kv_append`. `usual`: attention, one "
          "per sequence and KV head; `kv_append`, one per KV head in e4m3 and e5m2, per (KV head, channel) "
          "in int8. `per_token`: attention, one per row and KV head, as int8 keys usually have and `kv_append` "
          "computes by `scales`. Values that share a row with their keys share the descale",
          &C::k_descales, std::span(kDescalesPerNames).first(4))
          .when([](P p) { return has_descales(p, false); })
          .unified([](C& p) { unify_descales(p, false); })
          .labelled([](P p) { return descales_label("k", p.k_descales); })
          .needing([](P p) -> uint64_t {
            if (p.k_descales != DescalesPer::kToken) return kNothing;
            return kKTokenScales | (p.v_is_k_view ? kVTokenScales : kNothing);
          }),
      word_key(
          "v_descales",
          "the same for values, `per_token` also in int8; `per_channel`: one per (KV head, channel) for all "
          "sequences",
          &C::v_descales, kDescalesPerNames)
          .when([](P p) { return has_descales(p, true) || int8_rows(p); })
          .unified([](C& p) { unify_descales(p, true); })
          .labelled([](P p) { return descales_label("v", p.v_descales); })
          .needing([](P p) -> uint64_t {
            if (p.v_descales == DescalesPer::kToken) return kVTokenScales;
            return p.v_descales == DescalesPer::kChannel && is_fp8(p.type_of_v()) ? kVChannelScales
                                                                                  : kNothing;
          }),
      integer_key(
          "q_descale_rows",
          "rows of a sequence's int8 queries that share a descale, as in SageAttention: 128 per block, 32 per "
          "warp",
          &C::q_descale_rows, 1, 65536)
          .when([](P p) { return is_attention(p) && p.type_of_q() == DType::kInt8; })
          .labelled("/q_rows")
          .needing(kDescaleRows),
      integer_key("k_descale_rows",
                  "rows of a sequence's keys, int8 or with `per_token` descales, that share a descale; 64 in "
                  "SageAttention. It divides `block_size`",
                  &C::k_descale_rows, 1, 65536)
          .when([](P p) { return is_attention(p) && p.row_descales(false) && !p.v_is_k_view; })
          .labelled("/k_rows")
          .needing(kDescaleRows),
      word_key<bool>("out_dtype",
                     "type of O. `e4m3` (`attention`, `merge_states`): O is divided by a given scale and "
                     "stored, saturating at 448",
                     &C::e4m3_out, {{"same", false}, {"e4m3", true}})
          .when([](P p) { return is_attention(p) || is_merge(p); })
          .labelled(label("/out_e4m3", [](P p) { return p.e4m3_out; }))
          .needing(kE4m3Out)
          .reported([](Json& j, P p) { j["out_dtype"] = dtype_name(p.type_of_out()); }),
  };
}

/// Types and widths.
Rows shape_keys() {
  return {
      word_key("dtype", "element type of queries, keys, values and outputs", &C::dtype,
               std::span(kDTypeNames).first(3))
          .labelled([](P p) { return fmt::format("/{}", dtype_name(p.dtype)); })
          .needing([](P p) { return feature_of(p.dtype); })
          .always_written(),
      word_key<std::optional<DType>>(
          "q_dtype",
          "quantised queries; the keys must have the same type. e4m3: descales per (sequence, KV head); "
          "int8: per (token, head)",
          &C::q_dtype, {{"same", std::nullopt}, {"e4m3", DType::kE4m3}, {"int8", DType::kInt8}})
          .when(is_attention)
          .labelled("-q_")
          .needing([](P p) -> uint64_t {
            if (p.type_of_q() == DType::kE4m3) return kE4m3Q;
            return p.type_of_q() == DType::kInt8 ? kInt8Q : kNothing;
          })
          .reported([](Json& j, P p) { j["q_dtype"] = dtype_name(p.type_of_q()); }),
      word_key(
          "kv_dtype",
          "quantised keys and values. `e4m3`, `e5m2`: descales per (sequence, KV head). `int8`: descales of "
          "keys per (row, KV head), of values per (KV head, channel). `int8_k`: int8 keys; values stay in "
          "`dtype`. `kv_append` quantises new rows as `scales` says. Only for `attention`: `nvfp4`, e2m1 "
          "with an e4m3 scale per 16 channels and one descale per tensor; `fp8_ds_mla`, an MLA row of "
          "`head_dim_v` channels in e4m3 with an fp32 scale per 128, then the other channels in bf16",
          &C::kv_dtype,
          words_of(kv_dtype_name, {KvDType::kSame, KvDType::kE4m3, KvDType::kE5m2, KvDType::kInt8,
                                   KvDType::kInt8K, KvDType::kNvfp4, KvDType::kDsMla}))
          .when(is_served)
          .labelled("-kv_")
          .needing(types_of_kv)
          .reported([](Json& j, P p) {
            j["kv_dtype"] = p.kv_dtype == KvDType::kSame ? dtype_name(p.dtype) : kv_dtype_name(p.kv_dtype);
          }),
      word_key(
          "scales",
          "`kv_append` with a quantised `kv_dtype`. `given`: scales per KV head (e4m3, e5m2) or per (KV "
          "head, channel) (int8). `per_token`: computed per (token, head) and stored in a cache of their "
          "own, as attention reads with `per_token` descales. `per_token_k`: computed for K and given for V, as "
          "attention usually reads an int8 cache",
          &C::scales, kScalesNames)
          .when([](P p) { return p.quantises(false); })
          .unified([](C& p) {
            if (p.scales == Scales::kPerTokenK && !p.quantises(true)) p.scales = Scales::kPerToken;
          })
          .labelled("-")
          .needing([](P p) {
            return (p.computes_scales(false) ? kKTokenScales : kNothing) |
                   (p.computes_scales(true) ? kVTokenScales : kNothing);
          }),
      heads_key()
          .unified([](C& p) {
            if ((is_append(p) && p.query_out == QueryOut::kNone) || is_move(p))
              p.num_heads_q = p.num_heads_kv;
            if (is_merge(p)) p.num_heads_kv = p.num_heads_q;
          })
          .labelled([](P p) {
            const bool both = attends(p) || (is_append(p) && p.query_out != QueryOut::kNone);
            return both ? fmt::format("/h{}-{}", p.num_heads_q, p.num_heads_kv)
                        : fmt::format("/h{}", is_merge(p) ? p.num_heads_q : p.num_heads_kv);
          })
          .always_written(),
      integer_key("head_dim", "channels of a head", &C::head_dim, 1, kMaxHeadDim)
          .labelled([](P p) { return fmt::format("/d{}", p.head_dim); })
          .always_written(),
      head_dim_v_key()
          .when(has_kv)
          .unified([](C& p) {
            const bool no_v = is_move(p) && p.v_is_k_view;
            if (p.head_dim_v == p.head_dim || no_v) p.head_dim_v = 0;
          })
          .labelled([](P p) { return p.head_dim_v > 0 ? fmt::format("-{}", p.head_dim_v) : ""; })
          .needing(feature(kHeadDimV, [](P p) { return p.head_dim_v != 0; })),
      bool_key(
          "v_is_k_view",
          "values are a view of the first `head_dim_v` channels of the keys. MLA's decode is `heads: 16/1, "
          "head_dim: 576, head_dim_v: 512`. `kv_move` then moves a single tensor",
          &C::v_is_k_view)
          .when([](P p) { return is_attention(p) || is_move(p); })
          .labelled("-v_is_k")
          .needing(kVIsK),
      bool_key(
          "one_row",
          "`kv_append`: a cache row holds the `head_dim_v` channels of a value, then the `head_dim` "
          "channels of its key. MLA's latent and rotary part are `heads: 1, head_dim: 64, head_dim_v: 512`",
          &C::one_row)
          .when(is_append)
          .labelled("-one_row")
          .needing(kOneRow),
  };
}

}  // namespace attnbench::key_rows
