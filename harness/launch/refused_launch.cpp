#include "harness/launch/refused_launch.h"

#include "harness/launch/guarded_call.h"
#include "harness/launch/launcher.h"
#include "harness/ops/tensors_ops.h"

namespace attnbench {
namespace {

/// Calls one step of a kernel.
template <class Call>
LaunchAnswer answer(const Kernel& kernel, const char* step, const Call& call) {
  KernelMessage message{};
  const KernelStatus status = guarded(kernel, step, [&] { return call(&message); });
  if (status == KernelStatus::kDeviceError)
    throw KernelError(fmt::format("{}: {} failed: {}", kernel.name, step, message.text));
  return {status, step, message.text};
}

}  // namespace

LaunchAnswer ask_supports(const Kernel& kernel, const Device& device, const Case& item) {
  OpParams params = Workload::shape_params(item);
  tensors_ops(params.op).spoil(item.params.bad_launch, params);
  const LaunchContext context = device.launch_context();
  return answer(kernel, "supports", [&](KernelMessage* m) { return kernel.supports(&params, &context, m); });
}

LaunchAnswer offer_launch(const Kernel& kernel, Device& device, const Workload& workload) {
  OpParams params = workload.params();
  tensors_ops(params.op).spoil(workload.item().params.bad_launch, params);
  LaunchContext context = device.launch_context();
  GuardedBuffer workspace;
  if (kernel.workspace_bytes) {
    const std::size_t bytes =
        guarded(kernel, "workspace_bytes", [&] { return kernel.workspace_bytes(&params, &context); });
    if (bytes > 0) {
      workspace = GuardedBuffer(device, "workspace", static_cast<int64_t>(bytes), Access::kWrites,
                                {.alignment = kWorkspaceAlignment});
      context.workspace = workspace.data();
      context.workspace_bytes = bytes;
    }
  }
  ReturnedOutputs returned{};
  if ((kernel.flags & kReturnsOutputs) != 0) context.returned = &returned;
  if (kernel.plan) {
    LaunchAnswer a =
        answer(kernel, "plan", [&](KernelMessage* m) { return kernel.plan(&params, &context, m); });
    if (a.status != KernelStatus::kOk) return a;
  }
  LaunchAnswer a =
      answer(kernel, "launch", [&](KernelMessage* m) { return kernel.launch(&params, &context, m); });
  device.synchronize();
  return a;
}

const char* refusal_name(KernelStatus status) {
  return status == KernelStatus::kUnsupported ? "unsupported" : "bad_argument";
}

}  // namespace attnbench
