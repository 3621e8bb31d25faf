// Prefill attention for Hopper: wgmma, TMA, specialised warps, persistent blocks.
#pragma once

#include "kernels/contract/kernel.h"

namespace attnbench::sm90_prefill {

/// "sm90_prefill": bf16 and fp16, head_dim 64, 128 and 256, packed and paged KV; see README.md.
extern const Kernel kAttention;
extern const Kernel kFixedAttention;  ///< batch invariant

}  // namespace attnbench::sm90_prefill
