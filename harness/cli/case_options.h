// Options that choose cases, shared by several subcommands.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "harness/facts/verdict.h"
#include "harness/interop/flashinfer_trace.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace attnbench::cli {

/// CONFIG... (sweep files and folders of traces), --case, --set, --seed, --filter.
struct CaseOptions {
  std::vector<std::string> configs;
  std::vector<std::string> chosen;  ///< --case: inline mappings, and ids of cases in the configs
  std::vector<std::string> overrides;
  std::optional<uint64_t> seed;
  std::string filter;
  bool notes_said = false;  ///< by the gate, whose turns need not repeat them

  void add(CLI::App& command);
};

CLI::Option* add_seed_option(CLI::App& command, std::optional<uint64_t>& seed);

struct Cases {
  std::string name;    ///< of the configuration, or of all joined by "+"
  std::string kernel;  ///< kernel of a --case "id/kernel"
  std::vector<Case> cases;
  std::vector<std::string> check;       ///< checks of the file, or of the files if they agree
  std::string check_conflict;           ///< which files disagree; empty if none do
  std::vector<std::string> duplicates;  ///< ids of cases that were dropped: another one has the same
  int64_t excluded = 0;
  CoverCounts cover;
  int64_t filtered = 0;
  std::string filter_note;              ///< where --filter drops them all: what it looks in, with an example
  std::vector<FlashinferTrace> traces;  ///< folders among the configurations; their cases are in `cases`, too

  /// kExitUsage if a part of a folder cannot be read, else 0: for the command to end with, unless worse happens.
  int exit_code() const;
};

/// The kernels of --kernel, or if none is named that of --case "id/kernel". Throws UsageError if they contradict.
std::vector<std::string> kernels_to_run(const std::vector<std::string>& named, const Cases& cases);

/// What the words of --check, or of a file's `check`, ask for.
struct Checks {
  CheckMode mode = CheckMode::kSampled;
  bool invariants = false;
};
Checks checks_of(const std::vector<std::string>& words);

/// Loads, expands and filters. Notes about the files go to stderr, unless they have been said. Throws ConfigError,
/// UsageError.
Cases load_cases(const CaseOptions& options);

/// Says on stderr that no case is left, and why.
void say_nothing_matched(const Cases& cases);

/// Says on stderr how many cases were dropped because another one has their id, and names one.
void say_duplicates(const Cases& cases);

}  // namespace attnbench::cli
