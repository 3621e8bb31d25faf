// Choosing kernels from the table and launching one on a workload.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/workload/workload.h"
#include "kernels/registry.h"

namespace attnbench {

/// A kernel that failed to plan or launch; what() is its own message.
class KernelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Kernels of the table for this op and kind of device, in table order; only those in `names` when it is not
/// empty.
std::vector<const Kernel*> select_kernels(KernelTable table, Op op, DeviceKind device,
                                          const std::vector<std::string>& names);

/// Why the kernel refuses this case on this device, in its own words; nullopt when it takes it.
std::optional<std::string> refusal(const Kernel& kernel, const Device& device, const Case& item);

/// One kernel bound to one workload.
class Launcher {
 public:
  /// Allocates the workspace and plans. Throws KernelError, OutOfMemory.
  Launcher(const Kernel& kernel, Device& device, const Workload& workload);

  /// Enqueues one launch, inside a profiler's range "launch". Throws KernelError.
  void launch();

  Numerics numerics() const { return kernel_->numerics(&params_); }
  double plan_us() const { return plan_us_; }
  /// Damage to the workspace's guards, in words.
  std::optional<std::string> memory_damage() const { return workspace_.damage(); }

 private:
  const Kernel* kernel_;
  Device* device_;
  OpParams params_;
  LaunchContext context_;
  GuardedBuffer workspace_;
  double plan_us_ = 0;
};

}  // namespace attnbench
