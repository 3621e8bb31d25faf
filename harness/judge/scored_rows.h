// Wrong rows with the scores and values of their keys, from which a softmax with a mistake can be computed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reference/reference.h"

namespace attnbench {

/// A wrong row and what is stored for it: O, (head_dim_v), and LSE.
struct WrongRow {
  reference::RowId id;
  std::vector<double> out;
  double lse;
};

/// The final scores of a row's keys, from key `first` on, and their values.
struct ScoredRow {
  const WrongRow* row;
  int64_t first = 0;
  std::vector<double> scores, values;  ///< (keys), (keys, channels); -inf: not visible
};

/// In any order.
std::vector<ScoredRow> scored_rows(reference::Problem problem, const reference::Inputs& inputs,
                                   std::span<const WrongRow> rows, int num_threads);

}  // namespace attnbench
