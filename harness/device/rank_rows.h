// Rows of partial states on several devices: the arithmetic that host and GPU share.
#pragma once

#include <cmath>
#include <cstdint>

#include "harness/facts/device_info.h"
#include "kernels/contract/dtype.h"

namespace attnbench {

/// Where the ranks meet in a launch, in this order. Each place has words of its own, so a kernel that meets there
/// has nothing to put back.
enum MeetingPlace { kAtStart, kAtStartAgain, kAtQueries, kAtStates, kMeetingPlaces };

/// What ranks meet with: words in the memory of each rank, zero at the start, which the others write by peer
/// access.
struct MeetingWords {
  uint32_t come[kMeetingPlaces][kMostRanks];  ///< by rank: the last launch in which it has come to this place
  uint32_t launch;                            ///< number of the launch, which RankStream::meet advances
  uint32_t missing;                           ///< 1 + a rank that did not come in time
  uint32_t heard_ns;  ///< in the last RankStream::meet: from this rank's start to the last word of another's
  /// By this rank's clock: the end of RankStream::meet, and the moment from which RankStream::merge could begin,
  /// because all before it had ended.
  uint64_t started_ns, merging_ns;
};
struct Meeting {
  MeetingWords* words[kMostRanks];  ///< by rank
  int32_t rank, ranks;
};
/// After this time a GPU goes on without a rank that does not come, and names it.
inline constexpr unsigned long long kMeetingNs = 20'000'000'000ull;

/// Bytes of each rank, read by peer access and put one after another.
struct Gathering {
  const void* from[kMostRanks];
  int64_t bytes;  ///< of each rank
  int32_t ranks;
  void* to;
};

/// Partial states of the same rows, at addresses of several devices. Rows are (head, token).
struct Merging {
  const void* out[kMostRanks];   ///< (rows, dim)
  const float* lse[kMostRanks];  ///< (rows)
  int32_t states;
  int64_t rows;
  int32_t dim;
  DType dtype;
  void* to;       ///< (rows, dim)
  float* to_lse;  ///< (rows)
};

/// One rank's state, scaled so that the sum over all ranks is the output.
struct Correcting {
  const void* out;   ///< (rows, dim)
  const float* lse;  ///< (ranks, rows)
  int32_t rank, ranks;
  int64_t rows;
  int32_t dim;
  DType dtype;
  void* to;       ///< (rows, dim)
  float* to_lse;  ///< (rows), of all ranks together
};

/// Turns the LSEs of a row's states into their weights. Returns the LSE of all together. Loops have a constant
/// number of turns, so that a GPU keeps `lse` in registers.
template <int kMost>
ATTNBENCH_HD inline float weights_of(float (&lse)[kMost], int32_t states) {
  float top = -INFINITY;
  for (int32_t s = 0; s < kMost; ++s) {
    if (s < states && lse[s] > top) top = lse[s];
  }
  float sum = 0;
  if (top == -INFINITY) {  // no state has seen a key, unless one is NaN
    for (int32_t s = 0; s < kMost; ++s) {
      if (s >= states) continue;
      sum += lse[s] == -INFINITY ? 0.0f : lse[s];
      lse[s] = 0;
    }
    return sum == 0.0f ? -INFINITY : sum;
  }
  for (int32_t s = 0; s < kMost; ++s) {
    if (s < states) sum += lse[s] = expf(lse[s] - top);
  }
  for (int32_t s = 0; s < kMost; ++s) {
    if (s < states) lse[s] /= sum;
  }
  return top + logf(sum);
}

/// A state that has seen no key may hold anything in O.
ATTNBENCH_HD inline float weighted(float weight, float x) { return weight == 0.0f ? 0.0f : weight * x; }

/// The same on the host.
void gather_host(const Gathering& g);
void merge_host(const Merging& m);
void correct_host(const Correcting& c);

}  // namespace attnbench
