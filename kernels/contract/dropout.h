// Which attention weights dropout keeps. The answer depends only on the weight's coordinates, so kernels of
// any tiling and the reference agree on each weight. This is part of the definition of the op.
#pragma once

#include <cstdint>

#include "kernels/contract/hd.h"
#include "kernels/contract/philox.h"

namespace attnbench {

/// A weight is kept if its 32 random bits are at or above this threshold. 0 <= p < 1. Exact, because p is a
/// float.
ATTNBENCH_HD inline uint32_t dropout_threshold(float p) {
  return static_cast<uint32_t>(static_cast<double>(p) * 4294967296.0);
}

/// Factor of the weights that are kept.
ATTNBENCH_HD inline float dropout_scale(float p) { return 1.0f / (1.0f - p); }

/// Random bits of four neighbouring keys, 4 * key_quad .. 4 * key_quad + 3, for query head `head` and row `token`
/// of q, unused rows of kSequsedQ counted. They are Philox4x32-10 of the counter (key_quad, token, head, lower
/// half of offset). The key is (lower half of seed, upper half of seed xor upper half of offset).
ATTNBENCH_HD inline Philox4 dropout_bits(uint64_t seed, uint64_t offset, int32_t head, int64_t token,
                                         int32_t key_quad) {
  return philox4x32(static_cast<uint32_t>(key_quad), static_cast<uint32_t>(token),
                    static_cast<uint32_t>(head), static_cast<uint32_t>(offset),
                    seed ^ (offset & 0xffffffff00000000ull));
}

/// Whether dropout keeps the weight of `key`, which counts from the sequence's first key.
ATTNBENCH_HD inline bool dropout_keeps(uint64_t seed, uint64_t offset, int32_t head, int64_t token,
                                       int32_t key, uint32_t threshold) {
  const Philox4 bits = dropout_bits(seed, offset, head, token, key / 4);
  const uint32_t even = key & 2 ? bits.x[2] : bits.x[0];  // indexing x would put it into memory on a GPU
  const uint32_t odd = key & 2 ? bits.x[3] : bits.x[1];
  return (key & 1 ? odd : even) >= threshold;
}

}  // namespace attnbench
