// What a server launches at once: a ragged batch over its KV cache.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "harness/digest.h"

namespace attnbench {

/// A sequence of a step. Its keys are those of context_tokens + query_tokens tokens.
struct ScheduledSequence {
  int64_t request = 0;         ///< its index in the order of arrival
  int32_t query_tokens = 0;    ///< computed in this step; decode: 1 + draft_tokens
  int32_t context_tokens = 0;  ///< in the cache before this step
  int32_t draft_tokens = 0, accepted_tokens = 0;
  bool decode = false;  ///< else a prefill, or a chunk of it
  /// Blocks of its keys, in order. Valid until the scheduler's next step.
  std::span<const int32_t> block_table;
};

/// Counts are of this step. Queue and cache are those at its launch.
struct Step {
  int64_t index = 0;
  int64_t start_ns = 0, duration_ns = 0;
  std::vector<ScheduledSequence> sequences;  ///< in the order in which the budget was given
  int32_t query_tokens = 0;
  int32_t preempted = 0;           ///< sequences that lost their blocks
  int32_t swapped_out_blocks = 0;  ///< copied to the host at preemption
  int32_t swapped_in_blocks = 0;   ///< copied back
  int32_t prefix_hit_tokens = 0;   ///< tokens of sequences admitted that were found in the cache
  int32_t recomputed_tokens = 0;   ///< query tokens that had been computed before a preemption
  int32_t running = 0;             ///< sequences that hold blocks, scheduled in this step or not
  int32_t waiting = 0;  ///< arrived or preempted; at most SchedulerOptions::max_waiting that arrived
  int32_t owned_blocks = 0;
  int64_t unfilled_tokens = 0;  ///< slots of owned blocks that hold no token, reserved ones among them
};

/// Adds what a launch depends on: lengths, block tables and the kind of each sequence.
void add_step(Digest& digest, const Step& step);

}  // namespace attnbench
