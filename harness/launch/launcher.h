// Chooses kernels from the table, and launches a kernel on a workload.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/facts/skip_reason.h"
#include "harness/launch/guarded_call.h"
#include "harness/launch/parts.h"
#include "harness/launch/rank_exchange.h"
#include "harness/tensors/workload.h"
#include "kernels/registry.h"

namespace attnbench {

/// A kernel whose plan returned kUnsupported: it refuses the case, as `supports` may; what() is its message.
class PlanRefused : public KernelError {
 public:
  using KernelError::KernelError;
};

inline constexpr int64_t kWorkspaceAlignment = 256;  ///< kernels/contract/kernel.h

/// There is no memory for the workspace that a kernel wants.
class NoWorkspace : public OutOfMemory {
 public:
  NoWorkspace(const std::string& what, std::size_t wanted) : OutOfMemory(what), bytes(wanted) {}
  std::size_t bytes;
};

/// Kernels of the table for this op and kind of device, in table order. If `names` is not empty, only those.
std::vector<const Kernel*> select_kernels(KernelTable table, Op op, DeviceKind device,
                                          const std::vector<std::string>& names);

/// Why this program cannot call the kernel: it was built for another ABI. nullopt if it can.
std::optional<SkipReason> other_abi(const Kernel& kernel);

/// Why the kernel refuses this case on this device, in its own words; nullopt if it takes the case. If the
/// path has several launches, the kernel must take all of them, and a merge_states kernel of the table must
/// take the merge, if there is one. If the case takes several devices, they must be there.
std::optional<SkipReason> refusal(const Kernel& kernel, KernelTable table, Device& device, const Case& item,
                                  bool padded_strides = false);

/// The layout of a case's tensors for this kernel. The inputs O and LSE of attention_backward come from the
/// first attention kernel of this program for the device, which is the plain one in float32.
LayoutVariant layout_for(const Kernel& kernel, LayoutVariant variant = {});

/// What a launch with these parameters returned, and where it belongs: `out` and `lse` of the parameters.
std::vector<ReturnedTensor> returned_tensors(const AttentionParams& params, const ReturnedOutputs& returned);

/// Calls a function of a kernel. Throws KernelError with its message, unless it returns kOk.
void expect_ok(const Kernel& kernel, const char* step,
               const std::function<KernelStatus(KernelMessage*)>& call);

/// One kernel bound to one workload: a launch, or the launches of the case's path.
///
/// Partial states are in buffers of the launcher, which hold NaN before the first launch. A merge_states
/// kernel of the table merges them: the one with the kernel's own name, or else the first that takes them.
/// Ranks that are devices of their own exchange their states instead (rank_exchange.h).
class Launcher {
 public:
  /// Allocates workspaces and partial states, and plans. Throws PlanRefused, KernelError, OutOfMemory.
  /// Asks for the declared numerics once, unless `like`, a launcher of the same kernel and case, knows them;
  /// numerics out of bounds are a KernelError. Workspaces hold `workspace_byte` before plan: NaN by default.
  Launcher(const Kernel& kernel, KernelTable table, Device& device, const Workload& workload,
           const Launcher* like = nullptr, unsigned char workspace_byte = 0xff);

  /// Enqueues one launch, or all launches of the path, in a profiler's range "launch". Throws KernelError.
  void launch();
  /// The part of it that is timed. take_outputs() must follow, before the outputs are read.
  void launch_alone();
  /// After launches that began with `before`: throws KernelError if they left something changed.
  void expect_restored(const StateBefore& before) const;
  /// Enqueues what brings returned outputs (kReturnsOutputs), or those of several devices, to their place.
  void take_outputs();
  bool returns_outputs() const { return (kernel_->flags & kReturnsOutputs) != 0 || exchange_; }
  /// What several devices do beside their launches; null: there is one device.
  RankExchange* exchange() { return exchange_ ? &*exchange_ : nullptr; }
  const RankExchange* exchange() const { return exchange_ ? &*exchange_ : nullptr; }

  /// The largest workspace of a launch.
  std::size_t workspace_bytes() const;
  /// What the kernel declared for the case when the first launcher was made.
  const Numerics& numerics() const { return numerics_; }
  /// The kernel's tile; all zero if the kernel does not declare one. Throws KernelError.
  Tile tile() const;
  /// The outputs of the last launch, with the additional variance of O if partial states were merged.
  /// `workload` must be the constructor's.
  HostOutputs outputs(const Workload& workload) const;
  /// The partial states of the last launch; nullopt if it leaves none.
  std::optional<PartialStates> states() const;
  double plan_us() const { return plan_us_; }
  /// Damage to guards of the launcher's buffers, or a write into a part's metadata, in words; nullopt: none.
  std::optional<std::string> memory_damage() const;

 private:
  struct Step {
    const Kernel* kernel;
    Device* device;
    OpParams params;
    LaunchContext context;
    GuardedBuffer workspace;
    ReturnedOutputs returned{};
  };
  struct Metadata {
    Device* device;
    GuardedBuffer buffer;
    uint64_t digest;
  };
  void add_step(const Kernel& kernel, const OpParams& params, Device& device);
  void add_parts(KernelTable table, const Workload& workload);
  void add_ranks(const Workload& workload);
  /// Several devices: their times have fewer marks if nobody waits for the launch.
  void enqueue(bool waited_for);
  void launch_step(Step& step);
  const int32_t* keep(const char* name, const std::vector<int32_t>& host, Device& device);

  const Kernel* kernel_;
  Device* device_;
  OpParams params_;
  unsigned char workspace_byte_;
  Numerics numerics_{DType::kFp32, DType::kFp32, 0};  ///< for ops without any
  Numerics merge_numerics_ = numerics_;               ///< of the last step, where it merges states
  std::vector<Step> steps_;
  std::vector<Metadata> metadata_;
  GuardedBuffer partial_out_, partial_lse_;
  std::optional<RankExchange> exchange_;
  double plan_us_ = 0;
};

/// Tensors and the launch that is planned for them.
struct BoundLaunch {
  std::unique_ptr<Workload> workload;
  std::unique_ptr<Launcher> launcher;
};

}  // namespace attnbench
