#include "harness/cli/gate_runs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include "harness/cli/child_program.h"
#include "harness/cli/common.h"
#include "harness/cli/earlier_run.h"
#include "harness/cli/profiler_tool.h"
#include "harness/cli/run_options.h"
#include "harness/cli/usage_error.h"
#include "harness/results/files.h"
#include "harness/results/text.h"

namespace attnbench::cli {
namespace {

std::filesystem::path made(std::filesystem::path dir) {
  make_folder(dir);
  return dir;
}

}  // namespace

GateRuns::GateRuns(std::filesystem::path dir, const GateSettings& settings, bool resume, bool quiet)
    : dir_(made(std::move(dir))), quiet_(quiet), journal_(dir_, settings, resume) {
  if (resume && !quiet_) {
    std::cerr << fmt::format("gate: {}: {} finished\n", dir_.string(), counted(finished(), "turn"));
  }
  setenv(kGateFolder, dir_.c_str(), 1);  // for the runs
  catch_signals();
}

GateRuns::~GateRuns() {
  restore_signals();
  unsetenv(kGateFolder);
}

double GateRuns::seconds() const {
  return earlier_s_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
}

int GateRuns::finished() const { return journal_.ended_from(1); }

std::filesystem::path GateRuns::folder_of(const Side& side) const {
  return dir_ / fmt::format("{}-{}", number_, side.name);
}

std::vector<std::string> GateRuns::arguments(const Side& side, const std::vector<std::string>& more,
                                             bool resume) const {
  std::vector<std::string> args = {side.program, "run"};
  args.insert(args.end(), side.args.begin(), side.args.end());
  if (std::ranges::find(more, "--filter") != more.end()) {  // --filter may be given only once
    const auto own = std::ranges::find(args, "--filter");
    if (own != args.end()) args.erase(own, own + 2);
  }
  args.insert(args.end(), more.begin(), more.end());
  args.insert(args.end(), {resume ? "--resume" : "--out", folder_of(side).string()});
  if (quiet_) args.push_back("--quiet");
  return args;
}

int GateRuns::start(const Side& side, const std::vector<std::string>& args, const std::string& why,
                    Show show) {
  const ChildProgram child = child_of(side, args, show);
  return shown(side, args, why, show, run_program(child.args, child.log, child.silent));
}

ChildProgram GateRuns::child_of(const Side& side, const std::vector<std::string>& args, Show show) const {
  return {args, folder_of(side).string() + ".txt", show == Show::kErrors};
}

int GateRuns::shown(const Side& side, const std::vector<std::string>& args, const std::string& why, Show show,
                    int code) {
  const std::filesystem::path log = folder_of(side).string() + ".txt";
  const bool stopped = child_stopped() || code == kExitInterrupted;
  const bool broken = !stopped && (code == kExitFailure || code > 6);
  const bool silent_error = show == Show::kErrors && (broken || code == kExitUsage);
  std::ostream& to = silent_error ? std::cerr : std::cout;
  const bool failed = broken || silent_error;
  if (show != Show::kAll && !failed) return code;
  std::error_code ignored;
  const bool judged =
      std::filesystem::exists(folder_of(side) / "results.json", ignored);  // the comparison tells
  if (broken && judged && quiet_) return code;
  if (broken && judged && !told_broken_.insert(side.name).second) {
    std::cout << fmt::format(
                     "gate: the {} side ({}) failed with exit code {}, as before; its output is in {}\n",
                     side.name, turn_text(), code, log.string())
              << std::flush;
    return code;
  }
  const std::string which =
      fmt::format("'attnbench run' for the {} side ({}: {})", side.name, turn_text(), why);
  to << (failed ? fmt::format("gate: {} failed with exit code {}; it printed:\n", which, code)
                : fmt::format("gate: output of {}:\n", which))
     << std::ifstream(log, std::ios::binary).rdbuf() << std::flush;
  to.clear();  // an empty log sets failbit
  if (failed) to << fmt::format("gate: to repeat what failed: {}\n", shell_line(args)) << std::flush;
  return code;
}

std::string GateRuns::turn_text() const {
  return number_ == 0 ? "the check before turn 1" : fmt::format("turn {} of {}", number_, planned_);
}

SideRun GateRuns::probe(const Side& side, const std::vector<std::string>& more, const std::string& why) {
  number_ = 0;
  return run_numbered(side, more, why, Show::kErrors);
}

SideRun GateRuns::run(const Side& side, const std::vector<std::string>& more, const std::string& why,
                      Show show) {
  if (child_stopped()) throw GateStop{kExitInterrupted};
  number_ = ++count_;
  return run_numbered(side, more, why, show);
}

std::pair<SideRun, SideRun> GateRuns::run_both(const std::array<const Side*, 2>& sides,
                                               const std::vector<std::string>& more, const std::string& why,
                                               const std::array<Show, 2>& shows) {
  if (child_stopped()) throw GateStop{kExitInterrupted};
  std::array<std::optional<SideRun>, 2> ended;
  const int before = count_;
  for (std::size_t i : {0, 1}) {
    number_ = ++count_;
    ended[i] = ended_earlier(*sides[i], more, why, shows[i]);
  }
  if (ended[0] || ended[1]) {
    count_ = before;
    SideRun r = run(*sides[0], more, why, shows[0]);
    return {std::move(r), run(*sides[1], more, why, shows[1])};
  }
  const double began_s = seconds();
  std::array<ChildProgram, 2> children;
  for (std::size_t i : {0, 1}) {
    number_ = before + 1 + static_cast<int>(i);
    children[i] = child_of(*sides[i], begin(*sides[i], more, why), shows[i]);
  }
  const std::array<int, 2> codes = run_in_slices(children);
  const double each_s = (seconds() - began_s) / 2;
  const auto end_of = [&](std::size_t i) {
    number_ = before + 1 + static_cast<int>(i);
    return end(*sides[i], shown(*sides[i], children[i].args, why, shows[i], codes[i]), each_s);
  };
  SideRun r = end_of(0);
  return {std::move(r), end_of(1)};
}

SideRun GateRuns::run_numbered(const Side& side, const std::vector<std::string>& more, const std::string& why,
                               Show show) {
  if (auto earlier = ended_earlier(side, more, why, show)) return std::move(*earlier);
  const double began_s = seconds();
  const std::vector<std::string> args = begin(side, more, why);
  const int code = start(side, args, why, show);
  return end(side, code, seconds() - began_s);
}

std::optional<SideRun> GateRuns::ended_earlier(const Side& side, const std::vector<std::string>& more,
                                               const std::string& why, Show show) {
  const BegunRun* earlier = journal_.run(number_);
  if (earlier != nullptr && (earlier->side != side.name || earlier->more != more)) {
    refuse_other_run(dir_, {fmt::format("{}: {} '{}' there, {} '{}' here", turn_text(), earlier->side,
                                        fmt::join(earlier->more, " "), side.name, fmt::join(more, " "))});
  }
  if (earlier == nullptr || !earlier->exit_code) return std::nullopt;
  earlier_s_ += earlier->seconds;
  const bool check = more.empty() && checked_.insert(side.name).second;
  if (check && start(side, arguments(side, more, /*resume=*/true), why, show) == kExitUsage) {
    throw GateStop{kExitUsage};  // it said why
  }
  return SideRun{*earlier->exit_code, results_of(side, *earlier->exit_code)};
}

std::vector<std::string> GateRuns::begin(const Side& side, const std::vector<std::string>& more,
                                         const std::string& why) {
  const BegunRun* earlier = journal_.run(number_);
  if (earlier != nullptr) earlier_s_ += earlier->seconds;
  if (!quiet_) std::cerr << fmt::format("gate: {}, {}: {}\n", turn_text(), side.name, why);
  const std::filesystem::path out = folder_of(side);
  std::error_code ignored;
  if (earlier == nullptr) {
    // What an earlier gate left in the folder must not pass for this run's.
    std::filesystem::remove(out / "results.json", ignored);
    std::filesystem::remove(out / "journal.jsonl", ignored);
    journal_.begin(number_, side.name, more);
  }
  return arguments(side, more, std::filesystem::exists(out / "journal.jsonl", ignored));
}

SideRun GateRuns::end(const Side& side, int code, double took_s) {
  if (code != kExitUsage && code != kNotStarted && code != kExitInterrupted) {
    SideRun r{code, results_of(side, code)};
    // What is not complete goes on with --resume, whatever ended it.
    const bool complete = r.results.context.complete;
    journal_.spent(number_, took_s, complete ? std::optional(code) : std::nullopt);
    if (complete || !child_stopped()) return r;
  } else {
    journal_.spent(number_, took_s, std::nullopt);
    if (code != kExitInterrupted) throw GateStop{kExitUsage};  // it said why
  }
  throw GateStop{kExitInterrupted};
}

ResultSet GateRuns::results_of(const Side& side, int exit_code) const {
  const std::filesystem::path out = folder_of(side);
  std::error_code ignored;
  if (!std::filesystem::exists(out / "results.json", ignored)) {
    if (child_stopped()) throw GateStop{kExitInterrupted};
    std::cerr << fmt::format(
        "attnbench gate: error: the turn of the {} side ended with exit code {} and left no results; its output is "
        "in {}.txt\n",
        side.name, exit_code, out.string());
    throw GateStop{kExitFailure};
  }
  try {
    return load_results(out.string());
  } catch (const ResultsError& e) {
    std::cerr << error_line(e.what()) << "\n";
    throw GateStop{kExitFailure};
  }
}

bool GateRuns::next_has_ended() const {
  const BegunRun* next = journal_.run(count_ + 1);
  return next != nullptr && next->exit_code;
}

}  // namespace attnbench::cli
