// Decode attention of multi-head latent attention (MLA) for Hopper: values are the first 512 of the 576
// channels of a key, so each row of the cache is read once for both.
#pragma once

#include "kernels/contract/kernel.h"

namespace attnbench::sm90_mla {

/// "sm90_mla": bf16 and fp16, head_dim 576, head_dim_v 512, up to 512 query rows per KV head; see README.md.
extern const Kernel kAttention;

}  // namespace attnbench::sm90_mla
