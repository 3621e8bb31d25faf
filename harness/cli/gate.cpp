#include "harness/cli/gate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <re2/re2.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>
#include <thread>

#include "harness/cli/case_options.h"
#include "harness/cli/child_program.h"
#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/device_options.h"
#include "harness/cli/earlier_run.h"
#include "harness/cli/plugins.h"
#include "harness/cli/profiler_tool.h"
#include "harness/cli/usage_error.h"
#include "harness/compare/gate_policy.h"
#include "harness/config/near_file.h"
#include "harness/launch/python.h"
#include "harness/plain_file.h"
#include "harness/report/compare_formats.h"
#include "harness/report/compare_print.h"
#include "harness/report/console.h"
#include "harness/report/summary.h"
#include "harness/results/coverage.h"
#include "harness/results/exit_code.h"
#include "harness/results/files.h"
#include "harness/results/text.h"

namespace attnbench::cli {
namespace {

constexpr std::size_t kSummaryRows = 300;  ///< GitHub accepts 1 MiB of step summary

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool asked(const GateOptions& o, const char* format) {
  return std::ranges::find(o.formats, format) != o.formats.end();
}

/// Options of `run` that choose exactly these cases.
std::vector<std::string> only(const GateOptions& o, const std::set<std::string>& ids) {
  std::vector<std::string> args;
  if (!o.cases.chosen.empty()) {  // --case would add to these cases
    std::string re;
    for (const std::string& id : ids) re += (re.empty() ? "^(" : "|") + RE2::QuoteMeta(id);
    return {"--filter", re + ")$"};
  }
  for (const std::string& id : ids) args.insert(args.end(), {"--case", id});
  return args;
}

/// Checks, before minutes are spent, that the new side's results can be compared.
void check_before(const GateOptions& o, const Side& fresh, const ResultSet& base, GateRuns& runs) {
  if (o.no_time) return;  // right or wrong does not depend on the machine
  const SideRun probe = runs.probe(fresh, {"--no-time", "--filter", "^$", "--quiet"}, "asks for the device");
  check_alike(base, probe.results, o.compare.allow_mismatch);
  if (const std::string path = noise_path(o); !path.empty() && std::filesystem::exists(path)) {
    ResultSet calibrated;
    calibrated.context = load_noise(path).context;
    if (!context_mismatches(calibrated, probe.results).empty() && !o.compare.allow_mismatch) {
      check_alike(calibrated, probe.results, true);
      throw UsageError(fmt::format("{} was calibrated elsewhere; make it anew with --calibrate", path));
    }
  }
}

void write_step_summary(const GateOptions& o, const CompareResult& result, int code) {
  const std::string path = environment("GITHUB_STEP_SUMMARY");
  if (path.empty()) return;
  std::ofstream out;
  if (why_no_file(path, "").empty()) out.open(path, std::ios::app);
  CompareResult shown = result;
  shown.rows.resize(std::min(shown.rows.size(), kSummaryRows));
  out << "### attnbench gate: exit code " << code << "\n\n";
  write_compare_markdown(out, shown);
  if (shown.rows.size() < result.rows.size()) {
    out << fmt::format("\nand {} rows more, in the artifact\n", result.rows.size() - shown.rows.size());
  }
  out << "\n";
  if (!out && !o.quiet) std::cerr << "gate: " << path << " could not be written\n";
}

/// `told`: failures whose reasons the table of the new side's first turn has shown.
void report(const GateOptions& o, const GateRuns& runs, const CompareResult& result,
            const CompareOptions& options, int code, const std::set<std::string>& told) {
  print_compare(std::cout, result, style_of_stdout(), told);
  for (const auto& [format, name] : kGateReports) {
    if (format != std::string_view("json") && !asked(o, format)) continue;
    std::ostringstream text;
    write_compare(text, format, result, options);
    const std::filesystem::path path = runs.dir() / name;
    write_file_atomically(path, text.str());
    std::cout << "report: " << path.string() << "\n";
  }
  if (asked(o, "github") || std::string(environment("GITHUB_ACTIONS")) == "true") {
    write_compare_github(std::cout, result, options);
  }
  write_step_summary(o, result, code);
}

/// Throws UsageError if options contradict each other.
void check_options(const GateOptions& o) {
  const int sides =
      !o.baseline.empty() + !o.against.empty() + !o.against_kernel.empty() + !o.against_plugin.empty();
  if (sides > 1) throw UsageError("give one of --baseline, --against, --against-kernel and --against-plugin");
  if (sides == 0 && !o.calibrate) {
    throw UsageError(
        "nothing to compare with: give --baseline FILE (made with --update-baseline), --against PROGRAM, "
        "--against-kernel NAME or --against-plugin FILE");
  }
  if (o.against.find('/') != o.against.npos && access(o.against.c_str(), X_OK) != 0) {
    throw UsageError(fmt::format("--against {}: {}; a build of attnbench is required{}", o.against,
                                 std::strerror(errno), near_file(o.against)));
  }
  if (!o.against_kernel.empty() && o.kernels.size() != 1) {
    throw UsageError("--against-kernel NAME compares with the one kernel that --kernel names");
  }
  if (!o.against_plugin.empty() && o.plugins.size() != 1) {
    throw UsageError("--against-plugin OLD compares with the one plug-in that --plugin NEW names");
  }
  if (o.max_time_s && (o.calibrate || o.update_baseline)) {
    throw UsageError(fmt::format("--max-time limits reruns, and {} makes none: drop one of them",
                                 o.calibrate ? "--calibrate" : "--update-baseline"));
  }
  if (o.min_coverage && (o.calibrate || o.update_baseline)) {
    throw UsageError(fmt::format("--min-coverage judges a comparison, and {} makes none: drop one of them",
                                 o.calibrate ? "--calibrate" : "--update-baseline"));
  }
  if (o.update_baseline && o.baseline.empty()) throw UsageError("--update-baseline needs --baseline FILE");
  if (!o.baseline.empty() && !has_baseline(o) && !o.update_baseline && !o.calibrate) {
    throw UsageError(fmt::format("{}: there is no such baseline; --update-baseline makes one{}", o.baseline,
                                 near_file(o.baseline)));
  }
}

/// A gate that starts anew in a folder moves the turns that it finds there, and so must not read them.
void refuse_files_of_turns(const GateOptions& o) {
  if (o.out.empty()) return;
  std::vector<std::string> files = o.plugins;
  files.insert(files.end(), {o.baseline, noise_path(o), o.against, o.against_plugin});
  for (const std::string& file : files) {
    if (file.empty() || !is_in_turn(file, o.out)) continue;
    throw UsageError(fmt::format(
        "{} lies in a turn of the gate in --out {}, which is moved when a new one starts there: copy the file, or name "
        "another --out",
        file, o.out));
  }
}

/// Runs before the work, so that a wrong path or pattern costs nothing.
void check_paths(const GateOptions& o) {
  refuse_files_of_turns(o);
  if (!o.compare.min_effect_of.empty()) {
    std::vector<std::string> ids;
    for (const Case& c : load_cases(o.cases).cases) ids.push_back(c.id);
    o.compare.check_min_effect_of(ids);
  }
  for (const std::string& file :
       {o.update_baseline ? o.baseline : std::string(), o.calibrate ? noise_path(o) : std::string()}) {
    if (file.empty()) continue;
    make_folder(std::filesystem::path(file).parent_path());
    check_writable(file);
  }
}

/// Says that the machine is busy where the runs are for later gates. Other gates say by themselves why their
/// runs differ.
void say_if_busy_for_later(const GateOptions& o, const Program& program) {
  if (o.quiet || o.no_time || !(o.calibrate || o.update_baseline)) return;
  const std::string device = device_for(forwarded(o, "--device", "auto"), o.kernels, program.kernels);
  if (chosen_devices(device, true).front() != "cpu") return;
  say_if_busy(
      open_device("cpu")->info(),
      o.calibrate
          ? "the noise that is stored will be too wide, and later gates will miss slower kernels: stop "
            "what runs, or calibrate when it has ended"
          : "the times of the baseline will be too long and noisy: stop what runs, or make it when that "
            "has ended");
}

/// The command line, from the program's name on, that goes on with the gate in `dir`.
std::vector<std::string> resumed(const std::vector<std::string>& command, const std::string& dir) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (word == "--out" || word == "--resume") {
      ++i;  // its value
    } else if (!word.starts_with("--out=") && !word.starts_with("--resume=")) {
      out.push_back(word);
      // Right behind the command: the end may belong to an option of several values, or stand behind "--".
      if (i == 1) out.insert(out.end(), {"--resume", dir});
    }
  }
  return out;
}

