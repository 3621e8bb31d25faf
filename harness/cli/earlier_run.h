// The run that a folder holds already. It is kept when another begins there, or gone on with (--resume).
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/cli/case_options.h"
#include "harness/launch/plugin.h"
#include "harness/results/load.h"
#include "harness/results/record.h"
#include "harness/session/session.h"

namespace attnbench::cli {

/// Keeps the results of a finished run as results.previous.json, results.previous.2.json, ..., or the records
/// of an interrupted run as journal.interrupted.jsonl, and so on. Reports this on stderr. Throws FileError if
/// it cannot be done.
void keep_earlier_run(const std::filesystem::path& dir);

/// Moves what an earlier gate left in DIR, so that none of it lies beside what the next one writes: compare.json becomes
/// compare.previous.json, and so on; the turns go to the folder turns.previous. Reports this on stderr, unless quiet.
/// Throws FileError if it cannot be done.
void keep_earlier_comparison(const std::filesystem::path& dir, bool quiet);

/// Whether the file lies in a folder that keep_earlier_comparison(dir) would move.
bool is_in_turn(const std::filesystem::path& file, const std::filesystem::path& dir);

/// The reports of a gate: the word of --format, and the file in the gate's folder.
inline constexpr std::pair<const char*, const char*> kGateReports[] = {
    {"json", "compare.json"}, {"md", "compare.md"}, {"junit", "compare.junit.xml"}};

/// Where runs go that --out names no folder for: results/runs below the current folder.
std::filesystem::path runs_folder();

/// A name as part of a folder's: letters, digits, '-' and '_'.
std::string folder_word(const std::string& name);

/// Creates the folder of a run without --out, DATE-NAME in runs_folder(), or DATE-NAME-2, ... if another run
/// began in the same second. Throws FileError.
std::filesystem::path new_run_folder(const std::string& name);

/// The run whose failures --last-failed runs again.
struct LastRun {
  std::filesystem::path dir;
  ResultSet results;
  std::string note;  ///< what the user should know of the choice, in lines; may be empty
};

/// The run in the folder `out`; where `out` is empty, the newest run in runs_folder() of sweep files of this
/// name, with these plug-ins, that holds a result of some item of `work`. Throws UsageError if there is none.
LastRun last_run(const std::string& out, const std::string& name, const std::vector<LoadedPlugin>& plugins,
                 const std::vector<WorkItem>& work);

/// Throws UsageError where --resume DIR does not go with the other options; nothing where `resume` is empty.
void check_resume(const std::string& resume, const std::string& out, const CaseOptions& cases);

/// Throws UsageError where what DIR holds is not what is asked for now: `different`, in words, is not empty.
/// `began_as` is the command line of what DIR holds, empty if unknown.
void refuse_other_run(const std::filesystem::path& dir, const std::vector<std::string>& different,
                      const std::string& began_as = "");

/// The ceilings of the run that --resume goes on with, and the name of the host that ran it.
struct EarlierCeilings {
  Ceilings ceilings;
  std::string host;

  /// They hold for the rest of the run too: measured, and on this host. Records before and after then have
  /// shares of the same ceilings.
  std::optional<Ceilings> still_known() const;
  /// Says in a line whether the rest of the run keeps them; empty where none were measured.
  std::string text() const;
};

/// The clock of the run in `dir`; nullopt where there is none.
std::optional<TimeClock> earlier_clock(const std::filesystem::path& dir);

/// Those that results.json in `dir` holds; nullopt where it has none, or `dir` is empty.
std::optional<EarlierCeilings> earlier_ceilings(const std::filesystem::path& dir);

}  // namespace attnbench::cli
