#include "harness/run/launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>

namespace attnbench {
namespace {

void check(const Kernel& kernel, KernelStatus status, const KernelMessage& message, const char* step) {
  if (status == KernelStatus::kOk) return;
  throw KernelError(std::string(kernel.name) + ": " + step +
                    " failed: " + (message.text[0] ? message.text : "no message"));
}

/// Whatever a kernel throws is its failure, also what elsewhere would mean that the case does not fit.
template <class Call>
void call(const Kernel& kernel, const char* step, Call&& step_of_kernel) {
  KernelMessage message{};
  KernelStatus status = KernelStatus::kOk;
  try {
    status = step_of_kernel(&message);
  } catch (const std::bad_alloc&) {
    throw KernelError(
        fmt::format("{}: {} failed: out of memory: it wants more than its workspace, and the "
                    "machine does not have it",
                    kernel.name, step));
  } catch (const std::exception& e) {
    throw KernelError(fmt::format("{}: {} threw an exception: {}", kernel.name, step, e.what()));
  } catch (...) {
    throw KernelError(fmt::format("{}: {} threw something that is no std::exception", kernel.name, step));
  }
  check(kernel, status, message, step);
}

}  // namespace

std::vector<const Kernel*> select_kernels(KernelTable table, Op op, DeviceKind device,
                                          const std::vector<std::string>& names) {
  std::vector<const Kernel*> out;
  for (const Kernel* k : table) {
    const bool named = names.empty() || std::find(names.begin(), names.end(), k->name) != names.end();
    if (k->op == op && k->device == device && named) out.push_back(k);
  }
  return out;
}

std::optional<std::string> refusal(const Kernel& kernel, const Device& device, const Case& item) {
  if (kernel.abi_version != kKernelAbiVersion) {
    return std::string(kernel.name) + ": built for kernel ABI " + std::to_string(kernel.abi_version) +
           ", this program has " + std::to_string(kKernelAbiVersion);
  }
  const OpParams params = Workload::shape_params(item);
  const LaunchContext context = device.launch_context();
  KernelMessage message{};
  if (check_features(kernel, params, &message) != KernelStatus::kOk) return message.text;
  if (kernel.supports(&params, &context, &message) != KernelStatus::kOk) return message.text;
  return std::nullopt;
}

Launcher::Launcher(const Kernel& kernel, Device& device, const Workload& workload)
    : kernel_(&kernel), device_(&device), params_(workload.params()), context_(device.launch_context()) {
  const std::size_t bytes = kernel.workspace_bytes ? kernel.workspace_bytes(&params_, &context_) : 0;
  if (bytes > 0) {
    workspace_ = GuardedBuffer(device, "workspace", static_cast<int64_t>(bytes));
    device.set_bytes(workspace_.data(), 0xff,
                     workspace_.bytes());  // no kernel may rely on what it finds there
    device.synchronize();
    context_.workspace = workspace_.data();
    context_.workspace_bytes = bytes;
  }
  if (kernel.plan) {
    const auto begin = std::chrono::steady_clock::now();
    call(kernel, "plan", [&](KernelMessage* m) { return kernel.plan(&params_, &context_, m); });
    plan_us_ = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }
}

void Launcher::launch() {
  const DeviceRange range(*device_, "launch");
  call(*kernel_, "launch", [&](KernelMessage* m) { return kernel_->launch(&params_, &context_, m); });
}

}  // namespace attnbench
