// One case: a single problem with a readable id. The id depends on the problem only, never on the place in a
// file, so that a baseline survives a reordered file.
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
  std::string file = "";  ///< that the sweep stands in; "--case"
  /// The mapping that the lengths of the batch were drawn from, or listed in, as it stands in the file; empty
  /// if the file has a spec. It reproduces the batch in few words.
  std::string batch = "";
  bool overridden = false;  ///< --set changed what the file says
};

/// What the covers and samples of a file hold.
struct CoverCounts {
  int64_t pairs = 0, triples = 0;  ///< values that meet in some case
  /// Pairs and triples of values that never meet, in words. impossible: no legal case holds the values
  /// together. indifferent: in every case that holds them, one makes no difference. A triple that holds such
  /// a pair is not listed.
  std::vector<std::string> impossible, indifferent;
  bool exact = true;  ///< both lists: all combinations were tried; false: only some of them
  std::vector<std::string> short_samples;  ///< samples that have fewer cases than the file requests, in words

  void add(const CoverCounts& other);
};

struct Expansion {
  std::vector<Case> cases;
  std::vector<std::string> duplicates;  ///< ids of cases dropped because one with the same id came before
  int64_t excluded = 0;
  CoverCounts cover;
  /// Keys of a sweep that change none of its cases, and lines of traces that were skipped, with their places.
  std::vector<std::string> notes;
  std::vector<std::string> idle_exclusions;  ///< the same of rows of 'exclude' that match no case
};

/// Most cases of one file.
inline constexpr int64_t kMaxCases = 1'000'000;
/// Most pairs or triples of values in one cover.
inline constexpr int64_t kMaxTuples = 1'000'000;
/// Most sequences in all cases of one file: each takes 8 bytes of memory.
inline constexpr std::size_t kMaxSequences = 100'000'000;

/// Multiplies the axes of every sweep out. Errors: ConfigError with the place in the file, if a limit above
/// is exceeded or if the keys of a case contradict each other. Examples of the latter: more queries than keys
/// under a causal mask without allow_short_kv, kv_append on packed KV, a case past the address space. A cover
/// or a sample leaves such cases out. So does a sweep that --set changed, with a note, unless no case is left.
/// BadTraceError: a trace that `batch` names cannot be replayed.
Expansion expand(const SweepFile& file);

/// Sets keys that do not apply to their defaults, and gives values that mean the same one spelling. Two
/// parameter sets of the same problem become equal.
CaseParams normalised(CaseParams params);

std::string case_id(const CaseParams& params);

/// Gives a paged case of attention or kv_append this block table, which fits its lengths. Throws Error if another key
/// excludes a table of its own.
void give_blocks(CaseParams& params, std::shared_ptr<const GivenBlocks> blocks);

/// The same, and the id that tells it. Throws Error also if the table does not fit the lengths.
void give_blocks(Case& c, GivenBlocks::Ids ids);

/// Gives a case of attention these values, and the id that tells them. They must fit its shapes.
void give_tensors(Case& c, std::shared_ptr<const CapturedTensors> tensors);

/// Makes a case of lengths a step of a replay, with the id that tells it. `has_table`: give_blocks gives it the step's
/// block table afterwards.
void give_served(Case& c, ServedStep step, bool has_table);

/// The case as a mapping of its lengths, without a block table and a replay. give_served and give_blocks bring them
/// back, so that who reads it computes no replay.
std::string lengths_yaml(CaseParams params);

/// The case as one flow mapping, "{op: attention, kv: paged, ...}", which `run --case` reads back. `batch`:
/// what stands for the lengths where it is not empty.
std::string case_yaml(const CaseParams& params, const std::string& batch = "");

}  // namespace attnbench
