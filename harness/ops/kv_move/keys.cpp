// Keys of kv_move.
#include <fmt/format.h>

#include "harness/config/key_rows.h"

namespace attnbench::key_rows {

Rows move_keys() {
  return {
      word_key(
          "move",
          "`kv_move`: copies blocks of the sequences to other blocks, or gathers their rows into a packed "
          "tensor; e4m3 rows are gathered in `dtype`",
          &C::move, kMoveNames)
          .when(is_move)
          .labelled([](P p) { return fmt::format("/{}", move_name(p.move)); })
          .needing(feature(kGather, [](P p) { return p.gathers(); }))
          .always_written(),
      word_key<bool>("pools",
                     "`kv_move` of blocks: within one pool, as after a fork (the last block of each "
                     "sequence is copied twice), or to a second pool, as when a sequence is swapped out or "
                     "in",
                     &C::two_pools, {{"same", false}, {"two", true}})
          .when([](P p) { return is_move(p) && !p.gathers(); })
          .labelled(label("-two_pools", [](P p) { return p.two_pools; })),
      word_key("starts",
               "`move: gather`: first gathered row of each sequence (`seq_starts`): 0, a multiple of "
               "`block_size`, or any row",
               &C::starts, kStartsNames)
          .when([](P p) { return p.gathers(); })
          .labelled("-starts_")
          .needing(feature(kSeqStarts, [](P p) { return p.gathers() && p.starts != Starts::kNone; })),
  };
}

}  // namespace attnbench::key_rows
