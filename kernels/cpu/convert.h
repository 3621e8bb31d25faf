// Elements of bf16, fp16, fp32, e4m3, e5m2 and int8 rows as vectors of float. The conversions are those of the
// contract, bit for bit, vectorised.
//
// Each element type has two readers. `load8` reads eight elements in memory order. `load_pair` reads kPanel
// elements as two vectors {a, b} in the order that is cheapest: element i of memory goes to slot
// pair_slot(i). A dot product is the same in any order that both sides share. Accumulators return to memory
// order once, at the end. Two 16-bit neighbours share a 32-bit word; shifts and masks get both without
// shuffles.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "kernels/contract/attention_params.h"
#include "kernels/contract/dtype.h"
#include "kernels/cpu/simd.h"

namespace attnbench::cpu {

struct VecPair {
  Vec a;
  Vec b;
};

typedef uint16_t Half8 __attribute__((vector_size(16)));
typedef int16_t Short8 __attribute__((vector_size(16)));
typedef int16_t ShortVec __attribute__((vector_size(2 * kLanes)));
typedef uint8_t Byte16 __attribute__((vector_size(16)));
typedef int8_t Char8 __attribute__((vector_size(8)));
typedef uint64_t Long2 __attribute__((vector_size(16)));
typedef uint32_t BitVec8 __attribute__((vector_size(32)));
typedef int32_t IntVec8 __attribute__((vector_size(32)));

/// Orders the elements of the lower and of the upper half of each word. The machine's byte order decides
/// which comes first in memory.
ATTNBENCH_INLINE VecPair in_memory_order(Vec lower, Vec upper) {
  if constexpr (std::endian::native == std::endian::little) return {lower, upper};
  return {upper, lower};
}

/// Slot of element i in the order: even elements, then odd elements.
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

  /// fp16 in the upper half of 32-bit lanes; the lower half is junk. An arithmetic shift puts exponent and
  /// fraction in place and keeps the sign. The rest is as in contract/dtype.h: one exact product corrects the
  /// exponent's bias. It leaves infinity and NaN at 2^16 and above, and these get an exponent of ones.
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

/// e4m3 numbers as stored, without their descale.
struct E4m3 {
  using Storage = uint8_t;
  static constexpr int pair_slot(int i) { return even_odd_slot(i); }
  static float to_float(Storage x) { return e4m3_to_float(x); }

  /// e4m3 shifted to bits 20..27 of 32-bit lanes and extended by its sign; the bits below are junk. After the
  /// exponent's bias is corrected, normals x >= 2^-6 are right. Subnormals f 2^-9 read as x = 2^-7 + f 2^-10,
  /// for which 2 x - 2^-6 is right. In both cases the right value is the lesser of x and 2 x - 2^-6. No
  /// operand is a subnormal float, which processors multiply slowly. A NaN has become 480 by then; an
  /// addition turns it into the contract's NaN.
  template <class F, class U, class I>
  static ATTNBENCH_INLINE F from_extended(I extended) {
    const U bits = bit_cast_vec<U>(extended);
    const U magnitude = bits & 0x07f00000u;
    const F x = bit_cast_vec<F>(magnitude + 0x3c000000u);
    const F below = x * 2.0f - 0x1p-6f;
    const U finite = bit_cast_vec<U>(below < x ? below : x);
    const U special = bit_cast_vec<U>(magnitude == 0x07f00000u);
    return bit_cast_vec<F>((finite + (special & (0x7fc00000u - 0x43f00000u))) | (bits & 0x80000000u));
  }
  /// Each byte is doubled to a 16-bit word, whose upper half is the same in any byte order. Compilers widen
  /// words well, but bytes one by one.
  static ATTNBENCH_INLINE Vec8 load8(const Storage* p) {
    uint64_t bytes;
    std::memcpy(&bytes, p, sizeof bytes);
    const Byte16 x = bit_cast_vec<Byte16>(Long2{bytes, 0});
    const Byte16 doubled = __builtin_shufflevector(x, x, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    const IntVec8 words = __builtin_convertvector(bit_cast_vec<Short8>(doubled), IntVec8);
    return from_extended<Vec8, BitVec8, IntVec8>(words << 12);
  }
  static ATTNBENCH_INLINE VecPair load_pair(const Storage* p) {
    const IntVec words = __builtin_convertvector(load<ShortVec>(p), IntVec);
    return in_memory_order(from_extended<Vec, BitVec, IntVec>(words << 24 >> 4),
                           from_extended<Vec, BitVec, IntVec>(words << 12));
  }
};

/// e5m2 numbers as stored, without their descale: the upper bytes of fp16 numbers.
struct E5m2 {
  using Storage = uint8_t;
  static constexpr int pair_slot(int i) { return even_odd_slot(i); }
  static float to_float(Storage x) { return e5m2_to_float(x); }

