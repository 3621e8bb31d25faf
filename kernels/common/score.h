// Score modifiers and the constants of softmax in base 2.
#pragma once

#include <cmath>

#include "kernels/contract/hd.h"

namespace attnbench {

inline constexpr float kLog2E = 1.44269504088896340736f;  ///< exp(x) = exp2(x * kLog2E)
inline constexpr float kLn2 = 0.693147180559945309417f;   ///< ln(x) = log2(x) * kLn2

/// Softcap of a score that already carries softmax_scale: cap * tanh(score / cap), cap > 0.
ATTNBENCH_HD inline float softcap_score(float score, float cap) { return cap * ::tanhf(score / cap); }

/// Natural log of a softmax's denominator: `sum` = sum of exp(score - max), 0 where the row saw no key.
/// NaN stays NaN, so that poison shows here too.
ATTNBENCH_HD inline float lse_of(float max, float sum) { return sum == 0.0f ? -INFINITY : max + ::logf(sum); }

}  // namespace attnbench
