// The plain GPU kernels: the features of the cpu kernel, any GPU from sm_80, fp32 arithmetic.
#pragma once

#include "kernels/contract/kernel.h"

namespace attnbench::cuda_simt {

extern const Kernel kAttention;
extern const Kernel kKvAppend;
extern const Kernel kMergeStates;
extern const Kernel kAttentionBackward;
extern const Kernel kKvMove;

}  // namespace attnbench::cuda_simt