  /// Bits 24..31 of each lane hold a number; the bits below are junk.
  template <class F, class U, class I>
  static ATTNBENCH_INLINE F from_upper_byte(U upper) {
    return Fp16::from_upper_half<F, U, I>(upper & 0xff000000u);
  }
  static ATTNBENCH_INLINE Vec8 load8(const Storage* p) {  // doubles bytes as E4m3 does
    uint64_t bytes;
    std::memcpy(&bytes, p, sizeof bytes);
    const Byte16 x = bit_cast_vec<Byte16>(Long2{bytes, 0});
    const Byte16 doubled = __builtin_shufflevector(x, x, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return from_upper_byte<Vec8, BitVec8, IntVec8>(
        __builtin_convertvector(bit_cast_vec<Half8>(doubled), BitVec8) << 16);
  }
  static ATTNBENCH_INLINE VecPair load_pair(const Storage* p) {
    const BitVec words = bit_cast_vec<BitVec>(__builtin_convertvector(load<ShortVec>(p), IntVec));
    return in_memory_order(from_upper_byte<Vec, BitVec, IntVec>(words << 24),
                           from_upper_byte<Vec, BitVec, IntVec>(words << 16));
  }
};

/// int8 numbers as stored, without their descale.
struct Int8 {
  using Storage = int8_t;
  static constexpr int pair_slot(int i) { return even_odd_slot(i); }
  static float to_float(Storage x) { return static_cast<float>(x); }
  static ATTNBENCH_INLINE Vec8 load8(const Storage* p) {
    return __builtin_convertvector(__builtin_convertvector(load<Char8>(p), IntVec8), Vec8);
  }
  static ATTNBENCH_INLINE VecPair load_pair(const Storage* p) {
    const IntVec words = __builtin_convertvector(load<ShortVec>(p), IntVec);
    return in_memory_order(__builtin_convertvector(words << 24 >> 24, Vec),
                           __builtin_convertvector(words >> 8, Vec));
  }
};

/// Calls f.operator()<K, V>() with the types of K's and V's elements as the products read them: those of the launch, or
/// floats of ScaledRows.
template <class F>
ATTNBENCH_INLINE void with_types(const AttentionParams& p, F&& f) {
  const auto with_float = [](DType t, auto&& g) {
    if (t == DType::kBf16) return g.template operator()<Bf16>();
    if (t == DType::kFp16) return g.template operator()<Fp16>();
    return g.template operator()<Fp32>();
  };
  if (p.features & kBlockScales) {
    f.template operator()<Fp32, Fp32>();
  } else if (p.dtype_k == DType::kE4m3) {
    f.template operator()<E4m3, E4m3>();
  } else if (p.dtype_k == DType::kE5m2) {
    f.template operator()<E5m2, E5m2>();
  } else if (p.dtype_v == DType::kInt8) {
    f.template operator()<Int8, Int8>();
  } else if (p.dtype_k == DType::kInt8) {
    with_float(p.dtype_v, [&]<class V>() { f.template operator()<Int8, V>(); });
  } else {
    with_float(p.dtype_k, [&]<class T>() { f.template operator()<T, T>(); });
  }
}

/// The first `count` < 8 elements, then zeros. Reads nothing beyond `count`.
template <class T>
inline Vec8 load8_part(const typename T::Storage* p, int count) {
  typename T::Storage block[8] = {};
  std::memcpy(block, p, static_cast<std::size_t>(count) * sizeof block[0]);
  return T::load8(block);
}

/// The first `count` < kPanel elements, then zeros, in pair order. Reads nothing beyond `count`.
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
    case DType::kE4m3: {
      uint8_t* out = static_cast<uint8_t*>(base) + index;
      for (int i = 0; i < n; ++i) out[i] = float_to_e4m3(row[i]);
      break;
    }
    default:
      std::memcpy(static_cast<float*>(base) + index, row, static_cast<std::size_t>(n) * sizeof *row);
  }
}

}  // namespace attnbench::cpu
