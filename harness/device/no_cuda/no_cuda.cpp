// The answers of a build without CUDA.
#include "harness/device/device.h"

namespace attnbench {
namespace {
#ifdef ATTNBENCH_CUDA_IS_OFF
constexpr const char* kReason = "this program was built without CUDA: ATTNBENCH_CUDA is OFF";
#else
constexpr const char* kReason = "this program was built without CUDA: nvcc was not found";
#endif
}  // namespace

DeviceProbe probe_cuda() { return {0, kReason}; }

std::unique_ptr<Device> open_cuda(int) { throw DeviceError(std::string("cuda: ") + kReason, false); }

}  // namespace attnbench
