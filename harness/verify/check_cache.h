// Comparing a whole cache with what an append must leave behind.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/verify/appended_rows.h"
#include "harness/verify/verdict.h"
#include "harness/workload/workload.h"

namespace attnbench {

/// Rows that were appended hold what they must: copied bit for bit, or within the rounding interval of what
/// float32 may make of them, quantised ones by the scale that was given or that stands beside them. Scales
/// that were computed are right too. Every other byte is as it was. The first place where that fails, in
/// words, and in `worst`; nullopt where it holds.
std::optional<std::string> check_cache(const Workload& workload, const AppendedRows& rows, bool is_v,
                                       const HostOutputs& outputs, WorstElement& worst);

}  // namespace attnbench
