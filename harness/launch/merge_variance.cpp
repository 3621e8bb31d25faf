#include "harness/launch/merge_variance.h"

#include <cmath>

namespace attnbench {

std::vector<double> merge_variance(const PartialStates& states) {
  const MergeStatesParams& m = states.layout;
  const auto n = static_cast<std::size_t>(m.num_states);
  const auto dim = static_cast<std::size_t>(m.head_dim);
  std::vector<double> variance(static_cast<std::size_t>(m.num_rows * m.num_heads) * dim, 0.0);
  const double u = unit_roundoff(m.dtype_partial);
  // Spacing of results near zero. In bf16 and fp32 it is below 1e-38 and does not matter.
  const double quantum = m.dtype_partial == DType::kFp16 ? 0x1p-24 : 0.0;
  const double u_acc = unit_roundoff(states.numerics.acc_type);
  const double u_merge = unit_roundoff(states.merge_numerics.acc_type);
  const double e = states.numerics.exp_rel_err;
  const double e_merge = states.merge_numerics.exp_rel_err;
  const double sum = u_acc * u_acc * (1.0 + static_cast<double>(states.keys) / 3.0) + e * e;
#pragma omp parallel for schedule(static)
  for (int64_t t = 0; t < m.num_rows; ++t) {
    std::vector<double> weight(n), error(n);
    for (int64_t h = 0; h < m.num_heads; ++h) {
      const auto lse = [&](std::size_t s) {
        return static_cast<double>(states.lse[static_cast<std::size_t>(
            static_cast<int64_t>(s) * m.lse_stride_state + h * m.lse_stride_head + t * m.lse_stride_token)]);
      };
      double top = -INFINITY;
      for (std::size_t s = 0; s < n; ++s) top = std::fmax(top, lse(s));
      if (top == -INFINITY) continue;  // no state has seen a key
      double total = 0;
      for (std::size_t s = 0; s < n; ++s) total += weight[s] = std::exp(lse(s) - top);
      for (std::size_t s = 0; s < n; ++s) {
        if (weight[s] == 0) continue;
        weight[s] /= total;
        const double log = u_acc * (1.0 + std::abs(lse(s)));
        const double argument = 2.0 * u_merge * (top - lse(s));
        error[s] = sum + log * log + argument * argument + e_merge * e_merge + u_merge * u_merge;
      }
      for (std::size_t c = 0; c < dim; ++c) {
        const auto out = [&](std::size_t s) {
          const int64_t at = static_cast<int64_t>(s) * m.partial_stride_state + t * m.partial_stride_token +
                             h * m.partial_stride_head + static_cast<int64_t>(c);
          return static_cast<double>(load_float(m.dtype_partial, states.out.data(), at));
        };
        double o = 0;
        for (std::size_t s = 0; s < n; ++s) {
          if (weight[s] != 0) o += weight[s] * out(s);
        }
        double& v = variance[static_cast<std::size_t>(t * m.num_heads + h) * dim + c];
        double parts = 0;  // no sum of some of the terms is larger
        for (std::size_t s = 0; s < n; ++s) {
          if (weight[s] == 0) continue;  // its O may be anything
          parts += std::abs(weight[s] * out(s));
          const double rounded = u * weight[s] * out(s), spaced = quantum * weight[s];
          const double moved = weight[s] * (out(s) - o);
          v += rounded * rounded / 3.0 + spaced * spaced / 12.0 + error[s] * moved * moved;
          if (states.rounded_sums > 0) v += rounded * rounded / 3.0 + quantum * quantum / 12.0;
        }
        v += states.rounded_sums * (u * u * parts * parts / 3.0 + quantum * quantum / 12.0);
      }
    }
  }
  return variance;
}

}  // namespace attnbench
