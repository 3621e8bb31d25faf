// What appended rows stand for, in real numbers: values by coordinate, rotated by the reference.
#pragma once

#include <span>
#include <vector>

#include "harness/workload/plan.h"

namespace attnbench {

class AppendedRows {
 public:
  explicit AppendedRows(const Case& c) : case_(&c), tables_(rotary_tables_of(c)) {}

  /// Whether the rows of K or V are copied: the bits are then defined.
  bool copied(bool is_v) const;

  /// The new row `owner` of KV head `head`, (head_dim), and how far float32 may be from it, per channel.
  void row(bool is_v, RowOwner owner, int head, std::span<double> x, std::span<double> slack) const;

  /// A row that stands at `position` of the rotary tables, in place; slack as above. Nothing where the case
  /// has no rotary embedding.
  void rotate(int position, std::span<double> x, std::span<double> slack) const;

 private:
  const Case* case_;
  RotaryTables tables_;
};

}  // namespace attnbench
