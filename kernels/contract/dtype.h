// Element types of tensors, and their exact conversions from and to float.
//
// Conversions use integer arithmetic, so host and GPU give the same bits. Rounding is to nearest, ties to
// even, as in IEEE 754-2019, section 4.3.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/contract/hd.h"

namespace attnbench {

/// An element of e2m1x2 holds two numbers of 4 bits: channels 2 i (low half of the byte) and 2 i + 1. Sizes and
/// strides count elements, so a row of D channels has D / 2 of them, as torch.float4_e2m1fn_x2 has it.
enum class DType : int32_t { kBf16 = 0, kFp16 = 1, kFp32 = 2, kE4m3 = 3, kInt8 = 4, kE5m2 = 5, kE2m1x2 = 6 };

/// Numbers (channels) in one element.
ATTNBENCH_HD constexpr int32_t numbers_per_element(DType t) { return t == DType::kE2m1x2 ? 2 : 1; }

/// Bytes of one element.
ATTNBENCH_HD constexpr std::size_t dtype_size(DType t) {
  return t == DType::kFp32 ? 4 : (t == DType::kBf16 || t == DType::kFp16) ? 2 : 1;
}

/// Names used in YAML, ids and reports.
inline constexpr const char* kDTypeNames[] = {"bf16", "fp16", "fp32", "e4m3", "int8", "e5m2", "e2m1x2"};
constexpr const char* dtype_name(DType t) {
  const auto i = static_cast<std::size_t>(t);
  return i < sizeof(kDTypeNames) / sizeof(*kDTypeNames) ? kDTypeNames[i] : "?";
}

/// Whether `t` is a floating type of 8 bits. Tensors of both have descales of the same kinds.
ATTNBENCH_HD constexpr bool is_fp8(DType t) { return t == DType::kE4m3 || t == DType::kE5m2; }

/// The largest number of a quantised type, at which conversions to it saturate.
ATTNBENCH_HD constexpr float largest_number(DType t) {
  return t == DType::kE4m3 ? 448.0f : t == DType::kE5m2 ? 57344.0f : t == DType::kE2m1x2 ? 6.0f : 127.0f;
}

/// Unit roundoff u = 2^-p of a floating type; p counts the hidden bit (bf16: 8, fp16: 11, fp32: 24, e4m3: 4,
/// e5m2: 3, e2m1: 2). Returns 0 for int8, whose error is an absolute step instead.
constexpr double unit_roundoff(DType t) {
  switch (t) {
    case DType::kBf16:
      return 1.0 / 256;
    case DType::kFp16:
      return 1.0 / 2048;
    case DType::kFp32:
      return 1.0 / 16777216;
    case DType::kE4m3:
      return 1.0 / 16;
    case DType::kE5m2:
      return 1.0 / 8;
    case DType::kE2m1x2:
      return 1.0 / 4;
    case DType::kInt8:
      return 0.0;
  }
  return 0.0;
}

ATTNBENCH_HD inline uint32_t float_bits(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}

ATTNBENCH_HD inline float bits_float(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

ATTNBENCH_HD inline float bf16_to_float(uint16_t h) { return bits_float(uint32_t{h} << 16); }

/// Rounds to bf16. NaN stays NaN (quiet); overflow gives infinity.
ATTNBENCH_HD inline uint16_t float_to_bf16(float x) {
  const uint32_t u = float_bits(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x0040u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/// Exact, subnormals included. The only branches are two selects, so loops over it vectorise.
ATTNBENCH_HD inline float fp16_to_float(uint16_t h) {
  const uint32_t sign = (h & 0x8000u) << 16;
  const uint32_t magnitude = h & 0x7fffu;
  // An exponent of bias 15, read with bias 127, is too small by 112. One exact multiplication corrects normal
  // and subnormal numbers.
  const float scaled = bits_float(magnitude << 13) * bits_float(0x77800000u);  // * 2^112
  const uint32_t finite = float_bits(scaled);
  const uint32_t special = (magnitude << 13) | 0x7f800000u;  // infinity and NaN keep their fraction
  return bits_float(sign | (magnitude >= 0x7c00u ? special : finite));
}

/// Rounds to fp16, subnormals included. Overflow gives infinity; NaN stays NaN (quiet).
ATTNBENCH_HD inline uint16_t float_to_fp16(float x) {
  const uint32_t u = float_bits(x);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
  if (a >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // rounds to 65520 or more
  if (a >= 0x38800000u) {                                              // normal in fp16
    const uint32_t r = a - 0x38000000u;
    return static_cast<uint16_t>(sign | ((r + 0xfffu + ((r >> 13) & 1u)) >> 13));
  }
  if (a < 0x33000000u) return static_cast<uint16_t>(sign);  // less than half the least subnormal, 2^-25
  const uint32_t exponent = a >> 23;
  const uint32_t significand = (a & 0x7fffffu) | 0x800000u;
  const uint32_t shift = 126u - exponent;  // 14..24: drops to units of 2^-24
  const uint32_t kept = significand >> shift;
  const uint32_t rest = significand & ((1u << shift) - 1u);
  const uint32_t half = 1u << (shift - 1u);
  return static_cast<uint16_t>(sign | (kept + ((rest > half || (rest == half && (kept & 1u))) ? 1u : 0u)));
}

/// e4m3 as in the OCP 8-bit floating point specification (OFP8), revision 1.0: no infinities, NaN is
/// S.1111.111, the largest number is 448, subnormals have steps of 2^-9. The conversion is exact.
ATTNBENCH_HD inline float e4m3_to_float(uint8_t x) {
  const uint32_t sign = static_cast<uint32_t>(x & 0x80u) << 24;
  const uint32_t magnitude = x & 0x7fu;
  const float scaled = bits_float(magnitude << 20) * bits_float(0x7b800000u);  // * 2^120, as in fp16_to_float
  return bits_float(sign | (magnitude == 0x7fu ? 0x7fc00000u : float_bits(scaled)));
}

/// Rounds to e4m3, saturating at 448 as cvt.rn.satfinite does. NaN stays NaN.
ATTNBENCH_HD inline uint8_t float_to_e4m3(float x) {
  const uint32_t u = float_bits(x);
  const uint32_t sign = (u >> 24) & 0x80u;
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  if (a >= 0x43e00000u) return static_cast<uint8_t>(sign | 0x7eu);  // 448 and more
  if (a >= 0x3c800000u) {                                           // 2^-6: normal in e4m3
    const uint32_t r = a - 0x3c000000u;
    return static_cast<uint8_t>(sign | ((r + 0x7ffffu + ((r >> 20) & 1u)) >> 20));
  }
  if (a < 0x3a800000u) return static_cast<uint8_t>(sign);  // less than half the least subnormal, 2^-10
  const uint32_t significand = (a & 0x7fffffu) | 0x800000u;
  const uint32_t shift = 141u - (a >> 23);  // 21..24: drops to units of 2^-9
  const uint32_t kept = significand >> shift;
  const uint32_t rest = significand & ((1u << shift) - 1u);
  const uint32_t half = 1u << (shift - 1u);
  return static_cast<uint8_t>(sign | (kept + ((rest > half || (rest == half && (kept & 1u))) ? 1u : 0u)));
}

/// e5m2 of the same specification: the upper byte of an fp16 number, with its infinities and NaNs. Exact.
ATTNBENCH_HD inline float e5m2_to_float(uint8_t x) { return fp16_to_float(static_cast<uint16_t>(x << 8)); }

/// Rounds to e5m2, saturating at 57344 as cvt.rn.satfinite does; NaN stays NaN. Subnormals have steps of 2^-16.
ATTNBENCH_HD inline uint8_t float_to_e5m2(float x) {
  const uint32_t u = float_bits(x);
  const uint32_t sign = (u >> 24) & 0x80u;
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  if (a >= 0x47600000u) return static_cast<uint8_t>(sign | 0x7bu);  // 57344 and more
  if (a >= 0x38800000u) {                                           // 2^-14: normal in e5m2
    const uint32_t r = a - 0x38000000u;
    return static_cast<uint8_t>(sign | ((r + 0xfffffu + ((r >> 21) & 1u)) >> 21));
  }
  if (a < 0x37000000u) return static_cast<uint8_t>(sign);  // less than half the least subnormal, 2^-17
  const uint32_t significand = (a & 0x7fffffu) | 0x800000u;
  const uint32_t shift = 134u - (a >> 23);  // 22..24: drops to units of 2^-16
  const uint32_t kept = significand >> shift;
  const uint32_t rest = significand & ((1u << shift) - 1u);
  const uint32_t half = 1u << (shift - 1u);
  return static_cast<uint8_t>(sign | (kept + ((rest > half || (rest == half && (kept & 1u))) ? 1u : 0u)));
}

/// e2m1 of the OCP microscaling formats (MX), version 1.0: a sign and 0, 0.5, 1, 1.5, 2, 3, 4 or 6. Reads the
/// low 4 bits of `x`. Exact.
ATTNBENCH_HD inline float e2m1_to_float(uint8_t x) {
  const uint32_t sign = static_cast<uint32_t>(x & 0x8u) << 28;
  const float scaled = bits_float(uint32_t{x & 0x7u} << 22) * bits_float(0x7e800000u);  // * 2^126
  return bits_float(sign | float_bits(scaled));
}

/// Rounds to e2m1, saturating at 6 as cvt.rn.satfinite does; the result is in the low 4 bits. e2m1 has no NaN:
/// NaN becomes 6.
ATTNBENCH_HD inline uint8_t float_to_e2m1(float x) {
  const uint32_t u = float_bits(x);
  const uint32_t sign = (u >> 28) & 0x8u;
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x40a00000u) return static_cast<uint8_t>(sign | 0x7u);  // more than 5, NaN
  if (a >= 0x3f800000u) {                                         // 1: normal in e2m1
    const uint32_t r = a - 0x3f000000u;
    return static_cast<uint8_t>(sign | ((r + 0x1fffffu + ((r >> 22) & 1u)) >> 22));
  }
  // Steps of 0.5; halves of a step go to the even number: 0.25 to 0, 0.75 to 1.
  return static_cast<uint8_t>(sign | (a > 0x3e800000u ? (a >= 0x3f400000u ? 2u : 1u) : 0u));
}

/// Rounds to int8, to nearest, ties to even. Saturates at -128 and 127, as cvt.rni.sat.s8.f32 does. NaN
/// becomes 0.
ATTNBENCH_HD inline int8_t float_to_int8(float x) {
  if (!(x > -128.0f)) return x <= -128.0f ? int8_t{-128} : int8_t{0};
  if (x > 127.0f) return 127;
  // Adding 1.5 * 2^23 leaves no bits for a fraction, so the addition rounds to an integer.
  return static_cast<int8_t>(static_cast<int32_t>(float_bits(x + 12582912.0f)) - 0x4b400000);
}

/// Reads element `index` of an array as float; of e2m1x2, number `index`.
ATTNBENCH_HD inline float load_float(DType t, const void* base, int64_t index) {
  switch (t) {
    case DType::kBf16:
      return bf16_to_float(static_cast<const uint16_t*>(base)[index]);
    case DType::kFp16:
      return fp16_to_float(static_cast<const uint16_t*>(base)[index]);
    case DType::kE4m3:
      return e4m3_to_float(static_cast<const uint8_t*>(base)[index]);
    case DType::kE5m2:
      return e5m2_to_float(static_cast<const uint8_t*>(base)[index]);
    case DType::kInt8:
      return static_cast<float>(static_cast<const int8_t*>(base)[index]);
    case DType::kE2m1x2:
      return e2m1_to_float(
          static_cast<uint8_t>(static_cast<const uint8_t*>(base)[index / 2] >> (index % 2 * 4)));
    default:
      return static_cast<const float*>(base)[index];
  }
}

/// Writes `x` to element `index` of an array, rounded to the array's type. In e2m1x2 `index` counts numbers, and
/// the byte is read and written back: two threads must not write one byte.
ATTNBENCH_HD inline void store_float(DType t, void* base, int64_t index, float x) {
  switch (t) {
    case DType::kBf16:
      static_cast<uint16_t*>(base)[index] = float_to_bf16(x);
      break;
    case DType::kFp16:
      static_cast<uint16_t*>(base)[index] = float_to_fp16(x);
      break;
    case DType::kE4m3:
      static_cast<uint8_t*>(base)[index] = float_to_e4m3(x);
      break;
    case DType::kE5m2:
      static_cast<uint8_t*>(base)[index] = float_to_e5m2(x);
      break;
    case DType::kInt8:
      static_cast<int8_t*>(base)[index] = float_to_int8(x);
      break;
    case DType::kE2m1x2: {
      uint8_t& pair = static_cast<uint8_t*>(base)[index / 2];
      const int shift = static_cast<int>(index % 2) * 4;
      pair = static_cast<uint8_t>((pair & (0xf0u >> shift)) | uint32_t{float_to_e2m1(x)} << shift);
      break;
    }
    default:
      static_cast<float*>(base)[index] = x;
      break;
  }
}

/// `x` rounded to type `t` and converted back to float.
ATTNBENCH_HD inline float round_to(DType t, float x) {
  switch (t) {
    case DType::kBf16:
      return bf16_to_float(float_to_bf16(x));
    case DType::kFp16:
      return fp16_to_float(float_to_fp16(x));
    case DType::kE4m3:
      return e4m3_to_float(float_to_e4m3(x));
    case DType::kE5m2:
      return e5m2_to_float(float_to_e5m2(x));
    case DType::kInt8:
      return static_cast<float>(float_to_int8(x));
    case DType::kE2m1x2:
      return e2m1_to_float(float_to_e2m1(x));
    default:
      return x;
  }
}

}  // namespace attnbench
