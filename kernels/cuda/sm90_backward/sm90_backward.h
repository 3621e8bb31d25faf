// Gradients of attention for Hopper.
#pragma once

#include "kernels/contract/kernel.h"

namespace attnbench::sm90_backward {

/// "sm90_backward": bf16 and fp16, head_dim 64 and 128, dq summed in a fixed order; see ../README.md.
extern const Kernel kAttentionBackward;

/// "sm90_backward_atomics": the same, dq summed in the order in which blocks get there.
extern const Kernel kAtomicsBackward;

}  // namespace attnbench::sm90_backward
