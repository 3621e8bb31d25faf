#include "harness/cli/earlier_run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <re2/re2.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <iostream>
#include <set>

#include "harness/cli/common.h"
#include "harness/cli/gate_journal.h"
#include "harness/cli/usage_error.h"
#include "harness/results/files.h"
#include "harness/results/host.h"
#include "harness/results/json.h"
#include "harness/results/load.h"
#include "harness/results/text.h"

namespace attnbench::cli {
namespace {

namespace fs = std::filesystem;

/// DIR/stem.end, or the first of DIR/stem.2.end, DIR/stem.3.end, ... that does not exist.
fs::path free_name(const fs::path& dir, const char* stem, const char* end) {
  fs::path path = dir / fmt::format("{}.{}", stem, end);
  for (int i = 2; fs::exists(fs::symlink_status(path)); ++i)
    path = dir / fmt::format("{}.{}.{}", stem, i, end);
  return path;
}

void move_to(const fs::path& from, const fs::path& to) {
  std::error_code ec;
  fs::rename(from, to, ec);
  if (ec) throw FileError(fmt::format("{}: error: cannot write: {}", to.string(), ec.message()));
}

/// Whether this is the folder of a turn of a gate, or what it printed.
bool is_turn(const fs::path& path) {
  static const RE2 name("[0-9]+-(base|new)([.]txt)?");
  return RE2::FullMatch(path.filename().string(), name);
}

/// Absolute paths of a run's plug-ins, sorted.
std::vector<std::string> plugins_of(const ResultSet& set) {
  std::vector<std::string> paths;
  for (const PluginInfo& plugin : set.context.plugins) paths.push_back(plugin.path);
  std::ranges::sort(paths);
  return paths;
}

std::string plugins_text(const std::vector<std::string>& plugins) {
  return plugins.empty() ? "no plug-in" : one_line(fmt::format("{}", fmt::join(plugins, ", ")));
}

/// Folders of runs_folder() that are called DATE-NAME or, of runs that began in the same second, DATE-NAME-2
/// and so on; the newest first.
std::vector<fs::path> folders_called(const std::string& name) {
  const RE2 pattern(fmt::format("([0-9]{{8}}-[0-9]{{6}})-{}(?:-([0-9]{{1,6}}))?", folder_word(name)));
  std::vector<std::pair<std::pair<std::string, int>, fs::path>> found;  // dates sort as text
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(runs_folder(), ec)) {
    const std::string folder = entry.path().filename().string();
    std::string date, number;
    if (!RE2::FullMatch(folder, pattern, &date, &number) || !fs::exists(entry.path() / "results.json", ec))
      continue;
    found.push_back({{date, number.empty() ? 1 : std::stoi(number)}, entry.path()});
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<fs::path> out;
  for (const auto& [at, path] : found) out.push_back(path);
  return out;
}

bool holds_any_of(const ResultSet& set, const std::vector<WorkItem>& work) {
  std::set<std::pair<std::string, std::string>> wanted;
  for (const WorkItem& w : work) {
    if (w.kernel) wanted.emplace(w.item->id, w.kernel->name);
  }
  return std::ranges::any_of(set.results, [&](const Record& r) {
    return wanted.count({r.item.id, r.kernel}) > 0;
  });
}

/// Of results.json in `dir`; nullopt where it has none, or `dir` is empty.
std::optional<RunContext> earlier_context(const fs::path& dir) {
  std::error_code ec;
  if (dir.empty() || !fs::exists(dir / "results.json", ec)) return std::nullopt;
  try {
    return load_results((dir / "results.json").string()).context;
  } catch (const ResultsError&) {  // said when its records are taken up
    return std::nullopt;
  }
}

}  // namespace

std::string folder_word(const std::string& name) {
  std::string safe;
  for (const char c : name)
    safe += std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ? c : '-';
  return safe;
}

fs::path runs_folder() { return fs::path("results") / "runs"; }

fs::path new_run_folder(const std::string& name) {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return make_new_folder(runs_folder() / fmt::format("{:%Y%m%d-%H%M%S}-{}", local, folder_word(name)));
}

LastRun last_run(const std::string& out, const std::string& name, const std::vector<LoadedPlugin>& plugins,
                 const std::vector<WorkItem>& work) {
  std::vector<std::string> wanted;
  for (const LoadedPlugin& plugin : plugins) wanted.push_back(plugin.path);
  std::ranges::sort(wanted);
  if (!out.empty()) {
    LastRun run{out, load_results(out), ""};
    if (const auto held = plugins_of(run.results); held != wanted)
      run.note = fmt::format("note: {} holds a run with {}, and this one has {}\n", out, plugins_text(held),
                             plugins_text(wanted));
    return run;
  }
  std::vector<std::string> passed_over;
  for (const fs::path& dir : folders_called(name)) {
    ResultSet results;
    try {
      results = load_results(dir.string());
    } catch (const ResultsError& e) {
      passed_over.push_back(one_line(e.what()));
      continue;
    }
    if (results.context.name != name) continue;  // a sweep named NAME-2
    const auto held = plugins_of(results);
    if (held == wanted && holds_any_of(results, work)) {
      return {dir, std::move(results),
              passed_over.empty()
                  ? ""
                  : fmt::format("note: --last-failed passes over {}\n", fmt::join(passed_over, ", "))};
    }
    passed_over.push_back(fmt::format("{} ({})", dir.string(),
                                      held == wanted ? "it has none of these cases on these kernels"
                                                     : "it ran with " + plugins_text(held)));
  }
  throw UsageError(fmt::format(
      "--last-failed: {} has no run of '{}'{}; name the folder of the last run by --out DIR",
      runs_folder().string(), name,
      passed_over.empty() ? "" : fmt::format(" that fits. It passes over {}", fmt::join(passed_over, ", "))));
}

void keep_earlier_run(const fs::path& dir) {
  const fs::path results = dir / "results.json", journal = dir / "journal.jsonl";
  std::error_code ec;
  std::string held = "a file that attnbench cannot read";
  if (fs::is_regular_file(results, ec)) {
    bool keep = true;
    try {
      const ResultSet earlier = load_results(results.string());
      keep = earlier.context.complete && !earlier.results.empty();
      held = fmt::format("a finished run of {}", counted(std::ssize(earlier.results), "result"));
    } catch (const ResultsError&) {  // not a run of attnbench, or cut short: kept in any case
    }
    if (keep) {
      const fs::path kept = free_name(dir, "results.previous", "json");
      move_to(results, kept);
      std::cerr << fmt::format("note: {} held {}; it is kept as {}\n", results.string(), held,
                               kept.filename().string());
      if (held.starts_with("a finished")) return;  // its journal holds the same
    }
  }
  if (fs::file_size(journal, ec) == 0 || ec) return;
  // A copy, because the journal is already open and locked.
  const fs::path kept = free_name(dir, "journal.interrupted", "jsonl");
  fs::copy_file(journal, kept, ec);
  if (ec) throw FileError(fmt::format("{}: error: cannot write: {}", kept.string(), ec.message()));
  std::cerr << fmt::format(
      "note: {} held an interrupted run, which --resume would have gone on with; its records are kept in "
      "{}\n",
      dir.string(), kept.filename().string());
}

void keep_earlier_comparison(const fs::path& dir, bool quiet) {
  std::vector<std::string> kept;
  for (const auto& [format, name] : kGateReports) {
    std::error_code ec;
    if (!fs::is_regular_file(dir / name, ec)) continue;
    const std::string file = name;
    const std::size_t stem = file.find('.');
    const fs::path to = free_name(dir, (file.substr(0, stem) + ".previous").c_str(), file.c_str() + stem + 1);
    move_to(dir / name, to);
    kept.push_back(to.filename().string());
  }
  std::vector<fs::path> turns;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(dir, ec)) {
    if (is_turn(entry.path())) turns.push_back(entry.path());
  }
  if (fs::exists(dir / kEarlierJournal, ec)) turns.push_back(dir / kEarlierJournal);
  if (!turns.empty()) {
    const fs::path to = free_name(dir, "turns", "previous");
    make_folder(to);
    for (const fs::path& path : turns)
      move_to(path, to / (path.filename() == kEarlierJournal ? "gate.jsonl" : path.filename()));
    kept.push_back(to.filename().string() + "/");
  }
  if (kept.empty() || quiet) return;
  std::cerr << fmt::format("note: {} held an earlier gate; it is kept as {}\n", dir.string(),
                           fmt::join(kept, ", "));
}

