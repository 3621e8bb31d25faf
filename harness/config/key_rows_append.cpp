// Keys of appends to the cache and of rotary embedding.
#include <fmt/format.h>

#include <algorithm>

#include "harness/config/key_rows.h"

namespace attnbench::key_rows {
namespace {

/// Whether the rotary position of some query is not its position on the diagonal. Positions are linear in the
/// query, so the first and the last query tell.
bool turns_off_diagonal(P p) {
  return turns(p) && std::ranges::any_of(p.seqs, [&](const SeqLen& s) {
           return s.q > 0 &&
                  (p.rotary_position(s, 0) != s.k - s.q || p.rotary_position(s, s.q - 1) != s.k - 1);
         });
}

}  // namespace

/// Appends of new rows to the cache.
Rows append_keys() {
  return {
      word_key<bool>(
          "append",
          "`in_call`: the attention call first writes new keys and values into its paged or contiguous cache",
          &C::append, {{"none", false}, {"in_call", true}})
          .when(is_attention)
          .labelled(label("/append", [](P p) { return p.append; }))
          .needing([](P p) {
            return !p.append                      ? kNothing
                   : p.kv_dtype == KvDType::kSame ? uint64_t{kAppend}
                                                  : kAppend | kAppendQuantised;
          }),
      tokens_key(
          "new_tokens",
          "`append`: maximum number of new tokens of a sequence, which are its last keys; 0: as many as its "
          "queries",
          &C::new_tokens, 0, 65536)
          .when([](P p) { return is_attention(p) && p.append; })
          .labelled([](P p) { return p.new_tokens > 0 ? fmt::format("{}", p.new_tokens) : ""; }),
      word_key<bool>(
          "new_dtype",
          "`append` to a quantised cache. `dtype`: new rows come in `dtype`, and the call quantises them "
          "with the descales that they are read with. `cache`: they come in the cache's type and are "
          "copied, as in FlashAttention 3",
          &C::new_as_stored, {{"dtype", false}, {"cache", true}})
          .when([](P p) { return is_attention(p) && p.append && p.kv_dtype != KvDType::kSame; })
          .labelled(label("-new_as_stored", [](P p) { return p.new_as_stored; })),
      word_key(
          "rotary",
          "rotary embedding; pairs are the two halves of the channels, or neighbours. `kv_append`, "
          "`append`: rotates new keys by their position, and queries. `rotary_cached`: rotates all keys and "
          "queries",
          &C::rotary, kRotaryNames)
          .when(may_turn)
          .labelled([](P p) { return turns(p) ? fmt::format("/{}", rotary_name(p.rotary)) : ""; })
          .needing(feature(kRotary, turns)),
      integer_key("rotary_dim", "number of leading channels that are rotated; 0: all", &C::rotary_dim, 0,
                  kMaxRotaryDim)
          .taking(fmt::format("even, 0 to {}", kMaxRotaryDim))
          .when(turns)
          .unified([](C& p) {
            if (p.rotary_dim == p.head_dim) p.rotary_dim = 0;
          })
          .labelled([](P p) { return p.rotary_dim > 0 ? fmt::format("{}", p.rotary_dim) : ""; })
          .reported([](Json& j, P p) { j["rotary_dim"] = turns(p) ? p.rotary_width() : 0; }),
      bool_key("rotary_cached",
               "`attention`: the cache holds unrotated keys. Reading key j rotates it to position j and "
               "rounds it to its type (FlashInfer's `pos_encoding_mode`)",
               &C::rotary_cached)
          .when([](P p) { return is_attention(p) && turns(p); })
          .labelled("-cached")
          .needing(kRotaryCached),
      word_key("rotary_q",
               "`rotary` of `attention`: the position of query i is i + len_k - len_q; cache_seqlens + i; or "
               "cache_seqlens for all. cache_seqlens is len_k without the new tokens. "
               "`flash_attn_with_kvcache` does the second under a mask or window, the third without",
               &C::rotary_q, kRotaryQNames)
          .when([](P p) { return is_attention(p) && turns(p); })
          .labelled("-")
          .needing(feature(kRotaryQ, turns_off_diagonal)),
  };
}

}  // namespace attnbench::key_rows
