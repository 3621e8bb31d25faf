// Keys of kv_append alone. Those that it shares with attention are in config/.
#include <fmt/format.h>

#include "harness/config/key_rows.h"

namespace attnbench::key_rows {

Rows kv_append_keys() {
  return {
      tokens_key("padding_tokens", "`kv_append`: number of tokens with slot -1, spread over the batch",
                 &C::padding_tokens, 0, 4096)
          .when(is_append)
          .labelled("/pad"),
      word_key<bool>(
          "slots",
          "`kv_append`: slots of new tokens lie in the sequence's blocks, or are arbitrary different slots "
          "of the pool",
          &C::arbitrary_slots, {{"sequence", false}, {"arbitrary", true}})
          .when(is_append)
          .labelled(label("/slots-arbitrary", [](P p) { return p.arbitrary_slots; })),
      word_key(
          "query_out",
          "`kv_append`: also rotates the queries of the same tokens and returns them, in `dtype` or in e4m3 "
          "divided by a given scale, saturating at 448; `heads` gives their number",
          &C::query_out, kQueryOutNames)
          .when(is_append)
          .labelled([](P p) {
            return p.query_out == QueryOut::kNone   ? ""
                   : p.query_out == QueryOut::kSame ? "/query_out"
                                                    : "/query_out_e4m3";
          })
          .needing(kQueryOut),
      word_key<bool>("positions", "`kv_append` with `rotary`: type of the given token positions",
                     &C::positions64, {{"int32", false}, {"int64", true}})
          .when([](P p) { return is_append(p) && turns(p); })
          .labelled(label("/positions64", [](P p) { return p.positions64; }))
          .needing(kPositions64),
  };
}

}  // namespace attnbench::key_rows
