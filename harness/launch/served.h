// What a kernel serves, and what it need not meet (KernelFlag).
#pragma once

#include <optional>

#include "harness/cases/case.h"
#include "harness/facts/skip_reason.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

/// Why the kernel is spared this case, in words; nullopt: it must compute it.
std::optional<SkipReason> not_served(const Kernel& kernel, const Case& item, bool padded_strides);

}  // namespace attnbench