/// The folder of the gate; creates it if the user named none.
std::filesystem::path folder_of(const GateOptions& o) {
  if (!o.resume.empty()) return o.resume;
  if (!o.out.empty()) return o.out;
  return new_run_folder("gate");
}

/// Runs both sides and reports the result.
class Gate {
 public:
  Gate(const GateOptions& o, Side fresh, Side base, std::vector<std::string> command)
      : o_(o),
        command_(std::move(command)),
        policy_{!o.baseline.empty(), o.update_baseline, o.no_time, o.reruns},
        runs_(folder_of(o), gate_settings(o), !o.resume.empty(), o.quiet),
        fresh_side_(std::move(fresh)),
        base_side_(std::move(base)) {
    if (o.resume.empty()) keep_earlier_comparison(runs_.dir(), o.quiet);
  }

  int calibrate_and_store() {
    SideRun last;
    const int code = calibrate(o_, fresh_side_, runs_, last);
    if (code != 0 || !o_.update_baseline) {
      return ended(code == 0 ? "the noise between runs is stored" : "not calibrated", code);
    }
    for (int i = 1; i <= runs_.count(); ++i) for_baseline_.push_back(i);
    return stored(store_baseline(last.exit_code));
  }

  int compare() {
    const bool replaces = has_baseline(o_);
    if (replaces) {
      base_.results = load_results(o_.baseline);
      if (base_.results.context.device.trust == "in_process") {
        throw UsageError(
            fmt::format("{}: its kernels ran in the process that judged them (--in-process); run it again "
                        "without",
                        o_.baseline));
      }
      if (o_.no_time) drop_times(base_.results);
      if (!o_.update_baseline) check_before(o_, fresh_side_, base_.results, runs_);
    }
    run_first();
    if (o_.update_baseline && !replaces) return stored(store_baseline(fresh_.exit_code));
    // Wrong results are reported before a mismatch.
    if (!o_.no_time && !o_.update_baseline && !run_is_broken(fresh_.exit_code)) {
      check_alike(base_.results, fresh_.results, o_.compare.allow_mismatch);
    }
    CompareOptions options;
    constexpr double kSlicesS = 75;
    const std::optional<double> most_s =
        o_.max_time_s || !o_.slices ? o_.max_time_s : std::max(kSlicesS, 3 * first_s_);
    const RoundLimits limits{rerun_rounds(policy_, base_.results), most_s, first_s_, runs_of_round(policy_),
                             run_is_broken(fresh_.exit_code)};
    const Decision decision = decide(
        limits, fresh_.results, [&] { return judge(options); }, [&](const Round& round) { run_again(round); },
        [&] { return runs_.seconds(); });
    int code = gate_exit_code(policy_, decision.result, options, fresh_);
    if (run_is_broken(base_.exit_code)) {
      std::cerr
          << "gate: note: the base side has cases that are wrong, crash or did not run; they are not compared\n";
    }
    if (o_.update_baseline) code = store_baseline(fresh_.exit_code);
    std::string found = gate_outcome(policy_, decision.result, options, code);
    const std::vector<std::string> uncovered =
        too_little_run(fresh_.results.results, o_.min_coverage.value_or(0));
    const bool well = code == 0;
    if (!uncovered.empty()) code = worse_exit_code(code, 1);
    report(o_, runs_, decision.result, options, code, told_);
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    if (code != 0) std::cerr << hidden_text(decision.result, fresh_.results.context.device, cores);
    print_reruns(decision.rerun.size());
    for (const std::string& kernel : uncovered) std::cout << "gate: " << one_line(kernel) << "\n";
    if (!uncovered.empty())
      found += fmt::format("{} {} ran too few cases (--min-coverage)", well ? ", but" : ",",
                           counted(std::ssize(uncovered), "kernel"));
    return compared(found, code);
  }

