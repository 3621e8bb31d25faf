#include "reference/rotary.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace attnbench::reference {

void rotate(std::span<const float> cos, std::span<const float> sin, bool interleaved, std::span<double> row,
            std::span<double> terms) {
  const size_t half = cos.size();
  if (sin.size() != half || 2 * half > row.size() || (!terms.empty() && terms.size() != row.size())) {
    throw std::invalid_argument(
        "reference: rotate: as many sines as cosines, at most half the row, and as many "
        "terms as channels required");
  }
  std::fill(terms.begin(), terms.end(), 0.0);
  for (size_t i = 0; i < half; ++i) {
    const size_t at_a = interleaved ? 2 * i : i;
    const size_t at_b = interleaved ? 2 * i + 1 : i + half;
    const double a = row[at_a];
    const double b = row[at_b];
    const double c = cos[i];
    const double s = sin[i];
    row[at_a] = a * c - b * s;
    row[at_b] = a * s + b * c;
    if (terms.empty()) continue;
    terms[at_a] = std::abs(a * c) + std::abs(b * s);
    terms[at_b] = std::abs(a * s) + std::abs(b * c);
  }
}

}  // namespace attnbench::reference
