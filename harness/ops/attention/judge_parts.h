// Comparison of two launches, and what the judge expects as arrays (judge_ops.h).
#pragma once

#include "harness/ops/judge_ops.h"

namespace attnbench::ops::attention {

void expect(const Case& c, const Numerics& numerics, CheckMode mode, int num_threads, ExpectedOutputs& e);
HostOutputs laid_over(const CaseParams& p, HostOutputs base, const CaseParams& other_params,
                      const HostOutputs& other, std::span<const int32_t> ids);
std::optional<std::string> first_difference(const CaseParams& p, const HostOutputs& a, const HostOutputs& b);

}  // namespace attnbench::ops::attention
