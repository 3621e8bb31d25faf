// What the reference answers to a whole small problem.
#pragma once

#include <vector>

#include "reference/reference.h"

namespace attnbench {

/// O, (value_dim()), and LSE of one row.
struct RowAnswer {
  std::vector<double> o;
  double lse = 0;
  double p_max = 0;       ///< as of RowBlock
  std::vector<double> p;  ///< (k_len) of keys, before dropout; empty without Problem::probs
};

/// The reference's answers for all rows, in (seq, pos, head) order. One thread.
std::vector<RowAnswer> answers(const reference::Problem& problem, const reference::Inputs& inputs);

}  // namespace attnbench
