// Rotary position embedding in float64.
#pragma once

#include <span>

namespace attnbench::reference {

/// Turns the channels [0, 2 * cos.size()) of `row` in pairs, pair i by the angle whose cosine and sine are
/// cos[i] and sin[i]: (a, b) -> (a cos - b sin, a sin + b cos). Pair i is channels i and i + cos.size(), or
/// channels 2 i and 2 i + 1 if `interleaved`.
///
/// `terms` (as long as `row`, or empty) receives |a cos| + |b sin| (or |a sin| + |b cos|) per channel, and 0
/// for channels that do not turn. A float32 result has an error of at most 2 u + u^2 times that, u = 2^-24:
/// one rounding of each product and of their sum, less if they are fused. Throws std::invalid_argument if the
/// sizes contradict each other.
void rotate(std::span<const float> cos, std::span<const float> sin, bool interleaved, std::span<double> row,
            std::span<double> terms = {});

}  // namespace attnbench::reference