  /// What there is of a gate that was interrupted.
  void report_interrupted() {
    if (!o_.calibrate && (!o_.update_baseline || has_baseline(o_))) {
      CompareOptions options;
      CompareResult result;
      if ((policy_.stored_baseline || base_.runs > 0) && fresh_.runs > 0) result = judge(options);
      leave_undecided(result, fresh_.results);
      result.interrupted = true;
      const std::string of_base =
          policy_.stored_baseline ? "" : fmt::format(", {} of {}", base_.runs, base_side_.name);
      result.stopped = fmt::format("interrupted: this compares the turns that had finished, {} of {}{}",
                                   fresh_.runs, fresh_side_.name, of_base);
      report(o_, runs_, result, options, kExitInterrupted, told_);
      compared(gate_outcome(policy_, result, options, kExitInterrupted), kExitInterrupted);
    }
    std::cerr << fmt::format("gate: interrupted at {}; finished: {}. To go on: {}\n", runs_.turn_text(),
                             counted(runs_.finished(), "turn"),
                             shell_line(resumed(command_, runs_.dir().string())));
  }

 private:
  bool shows_table(const Side& side) const { return !o_.quiet && &side == &fresh_side_ && fresh_.runs == 0; }

  void run_side(const Side& side, GateSide& into, const std::vector<std::string>& more,
                const std::string& why) {
    take(side, into,
         runs_.run(side, more, why, shows_table(side) ? GateRuns::Show::kAll : GateRuns::Show::kProgress));
  }

