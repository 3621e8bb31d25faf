// Recognises a kernel that does not rescale what it has summed when a later block of keys raises the maximum.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "harness/config/case_params.h"
#include "harness/judge/scored_rows.h"

namespace attnbench {

/// What explains all of `rows`: "neither O nor the sum is rescaled when a later block of 64 keys raises the maximum".
/// Nothing if no size and order of blocks does. `problem` and `inputs` are the case's own.
std::optional<std::string> missing_rescale(const CaseParams& p, const reference::Problem& problem,
                                           const reference::Inputs& inputs, std::span<const WrongRow> rows,
                                           int num_threads);

}  // namespace attnbench
