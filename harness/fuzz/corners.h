// Values at which kernels change what they do: ends of ranges, powers of two, tile sizes, and their
// neighbours.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/config/keys.h"

namespace attnbench {

/// Corners of [lo, hi] up to kMostCorner, ascending; lo is always one of them.
inline constexpr int64_t kMostCorner = 8193;
std::vector<int64_t> corner_integers(int64_t lo, int64_t hi);

/// What a key may be set to, as YAML, made from its schema: words, truth values, corners of numbers. Empty
/// for `batch` and `window`, which batches.h draws. Throws std::logic_error, naming the key, where a schema
/// holds nothing to choose from.
std::vector<std::string> menu_of(const SweepKey& key);

}  // namespace attnbench
