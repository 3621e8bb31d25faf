// Terms of the softmax beside q.k, and the end of a row.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/contract/attention_params.h"
#include "kernels/contract/hd.h"

namespace attnbench {

inline constexpr float kLog2E = 1.44269504088896340736f;  ///< exp(x) = exp2(x * kLog2E)
inline constexpr float kLn2 = 0.693147180559945309417f;   ///< ln(x) = log2(x) * kLn2

/// Softcap of a score that already carries softmax_scale: cap * tanh(score / cap), cap > 0.
ATTNBENCH_HD inline float softcap_score(float score, float cap) { return cap * ::tanhf(score / cap); }

/// ALiBi's slope of sequence `b`, query head `head`; 0 where the launch has none.
ATTNBENCH_HD inline float alibi_slope(const AttentionParams& p, int32_t b, int32_t head) {
  return p.features & kAlibi ? p.alibi_slopes[b * p.alibi_stride_batch + head] : 0.0f;
}

/// What ALiBi adds to a score, after the softcap and before the mask, `distance` >= 0 keys from the diagonal.
ATTNBENCH_HD inline float alibi_bias(float slope, int32_t distance, bool sqrt) {
  const float d = static_cast<float>(distance);
  return -slope * (sqrt ? ::sqrtf(d) : d);
}

/// The sink of query head `head`, in units of a score; -inf, which weighs nothing, where the launch has none.
ATTNBENCH_HD inline float sink_of(const AttentionParams& p, int32_t head) {
  return p.features & kSinks ? p.sinks[head] : -INFINITY;
}

/// Natural log of a softmax's denominator: `sum` = sum of exp(score - max), 0 where the row saw no key.
/// NaN stays NaN, so that poison shows here too.
template <class Real>
ATTNBENCH_HD inline Real lse_of(Real max, Real sum) {
  return sum == 0 ? -static_cast<Real>(INFINITY) : max + std::log(sum);
}

/// What a row's accumulators are divided by, and its LSE.
template <class Real>
struct RowEnd {
  Real divisor;  ///< 0: no key and no sink, O = 0; infinite where a sink outweighs every key
  Real lse;
};

/// The end of a row over all its keys, splits merged: `max` of its scores (-inf: it saw no key), `sum` of
/// exp(score - max), and the head's sink or -inf. float or double.
template <class Real>
ATTNBENCH_HD inline RowEnd<Real> end_row(Real max, Real sum, Real sink) {
  if (sink == -static_cast<Real>(INFINITY)) return {sum, lse_of(max, sum)};
  const Real top = max > sink ? max : sink;
  const Real kept = std::exp(max - top);
  const Real total = sum * kept + std::exp(sink - top);
  return {total / kept, top + std::log(total)};
}

}  // namespace attnbench
