// Terms of the softmax other than q.k, and the end of a row.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/contract/attention_params.h"
#include "kernels/contract/hd.h"

namespace attnbench {

inline constexpr float kLog2E = 1.44269504088896340736f;  ///< exp(x) = exp2(x * kLog2E)
inline constexpr float kLn2 = 0.693147180559945309417f;   ///< ln(x) = log2(x) * kLn2

/// Softcap of a score that includes softmax_scale: cap * tanh(score / cap). Requires cap > 0.
ATTNBENCH_HD inline float softcap_score(float score, float cap) { return cap * ::tanhf(score / cap); }

/// ALiBi slope of sequence `b`, query head `head`; 0 without ALiBi.
template <class Params>
ATTNBENCH_HD inline float alibi_slope(const Params& p, int32_t b, int32_t head) {
  return p.features & kAlibi ? p.alibi_slopes[b * p.alibi_stride_batch + head] : 0.0f;
}

/// The term that ALiBi adds to a score after the softcap. The key is `distance` >= 0 keys off the diagonal.
ATTNBENCH_HD inline float alibi_bias(float slope, int32_t distance, bool sqrt) {
  const float d = static_cast<float>(distance);
  return -slope * (sqrt ? ::sqrtf(d) : d);
}

/// Sink of query head `head`, in units of a score; -inf, which has no weight, if the launch has no sinks.
template <class Params>
ATTNBENCH_HD inline float sink_of(const Params& p, int32_t head) {
  return p.features & kSinks ? p.sinks[head] : -INFINITY;
}

/// Natural log of a softmax's denominator. `sum` is the sum of exp(score - max); it is 0 if the row saw no
/// key. NaN stays NaN, so poison shows in the LSE too.
template <class Real>
ATTNBENCH_HD inline Real lse_of(Real max, Real sum) {
  return sum == 0 ? -static_cast<Real>(INFINITY) : max + std::log(sum);
}

/// What a natural LSE is multiplied by before a launch of these features writes it.
template <class Real>
ATTNBENCH_HD inline Real lse_unit(uint64_t features) {
  return features & kLseBase2 ? static_cast<Real>(1.44269504088896340736) : Real{1};  // log2(e)
}

/// The divisor of a row's accumulators, and the row's LSE.
template <class Real>
struct RowEnd {
  Real divisor;  ///< 0: no key and no sink, so O = 0; infinite if a sink outweighs every key
  Real lse;
};

/// Ends a row over all its keys, after splits are merged. `max` is the largest score, -inf if the row saw no
/// key; `sum` is the sum of exp(score - max); `sink` is the head's sink or -inf. Real is float or double.
template <class Real>
ATTNBENCH_HD inline RowEnd<Real> end_row(Real max, Real sum, Real sink) {
  if (sink == -static_cast<Real>(INFINITY)) return {sum, lse_of(max, sum)};
  const Real top = max > sink ? max : sink;
  const Real kept = std::exp(max - top);
  const Real total = sum * kept + std::exp(sink - top);
  return {total / kept, top + std::log(total)};
}

}  // namespace attnbench
