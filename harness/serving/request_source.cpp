#include "harness/serving/request_source.h"

#include "harness/config/mixes.h"
#include "harness/config/trace_columns.h"

namespace attnbench {

RequestSource::RequestSource(const ServingSpec& spec, int32_t block_size, const char* skip_option) {
  if (spec.trace.empty()) {
    mix_.emplace(*find_mix(spec.mix), spec.rate, block_size, spec.seed);
    return;
  }
  TraceOptions options;
  options.block_size = block_size;
  options.skip_bad = spec.skip_bad;
  options.skip_option = skip_option;
  options.cache_tokens = spec.cache_tokens;
  options.prompt_tokens = spec.chunked_prefill ? 0 : spec.token_budget;
  options.speed_up = spec.speed_up;
  if (!spec.columns.empty()) read_trace_columns(spec.columns, options.columns);
  trace_.emplace(spec.trace, options);
}

}  // namespace attnbench
