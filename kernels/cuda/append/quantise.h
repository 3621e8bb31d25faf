// Launches into caches of which at least one is quantised. One source file per type of the input.
#pragma once

#include "kernels/contract/kernel.h"

namespace attnbench::cuda_append {

void quantise_bf16(const KvAppendParams& p, const LaunchContext& context);
void quantise_fp16(const KvAppendParams& p, const LaunchContext& context);

}  // namespace attnbench::cuda_append
