// Requests of a server and when they arrive.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace attnbench {

/// Times are whole nanoseconds from the start of the trace: sums of floating-point seconds would differ between
/// machines with and without fused multiply-add, and so would the steps.
struct Request {
  int64_t arrival_ns = 0;
  int32_t prompt_tokens = 0;  ///< at least 1
  int32_t output_tokens = 0;  ///< at least 1
  /// prefix_hashes[i]: of all prompt tokens up to the end of block i. Fewer than the prompt has blocks: the rest
  /// is shared with no one. More: ignored.
  std::vector<uint64_t> prefix_hashes;
};

/// Writes the next request over the one it is given, and returns true; or returns false at the end. Arrivals
/// never go back. prefix_hashes is empty at the call, and has the memory of a request before.
using NextRequest = std::function<bool(Request&)>;

/// A number in [0, 1), a multiple of 2^-53. std::uniform_real_distribution is not used because each standard
/// library draws it differently.
inline double draw_unit(std::mt19937_64& rng) { return static_cast<double>(rng() >> 11) * 0x1p-53; }

/// Times of a Poisson process: the gaps are exponential and independent.
class PoissonArrivals {
 public:
  /// Throws Error unless `requests_per_s` is from 1e-6 to 1e9.
  PoissonArrivals(double requests_per_s, uint64_t seed);
  /// The next time, in nanoseconds.
  int64_t next_ns();

 private:
  double ns_per_request_;
  std::mt19937_64 rng_;
  int64_t now_ns_ = 0;
};

}  // namespace attnbench
