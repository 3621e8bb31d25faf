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
/// float32 may make of them. Every other byte is as it was. The first place where that fails, in words, and
/// in `worst`; nullopt where it holds.
std::optional<std::string> check_cache(const Workload& workload, const AppendedRows& rows, bool is_v,
                                       const std::vector<unsigned char>& got, WorstElement& worst);

}  // namespace attnbench
