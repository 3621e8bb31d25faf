// Converts operands of 8 bits for products in fp16, which holds every value of e4m3 and of int8 exactly.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/contract/dtype.h"

namespace attnbench::hopper {

/// Returns values 2 * kHalf and 2 * kHalf + 1 of the four e4m3 values in `word` as two fp16. PTX ISA, "Data
/// Movement and Conversion Instructions: cvt".
template <int kHalf>
__device__ __forceinline__ uint32_t from_e4m3(uint32_t word) {
  uint32_t pair;
  if constexpr (kHalf == 0) {
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low;}"
        : "=r"(pair)
        : "r"(word));
  } else {
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, high;}"
        : "=r"(pair)
        : "r"(word));
  }
  return pair;
}

/// Returns values kFirst and kSecond of the four int8 values in `word` as two fp16. Beside the upper byte 0x64,
/// the byte x + 128 is the fp16 number 1024 + x + 128.
template <int kFirst, int kSecond>
__device__ __forceinline__ uint32_t from_int8(uint32_t word) {
  constexpr uint32_t kUpperByte = 0x64646464, kOffset = 0x64806480;  // the latter: two times 1152
  const uint32_t pair = __byte_perm(word ^ 0x80808080u, kUpperByte, 0x4040 | kFirst | kSecond << 8);
  uint32_t values;
  asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(values) : "r"(pair), "r"(kOffset));
  return values;
}

/// Rounds two floats to e4m3, `low` in bits 0..7; what exceeds 448 becomes 448.
__device__ __forceinline__ uint32_t pack_pair_e4m3(float low, float high) {
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
  return pair;
}

/// Converts two values of the 16-bit type kType to fp16. bf16 beyond 65504 becomes infinite.
template <DType kType>
__device__ __forceinline__ uint32_t to_fp16(uint32_t pair) {
  if constexpr (kType == DType::kFp16) return pair;
  const float low = __uint_as_float(pair << 16);
  const float high = __uint_as_float(pair & 0xffff0000u);
  uint32_t word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

/// Loads two words from shared memory. The asm is volatile so that the load stays between the barrier waits
/// and arrivals that guard the words.
__device__ __forceinline__ void load_shared(uint32_t (&words)[2], uint32_t address) {
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "r"(address));
}

__device__ __forceinline__ uint32_t load_shared_word(uint32_t address) {
  uint32_t word;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(address));
  return word;
}

}  // namespace attnbench::hopper
