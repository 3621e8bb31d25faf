// Writes new keys and values to the cache before a launch attends (kAppend).
#pragma once

#include "kernels/contract/kernel.h"

namespace attnbench::cpu {

/// Checks all lengths, places and positions before the first write, so a bad call leaves the cache unchanged.
/// Checks that the tables of a launch with kRotaryCached have a row for each position of its keys and queries.
KernelStatus check_cached_positions(const AttentionParams& p, KernelMessage* message);

KernelStatus append_new_rows(const AttentionParams& p, int threads, KernelMessage* message);

}  // namespace attnbench::cpu
