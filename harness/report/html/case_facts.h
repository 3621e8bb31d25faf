// Facts of a case for the plots: which cases share a line, and where on the line they are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "harness/results/load.h"

namespace attnbench {

struct CaseFacts {
  std::string setting;  ///< the id without its batch: common to the cases of one line
  /// "prefill", "decode" (at most kDecodeQueries query tokens per sequence) or "mixed". For ops other than
  /// attention it is the op, because their times say nothing about a step.
  std::string phase;
  bool uniform = false;  ///< all sequences have the same two lengths
  int64_t num_seqs = 0, max_q = 0, max_k = 0, total_q = 0, total_k = 0;  ///< tokens
  bool on_ranks = false;                                                 ///< path dcp
  bool apart = false;   ///< spread over several GPUs, so that its rates are no point under one GPU's ceilings
  std::string dtype;    ///< type of the matrix products, which selects the ceiling, as does
  std::string q_dtype;  ///< that of quantised queries; else "same"
};

inline constexpr int64_t kDecodeQueries = 16;  ///< most query tokens per sequence in speculative decode

/// nullopt for a result without parameters, from another program.
std::optional<CaseFacts> facts_of(const Record& result);

/// FLOP per byte of memory traffic; nullopt if either is unknown or nothing is computed.
std::optional<double> intensity_of(const Record& result);

}  // namespace attnbench
