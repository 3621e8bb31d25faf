// Requests drawn from a published mix (config/mixes.h).
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "harness/config/mixes.h"
#include "harness/serving/arrivals.h"

namespace attnbench {

/// Requests of a mix, without end. requests_per_s 0: all arrive at time 0. The same arguments give the same
/// requests; memory stays constant. It can be a NextRequest.
class MixRequests {
 public:
  /// Throws Error unless `block_size` is from 1 to 2^20 and `requests_per_s` is 0 or what PoissonArrivals takes.
  MixRequests(const Mix& mix, double requests_per_s, int32_t block_size, uint64_t seed);
  bool operator()(Request& r);

 private:
  /// A conversation, or a system prompt. Blocks of one stream have hashes of their own.
  struct Stream {
    uint64_t id = 0;
    int64_t tokens = 0;  ///< of its longest prompt; 0: it has not begun
  };

  void add_turn(Request& r);
  void add_system_prompt(Request& r);
  void add_append(Request& r);
  void add_blocks(Request& r, uint64_t stream, int64_t tokens) const;
  std::size_t random_stream() { return rng_() % streams_.size(); }

  Mix mix_;
  int32_t block_size_;
  uint64_t seed_;
  std::mt19937_64 rng_;  ///< of the streams
  std::optional<PoissonArrivals> arrivals_;
  std::vector<Stream> streams_;
  std::size_t oldest_ = 0;  ///< turns: the stream that the next session replaces
  uint64_t last_id_ = 0;    ///< of a stream
  uint64_t made_ = 0;
};

}  // namespace attnbench
