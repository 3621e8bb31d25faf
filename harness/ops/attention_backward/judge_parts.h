// Comparison of two launches, and what the judge expects as arrays (judge_ops.h).
#pragma once

#include "harness/ops/judge_ops.h"

namespace attnbench::ops::attention_backward {

void expect(const Case& c, const Numerics& numerics, CheckMode mode, int num_threads, ExpectedOutputs& e);
HostOutputs laid_over(const CaseParams& p, HostOutputs base, const CaseParams& other_params,
                      const HostOutputs& other, std::span<const int32_t> ids);
std::optional<std::string> first_difference(const CaseParams& p, const HostOutputs& a, const HostOutputs& b);

/// The first gradient that is not `factor`, 0 or a power of two, times that of `base`, up to its
/// last digit, in words; nullopt if all are.
std::optional<std::string> first_not_scaled(const Case& c, const HostOutputs& base, const HostOutputs& scaled,
                                            float factor);

}  // namespace attnbench::ops::attention_backward
