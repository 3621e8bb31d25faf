#include "harness/device/cuda/code_cache.h"

#include "harness/device/cuda/cuda_check.h"

namespace attnbench {
namespace {

/// One warp for each scheduler of a multiprocessor, because each has its own instruction cache.
constexpr int kThreads = 128;

#define ATTNBENCH_8(x) x x x x x x x x
// 256 instructions of 16 bytes
#define ATTNBENCH_4_KIB                                                                    \
  asm volatile(                                                                            \
      ATTNBENCH_8(ATTNBENCH_8("fma.rn.f32 %0, %0, %0, %1;\nfma.rn.f32 %1, %1, %1, %2;\n"   \
                              "fma.rn.f32 %2, %2, %2, %3;\nfma.rn.f32 %3, %3, %3, %0;\n")) \
      : "+f"(a), "+f"(b), "+f"(c), "+f"(d));
#define ATTNBENCH_32_KIB ATTNBENCH_8(ATTNBENCH_4_KIB)
#define ATTNBENCH_256_KIB ATTNBENCH_8(ATTNBENCH_32_KIB)

/// 384 KiB of code without a branch. This is three times what the instruction caches of a multiprocessor seem
/// to hold: on an H100, kernels get slower until 128 KiB have run, and no slower beyond.
__global__ void __launch_bounds__(kThreads) straight_kernel(float* sink) {
  float a = static_cast<float>(threadIdx.x), b = 1, c = 2, d = 3;
  ATTNBENCH_256_KIB;
  ATTNBENCH_32_KIB;
  ATTNBENCH_32_KIB;
  ATTNBENCH_32_KIB;
  ATTNBENCH_32_KIB;
  if (a + b + c + d == 12345) *sink = a;  // keeps the arithmetic; the written value is never read
}

/// An H100 also keeps something of the last few kernels, whatever their code: after straight_kernel alone, a
/// kernel takes one of two times, depending on how many launches lie in between. After as many as this, it
/// always takes the longer one, as it does in a model.
constexpr int kSmallLaunches = 16;

__global__ void __launch_bounds__(256) small_kernel(float* sink, float x) {
  const float a = static_cast<float>(threadIdx.x) * x;
  if (a == 12345) *sink = a;  // never true: x is 0.5
}

}  // namespace

void evict_code(unsigned* sink, int multiprocessors, cudaStream_t stream) {
  straight_kernel<<<static_cast<unsigned>(multiprocessors), kThreads, 0, stream>>>(
      reinterpret_cast<float*>(sink));
  for (int i = 0; i < kSmallLaunches; ++i) {
    small_kernel<<<static_cast<unsigned>(multiprocessors), 256, 0, stream>>>(reinterpret_cast<float*>(sink),
                                                                             0.5f);
  }
  cuda_check(cudaGetLastError(), "kernels that empty the caches of code");
}

}  // namespace attnbench