  /// A turn of each side, in slices.
  void run_both(bool base_first, const std::vector<std::string>& more, const std::string& why) {
    const Side *first = base_first ? &base_side_ : &fresh_side_,
               *second = base_first ? &fresh_side_ : &base_side_;
    const auto show = [&](const Side* side) {
      return shows_table(*side)    ? GateRuns::Show::kAll
             : side == &base_side_ ? GateRuns::Show::kErrors  // the other side shows progress
                                   : GateRuns::Show::kProgress;
    };
    auto [a, b] = runs_.run_both({first, second}, more, why, {show(first), show(second)});
    take(base_side_, base_, std::move(base_first ? a : b));
    take(fresh_side_, fresh_, std::move(base_first ? b : a));
  }

  void take(const Side& side, GateSide& into, SideRun r) {
    const bool table = shows_table(side);
    if (r.exit_code == 6 && r.results.results.empty()) {
      std::cerr << "gate: no case ran, so there is nothing to compare; exit code 6\n";
      throw GateStop{6};
    }
    for (const Record& result : r.results.results) {
      if (table && needs_attention(result.status)) told_.insert(record_name(result));
    }
    add_run(into, r.exit_code, std::move(r.results));
  }

  void run_round(const std::vector<std::string>& more, const std::string& why) {
    const bool first = fresh_.runs == 0 && base_.runs == 0;
    const double began_s = runs_.seconds();
    if (policy_.stored_baseline) {
      run_side(fresh_side_, fresh_, more, why);
      for_baseline_.push_back(runs_.count());
      if (first) say_what_is_ahead(runs_.seconds() - began_s);
      return;
    }
    if (o_.slices) {
      run_both(true, more, why);
    } else {
      run_side(base_side_, base_, more, why);
    }
    if (first) say_what_is_ahead((runs_.seconds() - began_s) / (o_.slices ? 2 : 1));
    if (!o_.slices) run_side(fresh_side_, fresh_, more, why);
    if (run_is_broken(fresh_.exit_code)) {
      if (!o_.quiet)
        std::cerr << "gate: the new side is wrong or crashed, which settles the exit code: no more turns\n";
      return;
    }
    if (o_.slices) return run_both(false, more, why);
    run_side(fresh_side_, fresh_, more, why);
    run_side(base_side_, base_, more, why);
  }

  int turns_of_round() const {
    const MoreRuns runs = runs_of_round(policy_);
    return runs.base + runs.fresh;
  }

  void say_what_is_ahead(double turn_s) const {
    const double first_s = runs_.seconds() + turn_s * (runs_.planned() - runs_.finished());
    if (o_.max_time_s && first_s > *o_.max_time_s) {
      std::cerr << fmt::format(
          "gate: the first round takes about {}, longer than --max-time: it is finished all the same\n",
          duration_text(first_s));
    }
    if (o_.quiet) return;
    const int rounds = o_.no_time ? 0 : rerun_rounds(policy_, base_.results);
    Ahead ahead = ahead_of_turns(o_, runs_, turn_s);
    ahead.turns_a_round = turns_of_round();
    ahead.rounds = rounds;
    std::cerr << ahead_text(ahead);
  }

