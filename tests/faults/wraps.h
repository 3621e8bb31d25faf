// Kernels whose indices or offsets have too few bits.
#pragma once

#include <vector>

#include "kernels/registry.h"

namespace attnbench::faults {

/// wraps_block, wraps_block_id, wraps_cache_row, wraps_token, wraps_output, wraps_sequence, wraps_key, wraps_head and
/// wraps_packed_row (attention), wraps_slot (kv_append) and wraps_move (kv_move). All else in them is right.
std::vector<Kernel> wrapping_kernels();

}  // namespace attnbench::faults
