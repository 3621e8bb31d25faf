// Fuzzing: draws cases for kernels and runs them; repeats, shrinks and reports those that fail.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/fuzz/generator.h"
#include "harness/session/session.h"

namespace attnbench {

/// Invariants and graph replays are tried for one case of this many: they take about ten more launches.
inline constexpr int64_t kInvariantsEvery = 4;

/// With FuzzOptions::cases, a campaign ends once this many cases were skipped for each case to run, so that it
/// ends where a kernel skips all.
inline constexpr int64_t kMostSkipsPerCase = 20;

struct FuzzOptions {
  uint64_t seed = 1;
  double size = 1;             ///< size of cases (Generator)
  double seconds = 60;         ///< after this time no further case is drawn
  int64_t cases = 0;           ///< cases to run, skipped ones not counted; 0: as many as the time allows
  int64_t max_findings = 20;   ///< the run ends after this many distinct findings
  int shrink_tries = 400;      ///< most drafts tried to shrink one finding
  double shrink_seconds = 60;  ///< most time to shrink one finding
};

/// A failure, shrunk as far as it still fails.
struct Finding {
  const Kernel* kernel = nullptr;
  Record record;         ///< record of the smallest case
  std::string found_as;  ///< id of the case that was drawn
  /// Mistakes that the clues named in that case, if they name none in the smallest one, which may be too small.
  std::vector<std::string> clues_as_found;
  bool repeats = true;  ///< false: it did not fail again, and was not shrunk
  int tries = 0;        ///< runs that shrinking took
  /// Runs of the smallest case after shrinking, and those of them that failed: fewer, if it depends on time.
  int run_again = 0, failed_again = 0;
  int64_t alike = 0;         ///< later failures with the same status and all keys of the smallest case
  std::vector<Record> like;  ///< smallest cases of later findings with the same cause, as far as it is known
};

/// Refusals whose reasons differ in numbers alone.
struct Refusals {
  int64_t cases = 0;
  std::string reason;  ///< of the one with the shortest line
  std::string repro;   ///< its `attnbench run` line
  std::string id;      ///< of that case
};

struct FuzzTally {
  const Kernel* kernel = nullptr;
  int64_t ran = 0, invariants = 0;  ///< cases that the kernel took, and those of them with invariants
  int64_t skipped = 0, failed = 0;
  std::map<std::string, Refusals> refusals;  ///< by reason without numbers
  std::set<std::string> features;            ///< features of cases that ran (Generator::features_of)
};

struct FuzzResult {
  std::vector<FuzzTally> kernels;
  std::vector<Finding> findings;
  double seconds = 0;
  bool gave_up = false;  ///< too many cases were skipped (kMostSkipsPerCase)
  int64_t ran() const;
  int64_t skipped() const;
  /// The worst of: 0 clean, 1 a wrong result, 5 a crash, a hang or an error, 6 nothing ran.
  int exit_code() const;
};

struct FuzzEvents {
  /// Runs items and returns the records of those that finished, in any order. It must try the invariants of
  /// items whose index is a multiple of kInvariantsEvery.
  std::function<std::vector<Record>(const std::vector<WorkItem>&)> run;
  std::function<void(const Finding&)> found;
  /// A finding with the cause of an earlier one, whose number is from 1; may be null.
  std::function<void(std::size_t number, const Record&)> found_like;
  std::function<void(const FuzzResult&)> progress;  ///< after each round of cases
  std::function<bool()> stop;                       ///< true: no case is drawn or shrunk any more
};

/// Runs a campaign. The result depends on seed and cases only, if the kernels are deterministic and neither
/// the time nor `stop` ends it.
FuzzResult fuzz(const std::vector<const Kernel*>& kernels, const FuzzOptions& options,
                const FuzzEvents& events);

}  // namespace attnbench
