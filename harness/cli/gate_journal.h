// What a gate has done so far, on disk in DIR/gate.jsonl, so that --resume can go on with it: its settings,
// and for each run when it begins and how it ends.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/session/journal.h"

namespace attnbench::cli {

/// A run that a gate has begun.
struct BegunRun {
  std::string side;
  std::vector<std::string> more;  ///< arguments behind those of the side
  double seconds = 0;             ///< that it took, before it was interrupted too
  std::optional<int> exit_code;   ///< nullopt until it has ended
};

/// By name: what decides which runs a gate makes. A gate that goes on must have the same.
using GateSettings = std::map<std::string, std::string>;

/// What a gate that starts anew leaves of the journal of the gate before.
inline constexpr const char* kEarlierJournal = "gate.previous.jsonl";

class GateJournal {
 public:
  /// Starts afresh, or with `resume` reads what an interrupted gate has left. Throws UsageError where that
  /// was a gate with other settings or none, FileError where another gate writes it or nothing can.
  GateJournal(std::filesystem::path dir, const GateSettings& settings, bool resume);

  /// What is known of run `number`; null where it has not begun.
  const BegunRun* run(int number) const;
  int ended_from(int number) const;  ///< how many runs of this number or higher

  void begin(int number, const std::string& side, const std::vector<std::string>& more);
  /// Adds to the seconds of a run; with an exit code it has ended.
  void spent(int number, double seconds, std::optional<int> exit_code);

 private:
  void read(const GateSettings& settings);

  std::filesystem::path dir_;
  Journal file_;
  std::map<int, BegunRun> runs_;
};

}  // namespace attnbench::cli
