// Rotary position embedding in float64.
#pragma once

#include <span>

namespace attnbench::reference {

/// Turns the channels [0, 2 * cos.size()) of `row` in pairs, pair i by the angle whose cosine and sine are
/// cos[i] and sin[i]: (a, b) -> (a cos - b sin, a sin + b cos). Pair i is channels i and i + cos.size(), or,
/// where `interleaved`, channels 2 i and 2 i + 1. `terms` (as long as `row`, or empty) receives the sum of
/// the magnitudes of both products per channel, 0 where a channel stays: in float32 the result errs by at
/// most 2 u + u^2 of it (a rounding of each product and of their sum; less where they are fused), u = 2^-24.
/// Throws std::invalid_argument where the sizes contradict each other.
void rotate(std::span<const float> cos, std::span<const float> sin, bool interleaved, std::span<double> row,
            std::span<double> terms = {});

}  // namespace attnbench::reference
