// `attnbench run --watch`: the same run again after each change of its files.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <map>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

#include "harness/cli/child_program.h"
#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/earlier_run.h"
#include "harness/cli/run_options.h"
#include "harness/cli/usage_error.h"
#include "harness/compare/pairing.h"
#include "harness/launch/python.h"
#include "harness/report/summary.h"
#include "harness/results/text.h"

namespace attnbench::cli {
namespace {

namespace fs = std::filesystem;

constexpr auto kPoll = std::chrono::milliseconds(100);
/// A compiler or linker has finished with a file that stays the same for so many polls.
constexpr int kStablePolls = 5;
/// Lines of one kind of change.
constexpr int kMostLines = 10;

/// What tells one version of a file from the next; all zero where there is none.
using State = std::tuple<ino_t, off_t, time_t, long>;

std::vector<State> states(const std::vector<std::string>& files) {
  std::vector<State> out;
  for (const std::string& file : files) {
    struct stat s {};
    out.emplace_back();
    if (stat(file.c_str(), &s) == 0) out.back() = {s.st_ino, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec};
  }
  return out;
}

/// Waits until the files differ from `seen`, are all there, and have been the same for a while. Returns false if a
/// signal has come.
bool wait_for_change(const std::vector<std::string>& files, const std::vector<State>& seen) {
  std::vector<State> last = seen;
  for (int stable = 0; !child_stopped();) {
    std::this_thread::sleep_for(kPoll);
    std::vector<State> now = states(files);
    stable = now == last ? stable + 1 : 0;
    last = std::move(now);
    if (stable >= kStablePolls && last != seen && std::ranges::find(last, State{}) == last.end()) return true;
  }
  return false;
}

const char* word_of(const Record* r, const char* absent) {
  if (r == nullptr) return absent;
  return needs_attention(r->status) ? "wrong" : r->status == Status::kSkip ? "skipped" : "right";
}

std::optional<ResultSet> results_in(const fs::path& dir) {
  try {
    return load_results(dir.string());
  } catch (const ResultsError&) {  // the run did not begin, and has said why
    return std::nullopt;
  }
}

/// "right -> wrong  ID on KERNEL: REASON; CLUE": a line for each result that is right, wrong or skipped now and was not
/// before.
std::string changes_text(const ResultSet& before, const ResultSet& now) {
  std::map<std::string, std::vector<std::string>> changes;
  for (const auto& [was, is] : pair_results(before, now, Match::kIdAndKernel)) {
    const std::string from = word_of(was, "new"), to = word_of(is, "not run");
    if (from == to) continue;
    const Record& r = is != nullptr ? *is : *was;
    std::string line = fmt::format("{} on {}", r.item.id, r.kernel);
    if (to == "wrong") line += ": " + r.reason;
    if (to == "wrong" && r.check && !r.check->clues.empty()) line += "; " + r.check->clues.front();
    changes[fmt::format("{} -> {}", from, to)].push_back(std::move(line));
  }
  std::string text;
  for (const auto& [kind, lines] : changes) {
    for (std::size_t i = 0; i < std::min<std::size_t>(lines.size(), kMostLines); ++i)
      text += fmt::format("{}  {}\n", kind, one_line(lines[i]));
    if (lines.size() > kMostLines) text += fmt::format("{}  and {} more\n", kind, lines.size() - kMostLines);
  }
  return text.empty() ? "nothing differs from the last run: the same cases are right, wrong and skipped\n"
                      : "since the last run:\n" + text;
}

/// Runs this command line without --watch, each time in a folder of its own, until a signal ends it. Returns the exit
/// code of the last run.
int watch(const CaseOptions& cases, std::vector<std::string> files, const Program& program) {
  files.insert(files.end(), cases.configs.begin(), cases.configs.end());
  if (files.empty()) throw UsageError("--watch: no file can change: give --plugin FILE or a sweep file");
  const std::string name = load_cases(cases).name;  // a mistake in it ends the command here
  std::vector<std::string> args = program.command_line;
  args.front() = program_file();
  std::erase(args, "--watch");
  args.push_back("--out");
  catch_signals();
  std::optional<ResultSet> last;
  int code = 0;
  bool again = true;
  for (int run = 1; again; ++run) {
    const std::vector<State> seen = states(files);
    const fs::path dir = new_run_folder(name);
    args.push_back(dir.string());
    code = run_program(args, "", false);
    args.pop_back();
    std::error_code ignored;
    fs::remove(dir, ignored);  // if it is empty
    if (child_stopped()) break;
    std::optional<ResultSet> now = results_in(dir);
    if (last && now) std::cout << changes_text(*last, *now) << std::flush;
    if (now) last = std::move(now);
    std::cerr << fmt::format("run {} ended with exit code {}; watching {} (Ctrl-C ends)\n", run, code,
                             fmt::join(files, ", "));
    again = wait_for_change(files, seen);
  }
  restore_signals();
  return code;
}

}  // namespace

void watch_instead(const std::shared_ptr<RunOptions>& o, Program& program) {
  // Each run opens the plug-ins itself, so that one that does not load ends one run.
  const std::vector<std::string> files = std::exchange(program.plugin_files, {});
  CaseOptions cases = o->cases;
  cases.notes_said = true;  // by the runs
  program.chosen = [=, &program] { return watch(cases, files, program); };
}

}  // namespace attnbench::cli
