#include "harness/values/values.h"

#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace attnbench {
namespace {

constexpr uint32_t kLanes = 8;                        ///< counters that go through Philox together
constexpr int kBlock = 4 * static_cast<int>(kLanes);  ///< values from one group of counters

/// The words of philox4x32(quad0 + lane, c1, c2, c3) for kLanes lanes: word w of lane i to bits[4 * i + w].
#if defined(__AVX2__)
// Each word of a counter is in the low half of a 64-bit lane. vpmuludq ignores the high half, so the low word
// of a product needs no mask and the high word needs one shift. Intrinsics are used because g++ does not
// vectorise the 32x32 -> 64 multiplication.
void philox_lanes(uint32_t quad0, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t seed, uint32_t* bits) {
  const __m256i m0 = _mm256_set1_epi64x(0xD2511F53u);
  const __m256i m1 = _mm256_set1_epi64x(0xCD9E8D57u);
  __m256i x0[2], x1[2], x2[2], x3[2];
  for (int v = 0; v < 2; ++v) {
    x0[v] = _mm256_add_epi64(_mm256_set1_epi64x(int64_t{quad0} + 4 * v), _mm256_set_epi64x(3, 2, 1, 0));
    x1[v] = _mm256_set1_epi64x(c1);
    x2[v] = _mm256_set1_epi64x(c2);
    x3[v] = _mm256_set1_epi64x(c3);
  }
  const __m256i weyl0 = _mm256_set1_epi32(static_cast<int>(0x9E3779B9u));
  const __m256i weyl1 = _mm256_set1_epi32(static_cast<int>(0xBB67AE85u));
  __m256i key0 = _mm256_set1_epi32(static_cast<int>(seed));
  __m256i key1 = _mm256_set1_epi32(static_cast<int>(seed >> 32));
  for (int round = 0; round < 10; ++round) {
    for (int v = 0; v < 2; ++v) {
      const __m256i p0 = _mm256_mul_epu32(x0[v], m0);
      const __m256i p1 = _mm256_mul_epu32(x2[v], m1);
      x0[v] = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(x1[v], key0));
      x2[v] = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(x3[v], key1));
      x1[v] = p1;
      x3[v] = p0;
    }
    key0 = _mm256_add_epi32(key0, weyl0);
    key1 = _mm256_add_epi32(key1, weyl1);
  }
  for (int v = 0; v < 2; ++v) {
    const __m256i w01 = _mm256_blend_epi32(x0[v], _mm256_slli_epi64(x1[v], 32), 0b10101010);
    const __m256i w23 = _mm256_blend_epi32(x2[v], _mm256_slli_epi64(x3[v], 32), 0b10101010);
    const __m256i even = _mm256_unpacklo_epi64(w01, w23);  // counters 0 and 2
    const __m256i odd = _mm256_unpackhi_epi64(w01, w23);   // counters 1 and 3
    auto* out = reinterpret_cast<__m256i*>(bits) + 2 * v;
    _mm256_storeu_si256(out, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }
}
#else
void philox_lanes(uint32_t quad0, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t seed, uint32_t* bits) {
  for (uint32_t i = 0; i < kLanes; ++i) {
    const Philox4 r = philox4x32(quad0 + i, c1, c2, c3, seed);
    std::memcpy(bits + 4 * i, r.x, sizeof r.x);
  }
}
#endif

}  // namespace

void value_row(ValueSpec spec, Tensor tensor, uint32_t seq, uint32_t pos, uint32_t head, int head_dim,
               float* out) {
  // These two depend on the channel and are applied at the end. All other profiles scale a row evenly.
  const bool huge = spec.profile == Profile::kHuge && !is_value(tensor);
  const bool by_channel = spec.profile == Profile::kOutlier || huge;
  const float scale = by_channel ? 1.0f : profile_scale(spec.profile, tensor, pos, 0);
  const uint32_t tag = static_cast<uint32_t>(tensor) << 24;
  uint32_t bits[kBlock];
  for (int c = 0; c < head_dim; c += kBlock) {
    philox_lanes(tag | static_cast<uint32_t>(c / 4), head, pos, seq, spec.seed, bits);
    const int n = head_dim - c;
    if (n >= kBlock) {  // a fixed count, for vector code
      for (int i = 0; i < kBlock; ++i) out[c + i] = bell(bits[i]) * scale;
    } else {
      for (int i = 0; i < n; ++i) out[c + i] = bell(bits[i]) * scale;
    }
  }
  if (huge) {
    float fixed[kHugePeriod];
    for (uint32_t c = 0; c < kHugePeriod; ++c) fixed[c] = huge_value(tensor, seq, pos, head, c, 0.0f);
    const float random = profile_scale(spec.profile, tensor, pos, 0);
    for (uint32_t c = 0; c < static_cast<uint32_t>(head_dim); ++c) {
      out[c] = is_huge_random(c) ? out[c] * random : fixed[c % kHugePeriod];
    }
  } else if (is_largest_row(spec.profile, tensor, pos)) {
    for (int c = 0; c < head_dim; ++c) out[c] = out[c] < 0.0f ? -kCornersLargest : kCornersLargest;
  } else if (by_channel) {
    for (int c = 0; c < head_dim; ++c)
      out[c] *= profile_scale(spec.profile, tensor, pos, static_cast<uint32_t>(c));
  }
}

}  // namespace attnbench
