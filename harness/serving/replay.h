// The steps of a replayed server that become cases.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "harness/config/case_params.h"
#include "harness/config/serving_spec.h"

namespace attnbench {

/// A chosen step: its lengths and the block table that the cache manager left.
struct ReplayedStep {
  ServedStep served;
  std::vector<SeqLen> seqs;  ///< k counts the query tokens, too
  std::shared_ptr<const GivenBlocks> blocks;
};

/// Work of a step for attention, in keys read: a (query, key) pair counts as 1/64 of a key that is read. The order of
/// steps by it decides `p50`, `p99` and the strata of `spread`; no result depends on it otherwise.
double attention_work(const std::vector<SeqLen>& seqs);

/// A stratum: steps of about equal work, and those drawn from it.
struct Stratum {
  int64_t steps = 0;
  std::vector<int64_t> drawn;
};

/// Divides steps with this work into count / 2 strata of neighbours in work, smaller ones where the work differs more
/// from step to step, and draws two steps of each. `count` is even, and at most the number of steps.
std::vector<Stratum> draw_steps(const std::vector<double>& work, int64_t count, uint64_t seed);

struct Replay {
  std::vector<ReplayedStep> steps;  ///< the chosen ones, in the order of the picks
  std::string note;                 ///< what the trace has and the replay leaves out; empty: nothing
};

/// The steps that `spec` chooses, with blocks of `block_size` tokens. A trace is read three times, in constant memory.
/// Throws Error if the cache holds no block, or a request does not fit it; BadTraceError as TraceReader does, and if the
/// trace has fewer steps than warm-up and replay.
Replay replay_steps(const ServingSpec& spec, int32_t block_size);

}  // namespace attnbench
