// Which workspaces a plan has prepared. A kernel that waits for counters would wait for ever in a workspace
// without a plan, so it refuses such a launch.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "kernels/common/checks.h"

namespace attnbench::hopper {

/// The plans of workspaces, by the workspace's address. They are kept for the life of the process.
class Plans {
 public:
  /// What a plan prepared, and on which stream.
  struct Plan {
    std::size_t counters_bytes, states_bytes;
    void* stream;
  };

  void set(const void* workspace, const Plan& plan) {
    const std::lock_guard<std::mutex> lock(mutex_);
    plans_[workspace] = plan;
  }

  /// Forgets the workspace's plan, because something else is about to write there.
  void erase(const void* workspace) {
    const std::lock_guard<std::mutex> lock(mutex_);
    plans_.erase(workspace);
  }

  /// Refuses a launch whose workspace has no plan, or another one than `required`.
  KernelStatus check(const Kernel& kernel, const Plan& required, const LaunchContext& context,
                     KernelMessage* message) {
    const auto bad = [&](const char* given) {
      return refuse(
          message, KernelStatus::kBadArgument,
          "%s: a plan for this launch and stream required of the workspace, given %s: call plan first",
          kernel.name, given);
    };
    const std::optional<Plan> plan = find(context.workspace);
    if (!plan) return bad("none");
    if (plan->counters_bytes != required.counters_bytes || plan->states_bytes != required.states_bytes) {
      return bad("one for other maxima or heads");
    }
    return plan->stream == required.stream ? KernelStatus::kOk : bad("one on another stream");
  }

 private:
  std::optional<Plan> find(const void* workspace) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = plans_.find(workspace);
    return found == plans_.end() ? std::nullopt : std::optional(found->second);
  }

  std::mutex mutex_;
  std::unordered_map<const void*, Plan> plans_;
};

}  // namespace attnbench::hopper
