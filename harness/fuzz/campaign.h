// Fuzzing some kernels: cases are drawn and run, what fails is repeated, shrunk and told.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/fuzz/generator.h"
#include "harness/session/session.h"

namespace attnbench {

/// One case of this many has its invariants and graph replays tried, which take about ten launches more.
inline constexpr int64_t kInvariantsEvery = 4;

struct FuzzOptions {
  uint64_t seed = 1;
  double size = 1;             ///< of cases (Generator)
  double seconds = 60;         ///< until no further case is drawn
  int64_t cases = 0;           ///< at most so many are drawn; 0: as many as the time allows
  int64_t max_findings = 20;   ///< distinct ones after which the run ends
  int shrink_tries = 400;      ///< of one finding
  double shrink_seconds = 60;  ///< of one finding
};

/// A failure, made as small as it would go.
struct Finding {
  const Kernel* kernel = nullptr;
  Record record;         ///< of the smallest case
  std::string found_as;  ///< id of the case that was drawn
  bool repeats = true;   ///< false: it did not fail again, and was not shrunk
  int tries = 0;         ///< runs that shrinking took
  int64_t alike = 0;     ///< later cases that failed alike: they have what the smallest case has
};

struct FuzzTally {
  const Kernel* kernel = nullptr;
  int64_t ran = 0, invariants = 0;  ///< cases taken, and those of them with invariants
  int64_t skipped = 0, failed = 0;
  std::map<std::string, int64_t> refusals;  ///< by reason, with # for numbers
  std::set<std::string> features;           ///< of the cases that ran (Generator::features_of)
};

struct FuzzResult {
  std::vector<FuzzTally> kernels;
  std::vector<Finding> findings;
  double seconds = 0;
  int64_t cases() const;
  /// 0 clean, 1 a wrong result, 5 a crash, a hang or an error, 6 nothing ran; the worst of them.
  int exit_code() const;
};

struct FuzzEvents {
  /// Runs items and returns the records of those that were finished, in any order. Items whose index is a
  /// multiple of kInvariantsEvery have their invariants tried.
  std::function<std::vector<Record>(const std::vector<WorkItem>&)> run;
  std::function<void(const Finding&)> found;
  std::function<void(const FuzzResult&)> progress;  ///< after each round of cases
  std::function<bool()> stop;                       ///< true: draw no more, and shrink no more
};

/// Deterministic in seed and cases where the kernels are, and where neither time nor `stop` ends it.
FuzzResult fuzz(const std::vector<const Kernel*>& kernels, const FuzzOptions& options,
                const FuzzEvents& events);

}  // namespace attnbench