bool is_in_turn(const fs::path& file, const fs::path& dir) {
  std::error_code ec;
  const fs::path below = fs::relative(file, dir, ec);
  return !ec && !below.empty() && std::distance(below.begin(), below.end()) > 1 && is_turn(*below.begin());
}

void check_resume(const std::string& resume, const std::string& out, const CaseOptions& cases) {
  if (resume.empty()) return;
  if (!out.empty()) throw UsageError("--resume DIR writes to DIR; drop --out");
  if (!fs::is_directory(resume)) {
    throw UsageError(fmt::format("--resume {}: there is no such folder", resume));
  }
  if (cases.configs.empty() && cases.chosen.empty()) {
    throw UsageError(fmt::format("--resume {}: give the run's CONFIG and options again", resume));
  }
}

void refuse_other_run(const fs::path& dir, const std::vector<std::string>& different,
                      const std::string& began_as) {
  if (different.empty()) return;
  throw UsageError(fmt::format(
      "--resume {}: the folder holds another run ({}); give the same configuration, options and program, or a new --out{}",
      dir.string(), fmt::join(different, "; "),
      began_as.empty()
          ? ""
          : fmt::format(". It began as: {} (if its sweep file has changed since, undo that)", began_as)));
}

std::optional<Ceilings> EarlierCeilings::still_known() const {
  return ceilings.read_gbs && host == host_name() ? std::optional(ceilings) : std::nullopt;
}

std::string EarlierCeilings::text() const {
  if (!ceilings.read_gbs) return "";
  if (still_known()) return "the ceilings (for %SOL and bound) are those that the first part measured";
  return fmt::format(
      "the ceilings (for %SOL and bound) are measured anew: the first part ran on host '{}', and its records "
      "keep their shares",
      one_line(host));
}

std::optional<EarlierCeilings> earlier_ceilings(const fs::path& dir) {
  const auto context = earlier_context(dir);
  return context ? std::optional(EarlierCeilings{context->ceilings, context->host}) : std::nullopt;
}

std::optional<TimeClock> earlier_clock(const fs::path& dir) {
  const auto context = earlier_context(dir);
  if (!context) return std::nullopt;
  const std::pair<std::string, std::string> cpu("clock", clock_name(TimeClock::kCpu));
  return std::ranges::count(context->plan.options, cpu) > 0 ? TimeClock::kCpu : TimeClock::kWall;
}

}  // namespace attnbench::cli
