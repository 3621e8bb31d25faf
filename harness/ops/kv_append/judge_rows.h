// The exact real values of appended rows: made by coordinate, rotated by the reference.
#pragma once

#include <span>

#include "harness/judge/cache_mistakes.h"
#include "harness/tensors/plan.h"

namespace attnbench {

class AppendedRows {
 public:
  explicit AppendedRows(const Case& c) : case_(&c), tables_(rotary_tables_of(c)) {}

  /// Whether the rows of K or V are copied, so that their bits are defined.
  bool copied(bool is_v) const;

  /// Writes the new row `owner` of KV head `head` to x (channels of K or V), and to `slack` how far a float32
  /// result may be from it, per channel. Rows that come in the type of the cache are numbers as stored.
  void row(bool is_v, RowOwner owner, int head, std::span<double> x, std::span<double> slack,
           RowTurn turn = RowTurn::kRight) const;

  /// The same of the query of a token of kv_append, query head `head`, whose position is `position`.
  void query(RowOwner owner, int position, int head, std::span<double> x, std::span<double> slack,
             RowTurn turn = RowTurn::kRight) const;

  /// Rotates a row in place, by `position` of the rotary tables; `slack` as above. Does nothing if the case
  /// has no rotary embedding.
  void rotate(int position, std::span<double> x, std::span<double> slack,
              RowTurn turn = RowTurn::kRight) const;

 private:
  const Case* case_;
  RotaryTables tables_;
};

}  // namespace attnbench
