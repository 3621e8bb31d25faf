// Offers a kernel a launch that it should refuse.
#pragma once

#include <optional>
#include <string>

#include "harness/tensors/workload.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

/// A kernel's answer to a launch. `supports` is asked first, without tensors; then `plan` and `launch`.
struct LaunchAnswer {
  KernelStatus status = KernelStatus::kOk;
  std::string step;     ///< "supports", "plan" or "launch": where it refused
  std::string message;  ///< its own words
};

/// Whether a kernel takes the case's launch, spoiled by its bad_launch, without tensors. The harness does not
/// check its features first, as it does elsewhere. Throws KernelError if the kernel throws.
LaunchAnswer ask_supports(const Kernel& kernel, const Device& device, const Case& item);

/// The same with tensors: plans and launches, and waits for the end. Throws KernelError for kDeviceError.
LaunchAnswer offer_launch(const Kernel& kernel, Device& device, const Workload& workload);

/// "unsupported" or "bad_argument".
const char* refusal_name(KernelStatus status);

}  // namespace attnbench
