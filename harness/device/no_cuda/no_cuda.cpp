// The answers of a build without CUDA.
#include "harness/device/device.h"

namespace attnbench {
namespace {
constexpr const char* kReason =
    "this program was built without CUDA: nvcc was not found, or ATTNBENCH_CUDA was OFF";
}

DeviceProbe probe_cuda() { return {0, kReason}; }

std::unique_ptr<Device> open_cuda(int) { throw DeviceError(std::string("cuda: ") + kReason, false); }

}  // namespace attnbench
