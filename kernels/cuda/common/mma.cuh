// Matrix products of one warp on 16-bit operands, and the loads of their operands from shared memory.
//
// D (16 x 8, fp32) += A (16 x 16) B (16 x 8). Lane t holds, with r = t / 4 and c = 2 * (t % 4):
//   d[0], d[1]: row r, columns c, c + 1;          d[2], d[3]: row r + 8
//   a[0]: row r, columns c, c + 1;  a[1]: row r + 8;  a[2]: row r, columns c + 8, c + 9;  a[3]: row r + 8
//   b0: rows c, c + 1, column r;    b1: rows c + 8, c + 9
// So the accumulators of two products side by side, rounded in pairs, are the A operand of the next:
// {d[0..1], d[2..3]} of columns 0..7 are a[0], a[1], those of columns 8..15 are a[2], a[3].
// PTX ISA, "Warp Level Matrix Instructions: mma.m16n8k16 with floating point type".
#pragma once

#include <cstdint>

#include "kernels/contract/dtype.h"

namespace attnbench::hopper {

template <DType kType>
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
  static_assert(kType == DType::kBf16 || kType == DType::kFp16);
  if constexpr (kType == DType::kBf16) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

/// Loads four 8 x 8 matrices of 16-bit elements: lane t gives the shared address of row t % 8 of matrix t / 8
/// (8 elements, 16 bytes, aligned), and receives in m[i] the elements c, c + 1 of row r of matrix i. The asm
/// is volatile so that the load stays between the barrier waits and arrivals that guard the rows. PTX ISA,
/// "Warp Level Matrix Instructions: ldmatrix".
__device__ __forceinline__ void load_matrices(uint32_t (&m)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address));
}

/// The same, each matrix transposed: m[i] holds the elements of rows c, c + 1 in column r.
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&m)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address));
}

/// Stores four 8 x 8 matrices of 16-bit elements: the lane gives the address of a row as above, and in m[i] the
/// elements c, c + 1 of row r of matrix i. PTX ISA, "Warp Level Matrix Instructions: stmatrix".
__device__ __forceinline__ void store_matrices(uint32_t address, const uint32_t (&m)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(m[0]),
               "r"(m[1]), "r"(m[2]), "r"(m[3])
               : "memory");
}

/// Transposes an 8 x 8 matrix of 16-bit elements over a warp: lane t gives the elements c, c + 1 of row r and
/// receives those of rows c, c + 1 in column r. PTX ISA, "Warp Level Matrix Instructions: movmatrix".
__device__ __forceinline__ uint32_t transpose_matrix(uint32_t m) {
  uint32_t transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(m));
  return transposed;
}

}  // namespace attnbench::hopper
