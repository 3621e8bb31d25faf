// New keys and values into the cache, before a launch attends (kAppend).
#pragma once

#include "kernels/contract/kernel.h"

namespace attnbench::cpu {

/// Writes them. All lengths, places and positions are looked at before the first write: a bad call leaves the
/// cache as it was.
KernelStatus append_new_rows(const AttentionParams& p, int threads, KernelMessage* message);

}  // namespace attnbench::cpu
