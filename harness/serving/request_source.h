// Requests of the mix or the trace that a ServingSpec names.
#pragma once

#include <cstdint>
#include <optional>

#include "harness/config/serving_spec.h"
#include "harness/serving/mix_requests.h"
#include "harness/serving/trace_reader.h"

namespace attnbench {

/// It can be a NextRequest, by reference.
class RequestSource {
 public:
  /// `block_size`: of the hashes. `skip_option`: what errors call `skip_bad`. Throws as MixRequests and TraceReader do.
  /// A line of a trace whose request the server cannot take is wrong.
  RequestSource(const ServingSpec& spec, int32_t block_size, const char* skip_option);

  bool operator()(Request& r) { return trace_ ? (*trace_)(r) : (*mix_)(r); }
  const TraceReader* trace() const { return trace_ ? &*trace_ : nullptr; }  ///< null: a mix

 private:
  std::optional<MixRequests> mix_;
  std::optional<TraceReader> trace_;
};

}  // namespace attnbench
