// Register-blocked product of a few rows with a panel of kPanel columns: C[M][kPanel] += A[M][depth]
// B[depth][kPanel].
//
// Twelve accumulators (6 rows of two vectors), one broadcast and two loads fill the 16 registers of AVX2 and
// keep two FMA units busy over their latency. Every element of C is one chain over depth in ascending order.
// So its bits do not depend on M, on the row's place in the tile, or on its neighbours.
#pragma once

#include "kernels/cpu/simd.h"

namespace attnbench::cpu {

/// Rows of a full micro-tile.
inline constexpr int kGroupRows = 6;

/// Element (row r, step k) of A is a[r * kRowStride + k * kStep]; B is contiguous.
template <int M, int kRowStride, int kStep>
ATTNBENCH_INLINE void gemm_micro(const float* a, const float* b, int depth, Vec (&c)[M][2]) {
  for (int k = 0; k < depth; ++k) {
    const Vec b0 = load(b);
    const Vec b1 = load(b + kLanes);
    ATTNBENCH_UNROLL
    for (int r = 0; r < M; ++r) {
      const Vec x = splat(a[r * kRowStride]);
      c[r][0] = x * b0 + c[r][0];
      c[r][1] = x * b1 + c[r][1];
    }
    a += kStep;
    b += kPanel;
  }
}

/// C := A B, C row-major with `c_stride`.
template <int M, int kRowStride, int kStep>
inline void gemm_set(const float* a, const float* b, int depth, float* c, int c_stride) {
  Vec acc[M][2] = {};
  gemm_micro<M, kRowStride, kStep>(a, b, depth, acc);
  ATTNBENCH_UNROLL
  for (int r = 0; r < M; ++r) {
    store(c + r * c_stride, acc[r][0]);
    store(c + r * c_stride + kLanes, acc[r][1]);
  }
}

/// C := alpha[row] C + A B.
template <int M, int kRowStride, int kStep>
inline void gemm_scale_add(const float* a, const float* b, int depth, const float* alpha, float* c,
                           int c_stride) {
  Vec acc[M][2];
  ATTNBENCH_UNROLL
  for (int r = 0; r < M; ++r) {
    acc[r][0] = load(c + r * c_stride) * alpha[r];
    acc[r][1] = load(c + r * c_stride + kLanes) * alpha[r];
  }
  gemm_micro<M, kRowStride, kStep>(a, b, depth, acc);
  ATTNBENCH_UNROLL
  for (int r = 0; r < M; ++r) {
    store(c + r * c_stride, acc[r][0]);
    store(c + r * c_stride + kLanes, acc[r][1]);
  }
}

/// Calls f(std::integral_constant) with the number of rows, 1..kGroupRows, as a compile-time constant.
template <class F>
ATTNBENCH_INLINE void with_rows(int rows, F&& f) {
  switch (rows) {
    case 6:
      f.template operator()<6>();
      break;
    case 5:
      f.template operator()<5>();
      break;
    case 4:
      f.template operator()<4>();
      break;
    case 3:
      f.template operator()<3>();
      break;
    case 2:
      f.template operator()<2>();
      break;
    case 1:
      f.template operator()<1>();
      break;
    default:
      break;
  }
}

}  // namespace attnbench::cpu
