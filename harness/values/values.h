// Every input value is a pure function of its logical coordinate (seed, tensor, sequence, position, head,
// channel), never of its place in memory. Therefore the GPU fills tens of GiB without a host copy, the
// reference recomputes only what it needs, and two physical layouts of one case hold the same values.
#pragma once

#include <cstdint>

#include "kernels/contract/dtype.h"
#include "kernels/contract/philox.h"

namespace attnbench {

enum class Tensor : uint32_t {
  kQ = 0,
  kK = 1,
  kV = 2,
  kNewK = 3,
  kNewV = 4,
  kPartialO = 8,
  kDOut = 9,
  kQv = 14
};

/// Kind of input data. It decides which faults can be seen.
///   normal   standard deviation 1: softmax spreads over all keys
///   peaked   q times 8: a few keys carry the weight
///   outlier  one channel in 32 of q and k, and one position in 64 of v, is 8 times larger
///   large    q times 16, k times 8, v times 256: logits of some hundreds, outputs of some hundreds; dO as in
///            normal, so that gradients stay within fp16; qv times 1/2, so that qv.v is like q.k
///   huge     rows of logits near -1e5, near 1e5, of both signs and near 0: huge_value()
///   corners  rows of k and v in turns: times 2^-16 (subnormal in fp16; kernels may flush those of bf16 and fp32), 0, all
///            +-448 (the largest number of e4m3, and with the factor of int8 of int8), times 64; q divided by 64
enum class Profile : uint32_t { kNormal = 0, kPeaked = 1, kOutlier = 2, kLarge = 3, kHuge = 4, kCorners = 5 };

inline constexpr const char* kProfileNames[] = {"normal", "peaked", "outlier", "large", "huge", "corners"};
constexpr const char* profile_name(Profile p) { return kProfileNames[static_cast<uint32_t>(p)]; }

struct ValueSpec {
  uint64_t seed = 1;
  Profile profile = Profile::kNormal;
};

/// Turns 32 random bits into a bell-shaped value: the centred sum of two 11-bit uniforms and one 10-bit
/// uniform that is doubled. Mean 0, standard deviation about 1, within (-3, 3), a multiple of 2^-11, exact in
/// float.
ATTNBENCH_HD inline float bell(uint32_t r) {
  const int32_t sum = static_cast<int32_t>((r & 0x7ffu) + ((r >> 11) & 0x7ffu) + ((r >> 22) << 1));
  return static_cast<float>(2 * sum - 6140) * (1.0f / 2048.0f);
}

/// Whether the tensor has a row for each query.
ATTNBENCH_HD inline bool is_query(Tensor tensor) { return tensor == Tensor::kQ || tensor == Tensor::kQv; }

/// Largest magnitudes of profile huge: powers of two that bf16, fp16 and e4m3 hold exactly.
inline constexpr float kHugeQ = 256.0f;
inline constexpr float kHugeK = 64.0f;

inline constexpr float kCornersLargest = 448.0f;
/// Profile corners: whether a row of k or v holds the largest numbers.
ATTNBENCH_HD inline bool is_largest_row(Profile profile, Tensor tensor, uint32_t pos) {
  return profile == Profile::kCorners && tensor != Tensor::kQ && pos % 4u == 2u;
}

ATTNBENCH_HD inline bool is_value(Tensor tensor) {
  return tensor == Tensor::kV || tensor == Tensor::kNewV || tensor == Tensor::kPartialO ||
         tensor == Tensor::kDOut || tensor == Tensor::kQv;
}

/// The power of two by which the profile multiplies the value of this coordinate; the product is exact. Under
/// huge it applies to v, and in q and k to the random channels.
ATTNBENCH_HD inline float profile_scale(Profile profile, Tensor tensor, uint32_t pos, uint32_t channel) {
  const bool is_q = tensor == Tensor::kQ;
  const bool is_v = is_value(tensor);
  switch (profile) {
    case Profile::kNormal:
      return 1.0f;
    case Profile::kPeaked:
      return is_q ? 8.0f : 1.0f;
    case Profile::kOutlier:
      if (is_v) return pos % 64u == 13u ? 8.0f : 1.0f;
      return channel % 32u == 5u ? 8.0f : 1.0f;
    case Profile::kLarge:
      if (tensor == Tensor::kDOut) return 1.0f;
      if (tensor == Tensor::kQv) return 0.5f;
      return is_v ? 256.0f : is_q ? 16.0f : 8.0f;
    case Profile::kHuge:
      return is_q ? 4.0f : 1.0f;
    case Profile::kCorners:
      if (is_query(tensor)) return 1.0f / 64.0f;
      return pos % 4u == 0u ? 1.0f / 65536.0f : pos % 4u == 1u ? 0.0f : pos % 4u == 2u ? 1.0f : 64.0f;
  }
  return 1.0f;
}

/// Profile huge: whether the channel of q or k is random. The other channels repeat after kHugePeriod.
ATTNBENCH_HD inline bool is_huge_random(uint32_t channel) { return channel % 4u == 3u; }
inline constexpr uint32_t kHugePeriod = 8;

/// An element of q or k under profile huge. One channel in four is random and gives the logits of a row a
/// deviation of 2; the others hold constants, which give all keys of a row the same huge logit:
///   channels 0 and 1 of 4   k = +-64 in a fixed pattern of signs u
///   channel 2 of 4          k = 64 u for one position in 64, -64 u for the others
/// In these channels a query holds 0, apart from some channels that depend on (seq + pos + head) % 4:
///   0  -256 u in channels 0 and 1: every logit is -8192 sqrt(D), below -5e4 from head_dim 40 on
///   1   256 u in channels 0 and 1: every logit is 8192 sqrt(D)
///   2   256 u in channel 2: logits are -4096 sqrt(D), but 4096 sqrt(D) for one key in 64
///   3   no channel: logits near 0
/// Logits are given for softmax_scale 1/sqrt(D). `random` is the element, if the channel is a random one.
ATTNBENCH_HD inline float huge_value(Tensor tensor, uint32_t seq, uint32_t pos, uint32_t head,
                                     uint32_t channel, float random) {
  if (is_huge_random(channel)) return random;
  const uint32_t part = channel % 4u;
  const float u = (0x5au >> channel % kHugePeriod & 1u) != 0 ? -1.0f : 1.0f;  // -1 in channels 1, 3, 4, 6
  if (tensor != Tensor::kQ) return part == 2u && pos % 64u != 37u ? -kHugeK * u : kHugeK * u;
  const uint32_t kind = (seq + pos + head) % 4u;
  if (kind == 3u || (part == 2u) != (kind == 2u)) return 0.0f;
  return kind == 0u ? -kHugeQ * u : kHugeQ * u;
}

/// The value of a coordinate before rounding, from its bell-shaped number.
ATTNBENCH_HD inline float value_of(Profile profile, Tensor tensor, uint32_t seq, uint32_t pos, uint32_t head,
                                   uint32_t channel, float bell) {
  const float x = bell * profile_scale(profile, tensor, pos, channel);
  if (is_largest_row(profile, tensor, pos)) return x < 0.0f ? -kCornersLargest : kCornersLargest;
  const bool huge = profile == Profile::kHuge && !is_value(tensor);
  return huge ? huge_value(tensor, seq, pos, head, channel, x) : x;
}

/// Factor of a value before it is rounded to int8: the profile's largest values become 120. The factor and
/// the product are exact. Profile corners: they become 127.
ATTNBENCH_HD inline float int8_factor(Profile profile, Tensor tensor) {
  if (profile == Profile::kCorners) return is_query(tensor) ? 40.0f * 64.0f : 127.0f / kCornersLargest;
  if (profile == Profile::kHuge && !is_value(tensor))
    return 120.0f / (tensor == Tensor::kQ ? kHugeQ : kHugeK);
  // Profile outlier enlarges position 13 of V and channel 5 of the other tensors.
  const bool is_v = tensor == Tensor::kV || tensor == Tensor::kNewV;
  return 40.0f / profile_scale(profile, tensor, is_v ? 13u : 0u, 5u);
}

/// The same for e2m1: the profile's largest values become 6, the largest number of the type.
ATTNBENCH_HD inline float e2m1_factor(Profile profile, Tensor tensor) {
  return int8_factor(profile, tensor) / 20.0f;
}

/// Factor of a value before it is rounded to `dtype`.
ATTNBENCH_HD inline float stored_factor(DType dtype, Profile profile, Tensor tensor) {
  return dtype == DType::kInt8     ? int8_factor(profile, tensor)
         : dtype == DType::kE2m1x2 ? e2m1_factor(profile, tensor)
                                   : 1.0f;
}

/// Scale of block `block` of the channels of a row of K or V: one of 24 numbers from 0.25 to 1.875 with four
/// significant bits. e4m3 holds it, and its product with a number in e4m3 or e2m1 fits in bf16: kernels that
/// multiply there are exact.
ATTNBENCH_HD inline float block_scale(ValueSpec spec, Tensor tensor, uint32_t seq, uint32_t pos,
                                      uint32_t head, uint32_t block) {
  const uint32_t stream = tensor == Tensor::kV ? 0x13u << 24 : 0x12u << 24;  // differ from every Tensor's
  const uint32_t r = philox4x32(block | stream, head, pos, seq, spec.seed).x[0];
  const uint32_t octave = (r & 0xffffu) * 3u >> 16;
  return static_cast<float>((8u + (r >> 29)) << octave) * (1.0f / 32.0f);
}

/// The four values of channels 4 * quad .. 4 * quad + 3, before rounding to the tensor's type.
ATTNBENCH_HD inline void values_of_quad(ValueSpec spec, Tensor tensor, uint32_t seq, uint32_t pos,
                                        uint32_t head, uint32_t quad, float out[4]) {
  const Philox4 r = philox4x32(quad | (static_cast<uint32_t>(tensor) << 24), head, pos, seq, spec.seed);
  for (uint32_t i = 0; i < 4; ++i) {
    out[i] = value_of(spec.profile, tensor, seq, pos, head, 4 * quad + i, bell(r.x[i]));
  }
}

/// The head_dim values of one row, before rounding. Host only; the loop is laid out to vectorise.
void value_row(ValueSpec spec, Tensor tensor, uint32_t seq, uint32_t pos, uint32_t head, int head_dim,
               float* out);

}  // namespace attnbench
