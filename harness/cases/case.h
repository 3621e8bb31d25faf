// One case: a single problem, with a readable id built from what it is, never from where it stood in a file,
// so that a baseline survives a reordered file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/config/case_params.h"
#include "harness/config/sweep_file.h"

namespace attnbench {

struct Case {
  std::string id;     ///< "attention/paged16-nhd-shuffled/bf16/h32-8/d128/causal/8q1s1k"
  std::string sweep;  ///< name of the sweep that it came from
  uint64_t seed = 1;
  CaseParams params;
  std::string file;  ///< that the sweep stands in; "--case"
};

/// What the covers of a file hold.
struct CoverCounts {
  int64_t pairs = 0, triples = 0;  ///< values that meet in some case
  /// In words: values that no legal case holds together, and values of which one makes no difference in every
  /// case that does. A triple that holds such a pair is not among them.
  std::vector<std::string> impossible, indifferent;
  bool exact = true;  ///< all combinations were tried for these two; else some, by need and by chance
  std::vector<std::string> short_samples;  ///< samples that have fewer cases than asked for, in words

  void add(const CoverCounts& other);
};

struct Expansion {
  std::vector<Case> cases;
  int64_t duplicates = 0;  ///< cases dropped because one with the same id came before
  int64_t excluded = 0;
  CoverCounts cover;
};

/// More cases than this in one file are refused.
inline constexpr int64_t kMaxCases = 1'000'000;
/// And more pairs or triples of values than this in one cover.
inline constexpr int64_t kMaxTuples = 1'000'000;
/// And more sequences than this in all its cases together: they are held in memory, 8 bytes each.
inline constexpr std::size_t kMaxSequences = 100'000'000;

/// Multiplies the axes of every sweep out. Throws ConfigError, with the place in the file, where keys
/// contradict each other: more queries than keys under a causal mask without allow_short_kv, kv_append on
/// packed KV, a case past the address space, more than kMaxCases. A cover or a sample leaves such cases out.
Expansion expand(const SweepFile& file);

/// Sets keys that do not apply to their defaults, and gives values that mean the same one spelling: equal
/// problems become equal.
CaseParams normalised(CaseParams params);

std::string case_id(const CaseParams& params);

/// The case as one flow mapping, "{op: attention, kv: paged, ...}", which `run --case` reads back.
std::string case_yaml(const CaseParams& params);

}  // namespace attnbench
