#include "harness/serving/server_options.h"

#include <fmt/format.h>

#include <cmath>

#include "harness/error.h"

namespace attnbench {

KvCacheOptions cache_options(const ServingSpec& spec, int32_t block_size) {
  KvCacheOptions cache;
  cache.block_size = block_size;
  cache.num_blocks = static_cast<int32_t>(spec.cache_tokens / block_size);
  cache.prefix_sharing = spec.prefix_sharing;
  cache.free_order = spec.free_order == "lifo"   ? FreeOrder::kLifo
                     : spec.free_order == "fifo" ? FreeOrder::kFifo
                                                 : FreeOrder::kLowest;
  if (cache.num_blocks < 1) {
    throw Error(fmt::format("a cache of {} tokens holds no block of {}; raise cache_tokens",
                            spec.cache_tokens, block_size));
  }
  return cache;
}

SchedulerOptions scheduler_options(const ServingSpec& spec) {
  SchedulerOptions o;
  o.token_budget = static_cast<int32_t>(spec.token_budget);
  o.max_sequences = static_cast<int32_t>(spec.max_sequences);
  o.chunked_prefill = spec.chunked_prefill;
  o.preemption = spec.preemption == "swap" ? Preemption::kSwap : Preemption::kRecompute;
  o.draft_tokens = static_cast<int32_t>(spec.draft_tokens);
  o.acceptance = spec.acceptance;
  o.seed = spec.seed;
  o.step_ns = std::llround(spec.step_ms * 1e6);
  o.token_ps = std::llround(spec.token_us * 1e6);
  return o;
}

}  // namespace attnbench
