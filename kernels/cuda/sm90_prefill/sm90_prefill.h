// Prefill attention for Hopper: wgmma, TMA, specialised warps, persistent blocks.
#pragma once

#include "kernels/contract/kernel.h"

namespace attnbench::sm90_prefill {

/// "sm90_prefill": which types, widths and caches it takes stands in README.md.
extern const Kernel kAttention;
extern const Kernel kFixedAttention;     ///< batch invariant
extern const Kernel kOneLevelAttention;  ///< e4m3 with one level of sums (README.md)

}  // namespace attnbench::sm90_prefill
