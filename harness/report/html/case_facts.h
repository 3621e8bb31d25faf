// What the plots ask of a case: which cases belong on one line, and where on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "harness/record/load.h"

namespace attnbench {

struct CaseFacts {
  std::string setting;  ///< the id without its batch: what cases of one line have in common
  /// "prefill", "decode" (at most kDecodeQueries query tokens each), "mixed"; of other ops than attention the
  /// op, since their times say nothing about a step
  std::string phase;
  bool uniform = false;  ///< all sequences have the same two lengths
  int64_t num_seqs = 0, max_q = 0, max_k = 0, total_q = 0, total_k = 0;  ///< tokens
  std::string dtype;  ///< of the matrix products: picks the ceiling
};

inline constexpr int64_t kDecodeQueries = 16;  ///< speculative decode launches with up to this many

/// nullopt for what carries no parameters: another program's result.
std::optional<CaseFacts> facts_of(const LoadedResult& result);

/// FLOP per byte of memory traffic; nullopt where either is unknown or nothing is computed.
std::optional<double> intensity_of(const LoadedResult& result);

}  // namespace attnbench