  void run_again(const Round& round) {
    if (!o_.quiet && !runs_.next_has_ended()) std::cerr << round_text(round);
    std::vector<std::string> more = first_s_ <= o_.whole_s ? std::vector<std::string>{} : only(o_, round.ids);
    more.push_back("--no-ceilings");
    runs_.plan(turns_of_round());
    run_round(more, fmt::format("round {} of {}", round.number, round.of));
  }

  void run_first() {
    const double began_s = runs_.seconds();
    const int rounds = o_.update_baseline && !o_.no_time ? o_.runs : 1;
    runs_.plan(rounds * turns_of_round());
    run_round({}, policy_.stored_baseline ? "all cases" : "all cases; the turns are base, new, new, base");
    first_s_ = runs_.seconds() - began_s;
    for (int i = 1; i < rounds; ++i) run_round({}, "all cases");
  }

  CompareResult judge(CompareOptions& options) const {
    options = gate_options(o_.compare.options(base_.results, fresh_.results), policy_, base_.results,
                           fresh_.results);
    const std::string noise = noise_path(o_);
    if (options.noise_of.empty() && !noise.empty() && std::filesystem::exists(noise)) {
      options.noise_of = load_noise(noise).noise_of;
    }
    CompareResult result = compare_results(base_.results, fresh_.results, options);
    result.verdicts_only = o_.no_time;
    return result;
  }

  int store_baseline(int run_code) {
    return update_baseline(o_, runs_, fresh_side_, for_baseline_, run_code);
  }

  void print_reruns(std::size_t rerun) const {
    if (rerun == 0) return;
    std::cout << fmt::format("more rounds were run for {}{}\n", counted(static_cast<int64_t>(rerun), "case"),
                             policy_.stored_baseline
                                 ? ", on the new side only: a stored baseline has no further samples"
                                 : ", both sides in turns");
  }

  /// Prints the last line, what was found and the exit code, and returns the code.
  static int ended(const std::string& found, int code) {
    std::cout << fmt::format("gate: {}; exit code {}\n", found, code);
    return code;
  }

  int compared(const std::string& found, int code) const {
    return ended(
        o_.update_baseline && code == 0 ? "the baseline is replaced; against the old one, " + found : found,
        code);
  }

  int stored(int code) const {
    return ended(code == 0 ? "the baseline is written" : "the baseline is not written", code);
  }

  const GateOptions& o_;
  std::vector<std::string> command_;  ///< as the user gave it
  GatePolicy policy_;
  GateRuns runs_;
  Side fresh_side_, base_side_;
  GateSide fresh_, base_;
  std::set<std::string> told_;     ///< failures that the new side's first turn has shown, "<id>/<kernel>"
  double first_s_ = 0;             ///< duration of the first round, all its sides included
  std::vector<int> for_baseline_;  ///< numbers of the runs for the baseline
};

}  // namespace

int gate(GateOptions o, const Program& program) {
  check_options(o);
  check_resume(o.resume, o.out, o.cases);
  if (!o.against_kernel.empty()) o.compare.match = "case";
  check_paths(o);
  choose_kernels_of_plugins(o, program);
  say_if_busy_for_later(o, program);
  choose_clock(o, program);
  const Cases cases = load_cases(o.cases);
  if (cases.exit_code() != 0)
    throw UsageError("a gate compares whole traces; mend or remove the files named above");
  say_duplicates(cases);  // the runs do not: each would say the same
  const std::optional<GateOptions> other =
      o.against_plugin.empty() ? std::nullopt : std::optional(with_other_plugin(o, program));
  const Side fresh{"new", program_file(), run_arguments(o, o.kernels)};
  Side base{"base", o.against.empty() ? fresh.program : o.against, fresh.args};
  if (!o.against_kernel.empty()) base.args = run_arguments(o, {o.against_kernel});
  if (other) base.args = run_arguments(*other, other->kernels);
  Gate gate(o, fresh, base, program.command_line);
  try {
    return o.calibrate ? gate.calibrate_and_store() : gate.compare();
  } catch (const GateStop& stop) {
    if (stop.exit_code == kExitInterrupted) gate.report_interrupted();
    throw;
  }
}

}  // namespace attnbench::cli
