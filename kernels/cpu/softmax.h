// One step of the online softmax: turns a row's scores against a tile of keys into weights relative to a
// running max.
//
// Everything is in base 2. With c = |scale| log2(e) and scale = softmax_scale * K's descale, the weight of a
// score s is 2^(s c - m), where m is the largest s c so far. With ALiBi, the bias is added to s c. The state
// of a row is m (-inf before any key), l = sum of weights, and accumulators of O. The caller multiplies the
// accumulators by `alpha` before it adds this tile's P V.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/descale.h"
#include "kernels/contract/attention_params.h"
#include "kernels/cpu/fast_exp.h"
#include "kernels/cpu/simd.h"

namespace attnbench::cpu {

inline constexpr float kInf = std::numeric_limits<float>::infinity();

/// How raw products q.k become exponents.
struct ScoreScale {
  /// -1, 0 or 1, a factor of q. It is exact and leaves a positive scale, so max and scale commute.
  float q_factor;
  float cap;         ///< 0: no softcap
  float cap_scale;   ///< |scale| / cap
  float log2_scale;  ///< c above; log2(e) with softcap; 1 with a bias, which is added to s * bias_scale
  bool bias;         ///< ALiBi
  float bias_scale;  ///< log2_scale as it would be without a bias
  bool hides;        ///< a custom mask
};

/// Scale for products with the stored keys of sequence `b`, KV head `head`.
inline ScoreScale score_scale(const AttentionParams& p, int32_t b, int32_t head) {
  const double scale = double{p.softmax_scale} * k_descale(p, b, head);
  const float magnitude = static_cast<float>(std::fabs(scale));
  ScoreScale out{};
  out.q_factor = magnitude == 0.0f ? 0.0f : std::copysign(1.0f, static_cast<float>(scale));
  if (p.softcap > 0.0f) {
    out.cap = p.softcap;
    out.cap_scale = std::min(magnitude / p.softcap, std::numeric_limits<float>::max());  // 0 * inf is NaN
    out.log2_scale = kLog2E;
  } else {
    // A scale of 0 is already in q. Here it would turn the -inf of masked keys into NaN.
    const double c = magnitude == 0.0f ? 1.0 : std::fabs(scale) * 1.44269504088896340736;
    out.log2_scale = static_cast<float>(c);
  }
  out.hides = (p.features & kCustomMask) != 0;
  if (p.features & kAlibi) {
    out.bias = true;
    out.bias_scale = out.log2_scale;
    out.log2_scale = 1.0f;
  }
  return out;
}

/// Applies, in place, what comes between q.k and the mask: s[begin, end) becomes exponents without the factor
/// log2_scale. If scale.bias is set, add_bias() sets s[begin, end) to scale.bias_scale * s + bias, in base 2.
/// begin and end are multiples of kLanes.
template <class AddBias>
ATTNBENCH_INLINE void add_terms(const ScoreScale& scale, AddBias&& add_bias, float* s, int begin, int end) {
  if (scale.cap > 0.0f) {
    for (int j = begin; j < end; j += kLanes) {
      store(s + j, tanh_vec(load(s + j) * scale.cap_scale) * scale.cap);
    }
  }
  if (scale.bias) add_bias();
}

/// Replaces s[begin, end) by weights; begin and end are multiples of kLanes. Columns outside [lo, hi) are
/// masked: their contents are replaced, so their weights are exactly 0. add_bias is as for add_terms. If scale.hides
/// is set, hide(b, e) makes -inf of hidden columns of [b, e). Updates m and l, returns alpha.
template <class AddBias, class Hide>
inline float softmax_row(const ScoreScale& scale, AddBias&& add_bias, Hide&& hide, float* s, int begin,
                         int end, int lo, int hi, float& m, float& l) {
  add_terms(scale, add_bias, s, begin, end);
  for (int j = begin; j < lo && j < end; ++j) s[j] = -kInf;
  for (int j = hi > begin ? hi : begin; j < end; ++j) s[j] = -kInf;
  if (scale.hides) hide(std::max(begin, lo), std::min(end, hi));

  Vec top = splat(-kInf);
  for (int j = begin; j < end; j += kLanes) top = max_vec(load(s + j), top);
  const float tile_max = max_lanes(top) * scale.log2_scale;
  const float new_m = tile_max > m ? tile_max : m;
  // If no key was seen yet, every weight must be 0, not 2^(-inf + inf).
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

}  // namespace attnbench::cpu
