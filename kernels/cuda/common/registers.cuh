// Register-level instructions that C++ has no name for.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/contract/dtype.h"

namespace attnbench::hopper {

/// Raises the calling warps' register limit to `kRegisters` per thread; all four warps of a warpgroup must
/// call it. Blocks until the block's pool holds enough. PTX ISA, "Miscellaneous Instructions: setmaxnreg".
template <int kRegisters>
__device__ __forceinline__ void raise_register_limit() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// Gives registers above `kRegisters` per thread back to the block's pool.
template <int kRegisters>
__device__ __forceinline__ void lower_register_limit() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

/// 2^x within 2^-22 relative; 2^-inf = 0. PTX ISA, "Floating Point Instructions: ex2".
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x within 1 ulp; 1 / inf = 0. PTX ISA, "Floating Point Instructions: rcp".
__device__ __forceinline__ float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// Two floats rounded to the 16-bit type kType, `low` in bits 0..15.
template <DType kType>
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
  static_assert(kType == DType::kBf16 || kType == DType::kFp16);
  uint32_t word;
  if constexpr (kType == DType::kBf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  }
  return word;
}

/// Converts the two 16-bit numbers of `word` to float32, bits 0..15 first.
template <DType kType>
__device__ __forceinline__ float2 unpack_pair(uint32_t word) {
  static_assert(kType == DType::kBf16 || kType == DType::kFp16);
  if constexpr (kType == DType::kBf16) {
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
  } else {
    return __half22float2(*reinterpret_cast<const __half2*>(&word));
  }
}

/// Keeps all uses of `values` before this line ahead of it, and all later ones behind it. An asynchronous
/// instruction in flight owns its registers, and the compiler knows that only by such a call. No instruction
/// is emitted.
template <int kCount>
__device__ __forceinline__ void pin(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

template <int kCount>
__device__ __forceinline__ void pin(int32_t (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(values[i])::"memory");
}

template <int kRows, int kColumns>
__device__ __forceinline__ void pin(uint32_t (&values)[kRows][kColumns]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kColumns; ++j) asm volatile("" : "+r"(values[i][j])::"memory");
  }
}

}  // namespace attnbench::hopper
