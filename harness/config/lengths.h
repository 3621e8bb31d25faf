// Sequence lengths drawn from a distribution. A length is a pure function of (distribution, seed, index,
// which): it is the same on every platform and wherever the batch stands in the file.
#pragma once

#include <cstdint>
#include <vector>

namespace attnbench {

/// The part `probability` of all lengths is at most `tokens`.
struct Quantile {
  double probability = 0.0;
  int64_t tokens = 0;
};

/// Lengths in tokens. Draws are rounded to the nearest integer, then clipped to clip_lo..clip_hi.
struct LengthDistribution {
  enum class Shape {
    kConstant,   ///< lo
    kUniform,    ///< integers lo..hi, both included
    kLognormal,  ///< exp(N(log(median), sigma^2))
    kNormal,     ///< N(median, sigma^2) without what lies outside the clip
    kZipf,       ///< k from 1 to hi, with a probability in proportion to k^-exponent
    kBimodal,    ///< lognormal; the part `share` has median2 in place of median
    kLongtail,   ///< Pareto: a length above the least one, x, has a probability in proportion to x^-exponent
    kQuantiles,  ///< between neighbours of the table the logarithm of the length is linear in the probability
  };
  Shape shape = Shape::kConstant;
  int64_t lo = 0;
  int64_t hi = 0;
  double median = 0.0;
  double sigma = 0.0;
  int64_t clip_lo = 0;
  int64_t clip_hi = 0;
  double zeros = 0.0;  ///< share of the lengths that are 0, whatever the clip
  double exponent = 0.0;
  double median2 = 0.0;
  double share = 0.0;
  /// At least two; the first has probability 0 and the last 1. Probabilities rise, lengths do not fall and are at
  /// least 1.
  std::vector<Quantile> quantiles;
};

/// Which length of a sequence is drawn; kOrder: its place in a shuffled batch. The draws of one sequence are independent.
enum class LengthOf : uint32_t { kBoth = 0, kQuery = 1, kKey = 2, kContext = 3, kOrder = 4 };

/// The length of sequence `index`, in tokens.
int64_t draw_length(const LengthDistribution& distribution, uint64_t seed, uint32_t index, LengthOf which);

}  // namespace attnbench
