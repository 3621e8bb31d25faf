// Outputs that a launch returned in memory of its own (kReturnsOutputs), brought to where they belong.
// harness/device/cuda/fill.cu does the same on the GPU.
#pragma once

#include <cstdint>

#include "harness/values/signs.h"

namespace attnbench {

/// A tensor (tokens, heads, channels) at two places. Strides are in elements.
struct ReturnedTensor {
  struct Place {
    void* data;
    int64_t token, head, channel;
  };
  Place from, to;
  DType dtype = DType::kFp32;
  int64_t tokens = 0;
  int32_t heads = 0, channels = 0;
  float factor = 1;  ///< float32 only: multiplies each element
};

ATTNBENCH_HD inline int64_t returned_elements(const ReturnedTensor& t) {
  return t.tokens * t.heads * t.channels;
}
/// Offset of element `e`, counted with channels first, then heads.
ATTNBENCH_HD inline int64_t returned_offset(const ReturnedTensor& t, const ReturnedTensor::Place& p,
                                            int64_t e) {
  const int64_t row = e / t.channels;
  return row / t.heads * p.token + row % t.heads * p.head + e % t.channels * p.channel;
}
template <class Bits>
ATTNBENCH_HD void copy_returned(const ReturnedTensor& t, int64_t e) {
  const Bits bits = static_cast<const Bits*>(t.from.data)[returned_offset(t, t.from, e)];
  Bits* to = static_cast<Bits*>(t.to.data) + returned_offset(t, t.to, e);
  if constexpr (sizeof(Bits) == sizeof(float)) {
    if (t.factor != 1) {
      float x;
      std::memcpy(&x, &bits, sizeof x);
      x *= t.factor;
      std::memcpy(to, &x, sizeof x);
      return;
    }
  }
  *to = bits;
}
/// A later launch that returns the same memory without computing then returns poison.
template <class Bits>
ATTNBENCH_HD void poison_returned(const ReturnedTensor& t, int64_t e) {
  static_cast<Bits*>(t.from.data)[returned_offset(t, t.from, e)] = static_cast<Bits>(poison_bits(t.dtype));
}

/// Copies all elements, and then fills the place that they came from with poison, if it is another one.
void take_returned_host(const ReturnedTensor& t);

}  // namespace attnbench
