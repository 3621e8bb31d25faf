// One step of the online softmax: a row's scores against a tile of keys become weights relative to a running
// max.
//
// Everything is in base 2: with c = |softmax_scale| log2(e), the weight of a score s is 2^(s c - m), where m
// is the largest s c so far. State per row: m (-inf before any key), l = sum of weights, and accumulators of
// O that the caller multiplies by `alpha` before it adds this tile's P V.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/contract/attention_params.h"
#include "kernels/cpu/fast_exp.h"
#include "kernels/cpu/simd.h"

namespace attnbench::cpu {

inline constexpr float kInf = std::numeric_limits<float>::infinity();

/// How raw products q.k become exponents.
struct ScoreScale {
  float
      q_factor;  ///< -1, 0 or 1, put into q: exact, and leaves a positive scale so that max and scale commute
  float cap;     ///< 0: no softcap
  float cap_scale;   ///< |softmax_scale| / cap
  float log2_scale;  ///< c above; log2(e) with softcap
};

inline ScoreScale score_scale(const AttentionParams& p) {
  const float scale = p.softmax_scale;
  const float magnitude = std::fabs(scale);
  const float q_factor = scale == 0.0f ? 0.0f : std::copysign(1.0f, scale);
  if (p.softcap > 0.0f) return {q_factor, p.softcap, magnitude / p.softcap, kLog2E};
  // A scale of 0 is already in q; here it would make NaN of the -inf of masked keys.
  const double c = scale == 0.0f ? 1.0 : magnitude * 1.44269504088896340736;
  return {q_factor, 0.0f, 0.0f, static_cast<float>(c)};
}

/// In place, s[begin, end) := weights; begin and end are multiples of kLanes. Columns outside [lo, hi) are
/// masked: whatever they hold is replaced, so that they weigh exactly 0. Updates m and l, returns alpha.
inline float softmax_row(const ScoreScale& scale, float* s, int begin, int end, int lo, int hi, float& m,
                         float& l) {
  if (scale.cap > 0.0f) {
    for (int j = begin; j < end; j += kLanes) {
      store(s + j, tanh_vec(load(s + j) * scale.cap_scale) * scale.cap);
    }
  }
  for (int j = begin; j < lo && j < end; ++j) s[j] = -kInf;
  for (int j = hi > begin ? hi : begin; j < end; ++j) s[j] = -kInf;

  Vec top = splat(-kInf);
  for (int j = begin; j < end; j += kLanes) top = max_vec(load(s + j), top);
  const float tile_max = max_lanes(top) * scale.log2_scale;
  const float new_m = tile_max > m ? tile_max : m;
  // Where no key was seen yet every weight must be 0, not 2^(-inf + inf).
  const float base = new_m == -kInf ? 0.0f : new_m;
  const float alpha = exp2_float(m - base);

  Vec sum = splat(0.0f);
  for (int j = begin; j < end; j += kLanes) {
    const Vec weight = exp2_vec(load(s + j) * scale.log2_scale - base);
    sum += weight;
    store(s + j, weight);
  }
  l = l * alpha + sum_lanes(sum);
  m = new_m;
  return alpha;
}

/// Natural log of the sum of exp(score), from a row's final state.
inline float lse_of_state(float m, float l) {
  if (l == 0.0f) return -kInf;
  return static_cast<float>(static_cast<double>(m) * 0.69314718055994530942 +
                            std::log(static_cast<double>(l)));
}

}  // namespace attnbench::cpu
