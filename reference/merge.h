// The float64 reference of op merge_states.
#pragma once

#include <span>
#include <vector>

namespace attnbench::reference {

/// A row's state over all its keys, merged from N partial states.
struct MergedRow {
  std::vector<double> weights;  ///< (N) shares: exp(lse_s - lse), 0 for a state whose LSE is -inf
  std::vector<double> o;        ///< (D)
  double lse = 0;               ///< natural log; -inf if every state is empty
};

/// Merges the states of one row into `out`, whose memory is reused. lse: (N), natural logs. o: row-major
/// (N, D); rows of empty states (LSE -inf) are not read. Throws std::invalid_argument if sizes do not fit, or
/// an LSE is NaN or +inf.
void merge_states(std::span<const double> lse, std::span<const double> o, int dim, MergedRow& out);

}  // namespace attnbench::reference
