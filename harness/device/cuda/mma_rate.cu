#include "harness/device/cuda/mma_rate.h"

#include "harness/device/cuda/cuda_check.h"

namespace attnbench {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerSm = 2;
constexpr int kChains = 4;  ///< independent accumulators per warp, to hide the latency of the unit
constexpr int kRounds = 4096;
constexpr double kFlopPerMma = 2.0 * 16 * 8 * 16;
constexpr int kFmasPerRound = 32;

template <bool kBf16>
__device__ void mma(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  if constexpr (kBf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

template <bool kBf16>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm) mma_kernel(float* sink) {
  // Small values of both signs in either type, because zeros would draw less power.
  const unsigned lane = threadIdx.x % 32;
  const unsigned x = kBf16 ? 0x3c00bc80u : 0x2400a480u;
  const unsigned a[4] = {x ^ lane, x ^ (lane << 1), x ^ (lane << 2), x ^ lane ^ 7u};
  const unsigned b[2] = {x ^ (lane << 1) ^ 5u, x ^ (lane << 2) ^ 3u};
  float c[kChains][4] = {};
#pragma unroll 4
  for (int i = 0; i < kRounds; ++i) {
#pragma unroll
    for (int n = 0; n < kChains; ++n) mma<kBf16>(c[n], a, b);
  }
  float sum = 0;
#pragma unroll
  for (int n = 0; n < kChains; ++n) sum += c[n][0] + c[n][1] + c[n][2] + c[n][3];
  if (sum == 12345.678f) *sink = sum;
}

__global__ void __launch_bounds__(kThreads, kBlocksPerSm) fma_kernel(float* sink, float scale) {
  float c[kFmasPerRound];
#pragma unroll
  for (int n = 0; n < kFmasPerRound; ++n) c[n] = static_cast<float>(threadIdx.x + n);
  for (int i = 0; i < kRounds; ++i) {
#pragma unroll
    for (int n = 0; n < kFmasPerRound; ++n) c[n] = fmaf(c[n], scale, 0.25f);
  }
  float sum = 0;
#pragma unroll
  for (int n = 0; n < kFmasPerRound; ++n) sum += c[n];
  if (sum == 12345.678f) *sink = sum;
}

}  // namespace

double mma_flop(int multiprocessors, DType dtype) {
  const double threads = static_cast<double>(kThreads) * kBlocksPerSm * multiprocessors;
  return dtype == DType::kFp32 ? threads * kRounds * kFmasPerRound * 2
                               : threads / 32 * kRounds * kChains * kFlopPerMma;
}

void mma_cuda(DType dtype, float* sink, int multiprocessors, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(kBlocksPerSm * multiprocessors);
  if (dtype == DType::kFp32) {
    fma_kernel<<<blocks, kThreads, 0, stream>>>(sink, 0.5f);
  } else if (dtype == DType::kBf16) {
    mma_kernel<true><<<blocks, kThreads, 0, stream>>>(sink);
  } else {
    mma_kernel<false><<<blocks, kThreads, 0, stream>>>(sink);
  }
  cuda_check(cudaGetLastError(), "matrix rate kernel");
}

}  // namespace attnbench
