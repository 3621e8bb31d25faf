// Comparison of the gradients of two launches.
#pragma once

#include <optional>
#include <string>

#include "harness/tensors/workload.h"

namespace attnbench::ops::attention_backward {

/// The first gradient that is not `factor`, 0 or a power of two, times that of `base`, up to its
/// last digit, in words; nullopt if all are.
std::optional<std::string> first_not_scaled(const Case& c, const HostOutputs& base, const HostOutputs& scaled,
                                            float factor);

}  // namespace attnbench::ops::attention_backward
