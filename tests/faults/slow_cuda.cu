// The GPU itself waits, for a share of the time that the kernel took there. So no host time is included, and
// a graph can hold the wait.
#include <cuda_runtime_api.h>

#include "tests/faults/slow.h"

namespace attnbench::faults {
namespace {

__device__ unsigned long long g_begin_ns;  // start of the current launch; launches are in order on one stream

__device__ unsigned long long now_ns() {
  unsigned long long ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns;
}

__global__ void stamp_kernel() { g_begin_ns = now_ns(); }

__global__ void wait_kernel(int percent) {
  const unsigned long long ended = now_ns();
  const unsigned long long until = ended + (ended - g_begin_ns) * percent / 100;
  while (now_ns() < until) {
  }
}

template <int kPercent>
KernelStatus slow_cuda(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  static const Kernel& kernel = *first_attention_kernel(DeviceKind::kCuda);
  const auto stream = static_cast<cudaStream_t>(c->stream);
  stamp_kernel<<<1, 1, 0, stream>>>();
  const KernelStatus status = kernel.launch(p, c, m);
  wait_kernel<<<1, 1, 0, stream>>>(kPercent);
  if (status == KernelStatus::kOk && cudaGetLastError() != cudaSuccess) {
    return refuse(m, KernelStatus::kDeviceError, "slow: the wait could not be launched");
  }
  return status;
}

}  // namespace

Launch slow_cuda_launch(int percent) {
  switch (percent) {
    case 0:
      return slow_cuda<0>;
    case 2:
      return slow_cuda<2>;
    case 3:
      return slow_cuda<3>;
    case 5:
      return slow_cuda<5>;
    case 10:
      return slow_cuda<10>;
    default:
      return nullptr;
  }
}

}  // namespace attnbench::faults
