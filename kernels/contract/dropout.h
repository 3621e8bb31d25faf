// Which attention weights dropout keeps: a pure function of the weight's coordinate, so that a kernel of any
// tiling and a reference agree on every one. It is part of the operation's definition.
#pragma once

#include <cstdint>

#include "kernels/contract/hd.h"
#include "kernels/contract/philox.h"

namespace attnbench {

/// A weight is kept where its 32 random bits are not below this. 0 <= p < 1; exact, as p is a float.
ATTNBENCH_HD inline uint32_t dropout_threshold(float p) {
  return static_cast<uint32_t>(static_cast<double>(p) * 4294967296.0);
}

/// What kept weights are multiplied by.
ATTNBENCH_HD inline float dropout_scale(float p) { return 1.0f / (1.0f - p); }

/// The random bits of four neighbouring keys, 4 * key_quad .. 4 * key_quad + 3, for query head `head` and row
/// `token` of the packed queries: Philox4x32-10 of the counter (key_quad, token, head, lower half of offset)
/// under the key (lower half of seed, upper halves of seed and offset combined by exclusive or).
ATTNBENCH_HD inline Philox4 dropout_bits(uint64_t seed, uint64_t offset, int32_t head, int64_t token,
                                         int32_t key_quad) {
  return philox4x32(static_cast<uint32_t>(key_quad), static_cast<uint32_t>(token),
                    static_cast<uint32_t>(head), static_cast<uint32_t>(offset),
                    seed ^ (offset & 0xffffffff00000000ull));
}

/// Whether the weight of `key`, counted from the sequence's first key, is kept.
ATTNBENCH_HD inline bool dropout_keeps(uint64_t seed, uint64_t offset, int32_t head, int64_t token,
                                       int32_t key, uint32_t threshold) {
  const Philox4 bits = dropout_bits(seed, offset, head, token, key / 4);
  const uint32_t even = key & 2 ? bits.x[2] : bits.x[0];  // an index would put the words into memory on a GPU
  const uint32_t odd = key & 2 ? bits.x[3] : bits.x[1];
  return (key & 1 ? odd : even) >= threshold;
}

}  // namespace attnbench
