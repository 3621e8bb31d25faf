// The float64 reference of op merge_states.
#pragma once

#include <span>
#include <vector>

namespace attnbench::reference {

/// A row's state over all its keys, from N partial ones.
struct MergedRow {
  std::vector<double> weights;  ///< (N) shares: exp(lse_s - lse), 0 for a state whose LSE is -inf
  std::vector<double> o;        ///< (D)
  double lse = 0;               ///< -inf where every state is empty
};

/// lse: (N) natural logs; o: row-major (N, D), of which the rows of empty states are never looked at. `out`
/// is reused. Throws std::invalid_argument where sizes do not fit or an LSE is NaN or +inf.
void merge_states(std::span<const double> lse, std::span<const double> o, int dim, MergedRow& out);

}  // namespace attnbench::reference
