// Block tables as the cache manager of a server leaves them after many requests.
#pragma once

#include <cstdint>
#include <vector>

namespace attnbench {

/// The blocks of all sequences, one sequence after the other: sequence b has blocks[b] of them. A last-in, first-out
/// free list of `pool` blocks, at least the sum, has served requests of these sizes before, which come and go at
/// random: the first half of a request at once, as its prompt, the rest one block at a time, in turn with others.
std::vector<int32_t> aged_order(const std::vector<int64_t>& blocks, int32_t pool, uint64_t seed);

}  // namespace attnbench
