// The answers of a build without CUDA.
#include <cstring>

#include "harness/device/device.h"
#include "harness/device/read.h"

namespace attnbench {
namespace {
#ifdef ATTNBENCH_CUDA_IS_OFF
constexpr const char* kReason = "this program was built without CUDA: ATTNBENCH_CUDA is OFF";
#else
constexpr const char* kReason = "this program was built without CUDA: nvcc was not found";
#endif
}  // namespace

DeviceProbe probe_cuda() { return {0, kReason, false}; }

std::unique_ptr<Device> open_cuda(int, GpuHost*) {
  throw DeviceError(std::string("cuda: ") + kReason, false);
}

void* second_place(const void*) { return nullptr; }
void reserve_gpu_pages() {}
void apply(const GpuPages&) {}
void enqueue_wait(void*, const void*, uint32_t) {}

int read_memory(const LaunchContext&, void* to, const void* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
  return 0;
}

}  // namespace attnbench
