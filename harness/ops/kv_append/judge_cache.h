// Compares a whole cache with what an append must leave in it.
#pragma once

#include <optional>
#include <string>

#include "harness/facts/verdict.h"
#include "harness/ops/kv_append/judge_rows.h"
#include "harness/tensors/workload.h"

namespace attnbench {

/// Checks the cache of K or V after an append. Appended rows must be equal copies, or lie within the rounding
/// interval of what float32 may compute. Quantised rows are judged with the scale that was given or that the
/// launch stored; stored scales are judged, too. Every other byte must be unchanged. Returns the first wrong
/// place in words and in `worst`; nullopt if there is none.
std::optional<std::string> check_cache(const Workload& workload, const AppendedRows& rows, bool is_v,
                                       const HostOutputs& outputs, WorstElement& worst);

}  // namespace attnbench
