// Keys of an attention call: masks, changes of scores, other options, and paths of several launches.
#include <fmt/format.h>

#include "harness/config/batch_spec.h"
#include "harness/config/key_rows.h"

namespace attnbench::key_rows {

constexpr int kMaxTopk = 16384;

/// Which keys a query sees.
Rows mask_keys() {
  return {
      word_key<CausalMask>(
          "mask",
          "`none` (ids say `full`): all keys. `causal` is bottom-right aligned: query i of n sees keys up to i + len_k - n. "
          "`causal_top_left`: up to i, as in cuDNN and PyTorch; windows count from there, too",
          &C::causal, {{"none", false}, {"causal", true}, {"causal_top_left", {true, true}}})
          .when(attends)
          .labelled([](P p) {
            return p.causal.top_left ? "/causal-top-left" : p.causal ? "/causal" : "/full";
          })
          .needing(
              [](P p) { return (p.causal ? kCausal : kNothing) | (p.causal.top_left ? kTopLeft : kNothing); })
          .reported([](Json& j, P p) {
            j["causal"] = p.causal.on;
            if (p.causal.top_left) j["top_left"] = true;
          })
          .always_written(),
      window_key()
          .when(attends)
          .unified([](C& p) {
            if (p.causal) p.window_right = -1;  // causal bounds it already
          })
          .labelled([](P p) {
            return p.window_left >= 0 || p.window_right >= 0
                       ? fmt::format("/window{},{}", p.window_left, p.window_right)
                       : "";
          })
          .needing(feature(kWindow, [](P p) { return p.window_left >= 0 || p.window_right >= 0; })),
      tokens_key("attention_chunk",
                 "chunk size in tokens, as in Llama 4: a query sees only keys in the chunk that holds its "
                 "diagonal; 0: none",
                 &C::attention_chunk, 0, kMaxSeqLen)
          .when(is_attention)
          .labelled("/chunk")
          .needing(kAttentionChunk),
      word_key(
          "custom_mask",
          "one bit per query and key, on top of the other masks, packed as in FlashInfer. `random`: half of "
          "the bits; `tree`: the last keys are a tree of draft tokens, each sees its ancestors and all "
          "older keys; `items`: several items behind a prefix, each sees the prefix and itself; `blocks`: "
          "blocks of 16 queries and 32 keys",
          &C::custom_mask, kCustomMaskNames)
          .when(is_attention)
          .labelled("/mask-")
          .needing(kCustomMask),
      tokens_key(
          "topk",
          "sparse attention, packed or paged: length of the list of visible keys that each query and KV "
          "head has; 0: no lists. Lists are drawn from the keys that the other masks show, with -1 entries "
          "between; rows on no list hold NaN",
          &C::topk, 0, kMaxTopk)
          .when(is_attention)
          .labelled("/topk")
          .needing(kTopkIndices),
      word_key(
          "topk_length",
          "`topk`: number of valid entries of each list. `drawn`: 0 to `topk`, drawn per query; the entries "
          "behind are junk",
          &C::topk_length, kTopkLengthNames)
          .when([](P p) { return is_attention(p) && p.topk > 0; })
          .labelled("-"),
      word_key(
          "expired",
          "contents of rows whose keys no query's window or chunk reaches any more, except new tokens. "
          "`kept`: values. `nan`: NaN. `freed`, paged only: NaN, and table entries of blocks with only such "
          "rows point nowhere. Requires a `window` with a left side, or `attention_chunk`",
          &C::expired, kExpiredNames)
          .when(is_attention)
          .unified([](C& p) {  // the invariant packed_paged relaunches a paged case without blocks
            if (p.expired == Expired::kFreed && !is_paged(p)) p.expired = Expired::kNan;
          })
          .labelled("/expired-"),
  };
}

/// Changes of scores.
Rows score_keys() {
  return {
      number_key("softcap", "scores become softcap * tanh(score / softcap); 0: none", &C::softcap,
                 [](double x) { return x == 0.0 || is_positive_float(x); },
                 "a number from 0 (no cap) up that a float can hold", {{"type", "number"}, {"minimum", 0}})
          .when(attends)
          .labelled("/softcap")
          .needing(kSoftcap),
      word_key("alibi",
               "linear bias, after the softcap: score - slope * distance from the diagonal; slopes per query "
               "head, or per sequence and query head",
               &C::alibi, kAlibiNames)
          .when(attends)
          .labelled("/alibi-")
          .needing(kAlibi),
      bool_key("alibi_sqrt", "ALiBi by the square root of the distance", &C::alibi_sqrt)
          .when([](P p) { return attends(p) && p.alibi != Alibi::kNone; })
          .labelled("-sqrt"),
      bool_key("sinks", "one logit per query head, added to the softmax denominator without a value",
               &C::sinks)
          .when(attends)
          .labelled("/sinks")
          .needing(kSinks),
      bool_key(
          "qv",
          "a second query of `head_dim_v` channels: a score is (q.k + qv.v) * softmax_scale, whose default is "
          "then 1/sqrt(head_dim + head_dim_v). MLA in FlashAttention 3: `head_dim: 64, head_dim_v: 512`",
          &C::qv)
          .when(is_attention)
          .labelled("/qv")
          .needing(kQv),
      integer_key("num_splits",
                  "number of parts that the keys are split into, whose states are merged; may exceed the "
                  "number of keys; 0: the kernel chooses",
                  &C::num_splits, 0, 1024)
          .when(is_attention)
          .labelled("/splits")
          .needing(kSplitKv),
  };
}

/// Other options of an attention call, and paths of several launches.
Rows call_keys() {
  return {
      softmax_scale_key().when(attends).labelled(
          [](P p) { return p.softmax_scale ? fmt::format("/scale{}", *p.softmax_scale) : ""; }),
      bool_key("probs",
               "the kernel returns attention probabilities, float32 (Hq, total_q, longest key length), "
               "before dropout",
               &C::probs)
          .when(is_attention)
          .labelled("/probs")
          .needing(kProbs),
      number_key("dropout", "share of the weights that a counter-based mask drops; its seed is the case's",
                 &C::dropout,
                 // Kernels take a float: the value must stay above 0 and below 1 when it is rounded to one.
                 [](double x) { return x == 0.0 || (is_positive_float(x) && static_cast<float>(x) < 1.0f); },
                 "a number from 0 (none) up to, not including, 1",
                 {{"type", "number"}, {"minimum", 0}, {"exclusiveMaximum", 1}})
          .when(attends)
          .labelled("/dropout")
          .needing(kDropout),
      word_key("path", "one launch, or [a plan of several](README.md#paths) that must give the same result",
               &C::path, kPathNames)
          .when(is_attention)
          .labelled("/"),
      tokens_key("decode_threshold", "`split_decode`: maximum number of queries of a decode",
                 &C::decode_threshold, 1, 1024)
          .when([](P p) { return is_attention(p) && p.path == Path::kSplitDecode; })
          .labelled([](P p) { return fmt::format("{}", p.decode_threshold); })
          .reported([](Json& j, P p) {
            j["decode_threshold"] = p.path == Path::kSplitDecode ? p.decode_threshold : 0;
          })
          .always_written(),
      integer_key("dcp_ranks", "`dcp`: number of ranks that hold the keys", &C::dcp_ranks, 2, 64)
          .when([](P p) { return is_attention(p) && p.path == Path::kDcp; })
          .labelled([](P p) { return fmt::format("{}", p.dcp_ranks); })
          .reported([](Json& j, P p) { j["dcp_ranks"] = p.path == Path::kDcp ? p.dcp_ranks : 0; })
          .always_written(),
      tokens_key("dcp_interleave", "`dcp`: number of consecutive keys on one rank", &C::dcp_interleave, 1,
                 65536)
          .when([](P p) { return is_attention(p) && p.path == Path::kDcp; })
          .labelled([](P p) { return fmt::format("x{}", p.dcp_interleave); })
          .reported([](Json& j, P p) { j["dcp_interleave"] = p.path == Path::kDcp ? p.dcp_interleave : 0; })
          .always_written(),
      word_key("dcp_combine",
               "`dcp`: where the ranks are, and how their partial states are combined. `one_device`: "
               "launches on one device. The others put rank r on GPU r, and "
               "[combine](README.md#ranks-on-several-gpus) over NCCL or by peer access",
               &C::dcp_combine, kCombineNames)
          .when([](P p) { return is_attention(p) && p.path == Path::kDcp; })
          .labelled("-"),
  };
}

}  // namespace attnbench::key_rows
