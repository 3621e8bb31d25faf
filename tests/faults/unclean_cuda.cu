// Each kernel launches a device kernel that fails one tool of compute-sanitizer, and then cuda_simt, which is
// right.
#include <cuda_runtime_api.h>

#include "tests/faults/broken.h"
#include "tests/faults/slow.h"

namespace attnbench::faults {
namespace {

using Launch = KernelStatus (*)(const OpParams*, const LaunchContext*, KernelMessage*);
constexpr int kThreads = 64;

/// Uninitialised device memory. It is never freed.
int* fresh_ints(int count) {
  void* p = nullptr;
  return cudaMalloc(&p, static_cast<std::size_t>(count) * sizeof(int)) == cudaSuccess ? static_cast<int*>(p)
                                                                                      : nullptr;
}

/// Writes what it reads to `sink`, so that the read is kept.
__global__ void copy_one_kernel(const int* from, int* sink) { *sink = *from; }

__global__ void race_kernel(int* sink) {
  __shared__ int row[kThreads];
  row[threadIdx.x] = static_cast<int>(threadIdx.x);
  sink[threadIdx.x] = row[kThreads - 1 - threadIdx.x];  // written by another warp
}

__global__ void diverging_barrier_kernel(int* sink) {
  if (threadIdx.x < 16) __syncthreads();
  sink[threadIdx.x] = 1;
}

KernelStatus right(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  return first_attention_kernel(DeviceKind::kCuda)->launch(p, c, m);
}

/// Reads one element past the end. The allocator's granularity hides this from every tool but memcheck.
KernelStatus reads_past_the_end(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  static int* const ints = fresh_ints(2 * kThreads);
  cudaMemsetAsync(ints, 0, 2 * kThreads * sizeof(int), static_cast<cudaStream_t>(c->stream));
  copy_one_kernel<<<1, 1, 0, static_cast<cudaStream_t>(c->stream)>>>(ints + 2 * kThreads, ints);
  return right(p, c, m);
}

KernelStatus reads_unset(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  static int* const ints = fresh_ints(kThreads);
  copy_one_kernel<<<1, 1, 0, static_cast<cudaStream_t>(c->stream)>>>(ints + 1, ints);
  return right(p, c, m);
}

KernelStatus races(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  static int* const ints = fresh_ints(kThreads);
  race_kernel<<<1, kThreads, 0, static_cast<cudaStream_t>(c->stream)>>>(ints);
  return right(p, c, m);
}

KernelStatus diverging_barrier(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  static int* const ints = fresh_ints(kThreads);
  diverging_barrier_kernel<<<1, kThreads, 0, static_cast<cudaStream_t>(c->stream)>>>(ints);
  return right(p, c, m);
}

Kernel unclean(const char* name, const char* summary, Launch launch) {
  Kernel k = *first_attention_kernel(DeviceKind::kCuda);
  k.name = name;
  k.summary = summary;
  k.launch = launch;
  return k;
}

}  // namespace

std::vector<Kernel> unclean_cuda_kernels() {
  return {
      unclean("reads_past_the_end", "right, and for memcheck: reads past an allocation", reads_past_the_end),
      unclean("races", "right, and for racecheck: shared memory without a barrier", races),
      unclean("reads_unset", "right, and for initcheck: reads what nobody wrote", reads_unset),
      unclean("diverging_barrier", "right, and for synccheck: half a warp at a barrier", diverging_barrier)};
}

}  // namespace attnbench::faults
