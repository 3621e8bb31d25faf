// Decode attention for Hopper: few query rows per KV head, keys and values streamed once at memory speed.
#pragma once

#include "kernels/contract/kernel.h"

namespace attnbench::sm90_decode {

/// "sm90_decode": bf16 and fp16, head_dim 64, 128 and 256, up to 64 query rows per KV head; see README.md.
extern const Kernel kAttention;
extern const Kernel kFixedAttention;  ///< batch invariant

}  // namespace attnbench::sm90_decode
