// Elements of bf16, fp16 and fp32 rows as vectors of float: the contract's conversions, bit for bit,
// vectorised.
//
// Each element type has two readers. `load8` reads eight elements in memory order. `load_pair` reads kPanel
// elements as two vectors, in the order that is cheapest: element i of memory is in slot pair_slot(i) of {a,
// b}. A dot product does not care, as long as both sides use one order, and accumulators are put back in
// order once, at their end. Two 16-bit neighbours share a 32-bit word, from which shifts and masks get both,
// without shuffles.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/contract/dtype.h"
#include "kernels/cpu/simd.h"

namespace attnbench::cpu {

struct VecPair {
  Vec a;
  Vec b;
};

typedef uint16_t Half8 __attribute__((vector_size(16)));
typedef uint32_t BitVec8 __attribute__((vector_size(32)));
typedef int32_t IntVec8 __attribute__((vector_size(32)));

/// The elements in the lower and in the upper half of each 32-bit word: which of them is the first in memory
/// depends on the machine.
ATTNBENCH_INLINE VecPair in_memory_order(Vec lower, Vec upper) {
  if constexpr (std::endian::native == std::endian::little) return {lower, upper};
  return {upper, lower};
}

/// Slot of element i where even elements come first, odd ones after.
constexpr int even_odd_slot(int i) { return i % 2 * kLanes + i / 2; }

struct Bf16 {
  using Storage = uint16_t;
  static constexpr int pair_slot(int i) { return even_odd_slot(i); }
  static float to_float(Storage x) { return bf16_to_float(x); }

  static ATTNBENCH_INLINE Vec8 load8(const Storage* p) {
    return bit_cast_vec<Vec8>(__builtin_convertvector(load<Half8>(p), BitVec8) << 16);
  }
  static ATTNBENCH_INLINE VecPair load_pair(const Storage* p) {
    const BitVec words = load<BitVec>(p);
    return in_memory_order(bit_cast_vec<Vec>(words << 16), bit_cast_vec<Vec>(words & 0xffff0000u));
  }
};

struct Fp16 {
  using Storage = uint16_t;
  static constexpr int pair_slot(int i) { return even_odd_slot(i); }
  static float to_float(Storage x) { return fp16_to_float(x); }

  /// fp16 in the upper half of 32-bit lanes, lower half junk. An arithmetic shift puts exponent and fraction
  /// in place and keeps the sign; then as in contract/dtype.h: one exact product mends the exponent's bias,
  /// and infinity and NaN, which it leaves at 2^16 and above, get their exponent of ones.
  template <class F, class U, class I>
  static ATTNBENCH_INLINE F from_upper_half(U upper) {
    const U bits = bit_cast_vec<U>(bit_cast_vec<I>(upper) >> 3) & 0x8fffe000u;
    const U finite = bit_cast_vec<U>(bit_cast_vec<F>(bits) * 0x1p112f);
    const U special = bit_cast_vec<U>((bits & 0x0f800000u) == 0x0f800000u);
    return bit_cast_vec<F>(finite | (special & 0x7f800000u));
  }
  static ATTNBENCH_INLINE Vec8 load8(const Storage* p) {
    return from_upper_half<Vec8, BitVec8, IntVec8>(__builtin_convertvector(load<Half8>(p), BitVec8) << 16);
  }
  static ATTNBENCH_INLINE VecPair load_pair(const Storage* p) {
    const BitVec words = load<BitVec>(p);
    return in_memory_order(from_upper_half<Vec, BitVec, IntVec>(words << 16),
                           from_upper_half<Vec, BitVec, IntVec>(words));
  }
};

struct Fp32 {
  using Storage = float;
  static constexpr int pair_slot(int i) { return i; }
  static float to_float(Storage x) { return x; }
  static ATTNBENCH_INLINE Vec8 load8(const Storage* p) { return load<Vec8>(p); }
  static ATTNBENCH_INLINE VecPair load_pair(const Storage* p) {
    return {load<Vec>(p), load<Vec>(p + kLanes)};
  }
};

/// The first `count` < 8 elements, then zeros; reads nothing beyond them.
template <class T>
inline Vec8 load8_part(const typename T::Storage* p, int count) {
  typename T::Storage block[8] = {};
  std::memcpy(block, p, static_cast<std::size_t>(count) * sizeof block[0]);
  return T::load8(block);
}

/// The first `count` < kPanel elements, then zeros, in pair order; reads nothing beyond them.
template <class T>
inline VecPair load_pair_part(const typename T::Storage* p, int count) {
  typename T::Storage block[kPanel] = {};
  std::memcpy(block, p, static_cast<std::size_t>(count) * sizeof block[0]);
  return T::load_pair(block);
}

/// Rounds n floats to `t` at element `index` of `base`, to nearest, ties to even.
inline void store_row(DType t, void* base, int64_t index, const float* row, int n) {
  switch (t) {
    case DType::kBf16: {
      uint16_t* out = static_cast<uint16_t*>(base) + index;
      for (int i = 0; i < n; ++i) out[i] = float_to_bf16(row[i]);
      break;
    }
    case DType::kFp16: {
      uint16_t* out = static_cast<uint16_t*>(base) + index;
      for (int i = 0; i < n; ++i) out[i] = float_to_fp16(row[i]);
      break;
    }
    default:
      std::memcpy(static_cast<float*>(base) + index, row, static_cast<std::size_t>(n) * sizeof *row);
  }
}

}  // namespace attnbench::cpu
