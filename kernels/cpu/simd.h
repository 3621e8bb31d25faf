// Short vectors of float by the vector extensions that GCC and Clang share. The same source compiles to AVX2,
// AVX-512, NEON or plain scalar code, without intrinsics.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__clang__)
#define ATTNBENCH_UNROLL _Pragma("clang loop unroll(full)")
#else
#define ATTNBENCH_UNROLL _Pragma("GCC unroll 16")
#endif
#define ATTNBENCH_INLINE inline __attribute__((always_inline))

// If registers are shorter than a vector, compilers warn that no convention exists for passing it by value.
// Here only inline functions of one file pass it.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace attnbench::cpu {

/// Floats in a vector: as many as one register holds, or two short registers. The twelve accumulators of the
/// tile GEMM then fill the 32 short registers of such machines.
#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#else
inline constexpr int kLanes = 8;
#endif

/// Columns of a GEMM panel, and channels per step of the few-row path.
inline constexpr int kPanel = 2 * kLanes;

typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef int32_t IntVec __attribute__((vector_size(4 * kLanes)));
typedef uint32_t BitVec __attribute__((vector_size(4 * kLanes)));
typedef float Vec8 __attribute__((vector_size(32)));

constexpr int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

/// Reads a vector from any address, aligned or not.
template <class V = Vec>
ATTNBENCH_INLINE V load(const void* p) {
  V v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

template <class V>
ATTNBENCH_INLINE void store(void* p, V v) {
  std::memcpy(p, &v, sizeof v);
}

/// All lanes x. Subtracting zero keeps every x unchanged, -0 included.
ATTNBENCH_INLINE Vec splat(float x) { return x - Vec{}; }

template <class To, class From>
ATTNBENCH_INLINE To bit_cast_vec(From v) {
  static_assert(sizeof(To) == sizeof(From));
  To out;
  std::memcpy(&out, &v, sizeof out);
  return out;
}

/// Hints that v, which several products use, should be loaded once. GCC prefers to repeat the load as a
/// memory operand of each FMA, and the load ports then limit the loop. Changes no value; does nothing on
/// other compilers and machines.
ATTNBENCH_INLINE void keep_in_register([[maybe_unused]] Vec& v) {
#if defined(__x86_64__) && defined(__AVX__) && !defined(__clang__)
  __asm__("" : "+v"(v));
#endif
}

/// Lane-wise max. A NaN in `a` is ignored, so NaN scores reach the exponential and not the maximum.
ATTNBENCH_INLINE Vec max_vec(Vec a, Vec b) { return a > b ? a : b; }

// Sums and maxima over lanes, always in the same order: halves, quarters, eighths.
ATTNBENCH_INLINE Vec8 fold_to_8_sum(Vec v) {
#if defined(__AVX512F__)
  return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
         __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#else
  return v;
#endif
}

ATTNBENCH_INLINE float sum_lanes(Vec v) {
  const Vec8 a = fold_to_8_sum(v);
  const Vec8 b = a + __builtin_shufflevector(a, a, 4, 5, 6, 7, 0, 1, 2, 3);
  const Vec8 c = b + __builtin_shufflevector(b, b, 2, 3, 0, 1, 6, 7, 4, 5);
  return c[0] + c[1];
}

ATTNBENCH_INLINE float max_lanes(Vec v) {
#if defined(__AVX512F__)
  const Vec8 lo = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
  const Vec8 hi = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  const Vec8 a = lo > hi ? lo : hi;
#else
  const Vec8 a = v;
#endif
  const Vec8 a4 = __builtin_shufflevector(a, a, 4, 5, 6, 7, 0, 1, 2, 3);
  const Vec8 b = a > a4 ? a : a4;
  const Vec8 b2 = __builtin_shufflevector(b, b, 2, 3, 0, 1, 6, 7, 4, 5);
  const Vec8 c = b > b2 ? b : b2;
  return c[0] > c[1] ? c[0] : c[1];
}

/// Sums of eight vectors at once: lane i of the result is the sum of the lanes of v[i].
ATTNBENCH_INLINE Vec8 sum_lanes_of_8(const Vec (&v)[8]) {
  // Two additions of neighbours within halves of 4 lanes, then the sum of the two halves.
  const auto add_neighbours = [](Vec8 x, Vec8 y) {
    return __builtin_shufflevector(x, y, 0, 2, 8, 10, 4, 6, 12, 14) +
           __builtin_shufflevector(x, y, 1, 3, 9, 11, 5, 7, 13, 15);
  };
  Vec8 b[2];
  ATTNBENCH_UNROLL
  for (int i = 0; i < 2; ++i) {
    b[i] = add_neighbours(add_neighbours(fold_to_8_sum(v[4 * i]), fold_to_8_sum(v[4 * i + 1])),
                          add_neighbours(fold_to_8_sum(v[4 * i + 2]), fold_to_8_sum(v[4 * i + 3])));
  }
  return __builtin_shufflevector(b[0], b[1], 0, 1, 2, 3, 8, 9, 10, 11) +
         __builtin_shufflevector(b[0], b[1], 4, 5, 6, 7, 12, 13, 14, 15);
}

/// Transposes an 8 x 8 block held as eight rows.
ATTNBENCH_INLINE void transpose_8x8(Vec8 (&r)[8]) {
  Vec8 a[8];
  ATTNBENCH_UNROLL
  for (int i = 0; i < 8; i += 2) {
    a[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    a[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  Vec8 b[8];
  ATTNBENCH_UNROLL
  for (int i = 0; i < 8; i += 4) {
    b[i] = __builtin_shufflevector(a[i], a[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
    b[i + 1] = __builtin_shufflevector(a[i], a[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    b[i + 2] = __builtin_shufflevector(a[i + 1], a[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
    b[i + 3] = __builtin_shufflevector(a[i + 1], a[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  ATTNBENCH_UNROLL
  for (int i = 0; i < 4; ++i) {
    r[i] = __builtin_shufflevector(b[i], b[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    r[i + 4] = __builtin_shufflevector(b[i], b[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

}  // namespace attnbench::cpu
