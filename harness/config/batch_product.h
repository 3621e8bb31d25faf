// Products of batches: a spec in which braces hold several numbers stands for a list of batches.
//
//   {1,4}q1s{1k,4k}     1q1s1k, 1q1s4k, 4q1s1k, 4q1s4k
#pragma once

#include <string_view>
#include <vector>

#include "harness/config/batch_spec.h"

namespace attnbench {

/// Most batches that one spec may stand for; most sequences that they may hold together; and most characters
/// that they may have when each is written out.
inline constexpr std::size_t kMaxBatches = 10'000;
inline constexpr std::size_t kMaxProductSequences = std::size_t{1} << 22;
inline constexpr std::size_t kMaxProductCharacters = std::size_t{1} << 26;

/// The batches that a spec stands for; groups in braces multiply, and the last one varies fastest. A spec
/// without braces stands for itself. Errors: BatchSpecError, with the place in `spec`.
std::vector<std::vector<SeqLen>> parse_batch_product(std::string_view spec);

}  // namespace attnbench
