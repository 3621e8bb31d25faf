// What a build without CUDA answers.
#include "harness/device/device.h"

namespace attnbench {
namespace {
constexpr const char* kReason = "built without CUDA (nvcc was not found when it was configured)";
}

DeviceProbe probe_cuda() { return {0, kReason}; }

std::unique_ptr<Device> open_cuda(int) { throw DeviceError(std::string("cuda: ") + kReason, false); }

}  // namespace attnbench
