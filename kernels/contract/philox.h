// Philox4x32-10, a counter-based random generator: J. K. Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC'11. It makes ten rounds of two 32x32 -> 64 multiplications. Host and GPU get the same bits.
#pragma once

#include <cstdint>

#include "kernels/contract/hd.h"

namespace attnbench {

struct Philox4 {
  uint32_t x[4];
};

ATTNBENCH_HD inline Philox4 philox4x32(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t seed) {
  uint32_t k0 = static_cast<uint32_t>(seed);
  uint32_t k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace attnbench
