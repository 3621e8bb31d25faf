// An instruction that only this kernel uses: a product of 32 columns.
#pragma once

#include "kernels/cuda/common/wgmma.cuh"

namespace attnbench::sm90_mla {

/// d (64 x 32) += A (64 x 16) B (16 x 32), both K-major in shared memory. accumulate = 0 ignores what d held.
template <DType kType>
__device__ __forceinline__ void wgmma_m64n32(float (&d)[16], uint64_t a, uint64_t b, int accumulate) {
#define ATTNBENCH_M64N32(type)                                                                               \
  asm volatile(                                                                                              \
      "{.reg .pred p; setp.ne.b32 p, %18, 0;\n"                                                              \
      "wgmma.mma_async.sync.aligned.m64n32k16.f32." type "." type                                            \
      " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, p, 1, 1, 0, 0;}\n"                \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),      \
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]) \
      : "l"(a), "l"(b), "r"(accumulate))
  if constexpr (kType == DType::kBf16) {
    ATTNBENCH_M64N32("bf16");
  } else {
    ATTNBENCH_M64N32("f16");
  }
#undef ATTNBENCH_M64N32
}

}  // namespace attnbench::sm90_mla
