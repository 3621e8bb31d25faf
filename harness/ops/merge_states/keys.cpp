// Keys of merge_states.
#include <fmt/format.h>

#include "harness/config/key_rows.h"

namespace attnbench::key_rows {

Rows merge_keys() {
  return {
      integer_key("states", "`merge_states`: number of partial states per row", &C::states, 1, 256)
          .when(is_merge)
          .labelled([](P p) { return fmt::format("/{}x", p.states); })
          .always_written(),
      word_key<bool>("states_per_row",
                     "`merge_states`: every row has `states` states, or 0 to `states` in one list with "
                     "`state_indptr`",
                     &C::ragged_states, {{"equal", false}, {"varied", true}})
          .when(is_merge)
          .labelled(label("varied-", [](P p) { return p.ragged_states; }))
          .needing(kRaggedStates),
      word_key<bool>("partial_dtype", "`merge_states`: type of the partial O; `same`: `dtype`",
                     &C::partial_fp32, {{"fp32", true}, {"same", false}})
          .when(is_merge)
          .unified([](C& p) { p.partial_fp32 = p.partial_fp32 || p.dtype == DType::kFp32; })
          .labelled([](P p) { return std::string(dtype_name(p.type_of_partial())); })
          .reported([](Json& j, P p) { j["partial_dtype"] = dtype_name(p.type_of_partial()); })
          .always_written(),
      number_key("empty_states", "`merge_states`: share of states without keys: LSE -inf, NaN in O",
                 &C::empty_states, [](double x) { return x >= 0.0 && x <= 1.0; }, "a number from 0 to 1",
                 {{"type", "number"}, {"minimum", 0}, {"maximum", 1}})
          .when(is_merge)
          .labelled([](P p) { return p.empty_states > 0 ? fmt::format("/empty{}", p.empty_states) : ""; })
          .always_written(),
      word_key(
          "empty_lse",
          "`merge_states`: LSE of a state without keys: -inf; +inf, as FlashAttention 2 writes it; or either",
          &C::empty_lse, kEmptyLseNames)
          .when([](P p) { return is_merge(p) && p.empty_states > 0; })
          .labelled("-")
          .needing(kInfLse),
      word_key<bool>(
          "lse_layout",
          "`merge_states`: order of the partial LSEs, (state, head, token) or (state, token, head)",
          &C::lse_token_major, {{"head_major", false}, {"token_major", true}})
          .when([](P p) { return is_merge(p) && !p.ragged_states; })  // one list has one order
          .labelled(label("/token_major", [](P p) { return p.lse_token_major; }))
          .always_written(),
      word_key<bool>("partial_lse",
                     "`merge_states`: partial LSEs with gaps between rows, heads and states, or without",
                     &C::lse_dense, {{"strided", false}, {"dense", true}})
          .when(is_merge)
          .labelled(label("/dense_lse", [](P p) { return p.lse_dense; })),
  };
}

}  // namespace attnbench::key_rows
