#include "reference/merge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace attnbench::reference {

void merge_states(std::span<const double> lse, std::span<const double> o, int dim, MergedRow& out) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  if (lse.empty() || dim < 1 || o.size() != lse.size() * static_cast<std::size_t>(dim)) {
    throw std::invalid_argument(
        "reference: merge_states needs (N) LSEs and (N, D) outputs, N and D at least 1");
  }
  double top = -kInf;
  for (const double x : lse) {
    if (!(x < kInf)) throw std::invalid_argument("reference: a state's LSE must be finite or -inf");
    top = std::max(top, x);
  }
  out.weights.assign(lse.size(), 0.0);
  out.o.assign(static_cast<std::size_t>(dim), 0.0);
  out.lse = -kInf;
  if (top == -kInf) return;
  double sum = 0.0;
  for (std::size_t s = 0; s < lse.size(); ++s) sum += out.weights[s] = std::exp(lse[s] - top);
  out.lse = top + std::log(sum);
  for (std::size_t s = 0; s < lse.size(); ++s) {
    out.weights[s] /= sum;
    if (lse[s] == -kInf) continue;
    const double* state = o.data() + s * static_cast<std::size_t>(dim);
    for (int d = 0; d < dim; ++d) out.o[static_cast<std::size_t>(d)] += out.weights[s] * state[d];
  }
}

}  // namespace attnbench::reference
