#include <cuda_runtime_api.h>

#include "tests/faults/broken.h"
#include "tests/faults/slow.h"

namespace attnbench::faults {
namespace {

using Launch = KernelStatus (*)(const OpParams*, const LaunchContext*, KernelMessage*);

__global__ void write_nowhere_kernel() { *reinterpret_cast<volatile int*>(8) = 1; }

/// Spins for an hour, so that a GPU becomes free even if the supervisor fails.
__global__ void spin_kernel() {
  unsigned long long now, begin;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begin < 3600ull * 1000 * 1000 * 1000);
}

KernelStatus launched(KernelMessage* m) {
  const cudaError_t error = cudaPeekAtLastError();
  return error == cudaSuccess ? KernelStatus::kOk
                              : refuse(m, KernelStatus::kDeviceError, "%s", cudaGetErrorName(error));
}

KernelStatus illegal_address(const OpParams*, const LaunchContext* c, KernelMessage* m) {
  write_nowhere_kernel<<<1, 1, 0, static_cast<cudaStream_t>(c->stream)>>>();
  return launched(m);
}

KernelStatus hangs(const OpParams*, const LaunchContext* c, KernelMessage* m) {
  spin_kernel<<<1, 1, 0, static_cast<cudaStream_t>(c->stream)>>>();
  return launched(m);
}

/// Takes all memory, frees none, and leaves CUDA's error set.
KernelStatus overallocates(const OpParams*, const LaunchContext*, KernelMessage* m) {
  for (std::size_t bytes = std::size_t{1} << 30; bytes >= std::size_t{1} << 20;) {
    void* taken = nullptr;
    if (cudaMalloc(&taken, bytes) != cudaSuccess) bytes /= 2;
  }
  return refuse(m, KernelStatus::kDeviceError, "%s", cudaGetErrorName(cudaPeekAtLastError()));
}

Kernel broken(const char* name, const char* summary, Launch launch) {
  Kernel k = *first_attention_kernel(DeviceKind::kCuda);
  k.name = name;
  k.summary = summary;
  k.launch = launch;
  k.supports = only_head_dim_24;
  return k;
}

}  // namespace

std::vector<Kernel> broken_cuda_kernels() {
  return {broken("illegal_address", "fault: writes where nothing is", illegal_address),
          broken("hangs", "fault: never comes back", hangs),
          broken("overallocates", "fault: takes all memory", overallocates)};
}

}  // namespace attnbench::faults
