// Corners: values at which kernels change their behaviour. These are ends of ranges, powers of two, tile
// sizes, and their neighbours.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/config/keys.h"

namespace attnbench {

inline constexpr int64_t kMostCorner = (1 << 17) + 1;
/// Corners of [lo, hi] up to kMostCorner, ascending; lo is always one of them.
std::vector<int64_t> corner_integers(int64_t lo, int64_t hi);

/// YAML values to which a key may be set, made from its schema: words, truth values, corners of numbers.
/// Empty for `batch` and `window`, which batches.h draws. Throws std::logic_error with the key's name if its
/// schema gives no value.
std::vector<std::string> menu_of(const SweepKey& key);

}  // namespace attnbench
