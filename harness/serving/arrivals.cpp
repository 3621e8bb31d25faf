#include "harness/serving/arrivals.h"

#include <fmt/format.h>

#include "harness/error.h"

namespace attnbench {
namespace {

/// An exponential value of mean 1: J. von Neumann, "Various techniques used in connection with random digits",
/// 1951. It compares uniform numbers and needs no logarithm, whose last bit differs between libraries.
double draw_exponential(std::mt19937_64& rng) {
  for (double whole = 0;; ++whole) {
    const double first = draw_unit(rng);
    double last = first;
    for (bool accept = true;; accept = !accept) {
      const double u = draw_unit(rng);
      if (u > last) {
        if (accept) return whole + first;
        break;
      }
      last = u;
    }
  }
}

}  // namespace

PoissonArrivals::PoissonArrivals(double requests_per_s, uint64_t seed)
    : ns_per_request_(1e9 / requests_per_s), rng_(seed) {
  if (!(requests_per_s >= 1e-6 && requests_per_s <= 1e9))
    throw Error(fmt::format("{} requests per second; 1e-6 to 1e9 is required", requests_per_s));
}

int64_t PoissonArrivals::next_ns() {
  now_ns_ += static_cast<int64_t>(draw_exponential(rng_) * ns_per_request_);
  return now_ns_;
}

}  // namespace attnbench
