#include "harness/cli/gate.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

#include "harness/cli/plugins.h"
#include "harness/compare/pool.h"
#include "harness/record/files.h"
#include "harness/report/compare_formats.h"
#include "harness/report/compare_print.h"
#include "harness/report/console.h"

namespace attnbench::cli {
namespace {

constexpr std::size_t kSummaryRows = 300;  ///< GitHub takes 1 MiB of step summary
/// A short kernel's time has a spread of a tenth and takes a tenth of a millisecond to sample.
constexpr const char* kMaxSamples = "1000";

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool asked(const GateOptions& o, const char* format) {
  return std::find(o.formats.begin(), o.formats.end(), format) != o.formats.end();
}

std::string regex_quoted(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("^$\\.*+?()[]{}|/").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

/// Options of `run` that choose just these cases again.
std::vector<std::string> only(const GateOptions& o, const std::set<std::string>& ids) {
  std::vector<std::string> args;
  if (!o.cases.chosen.empty()) {  // --case would add to them
    std::string re;
    for (const std::string& id : ids) re += (re.empty() ? "^(" : "|") + regex_quoted(id);
    return {"--filter", re + ")$"};
  }
  for (const std::string& id : ids) args.insert(args.end(), {"--case", id});
  return args;
}

CompareResult judge(const GateOptions& o, const ResultSet& base, const ResultSet& fresh,
                    CompareOptions& options) {
  options = o.compare.options(base, fresh);
  options.in_turns = o.baseline.empty();
  if (options.noise_of.empty() && !noise_path(o).empty() && std::filesystem::exists(noise_path(o))) {
    options.noise_of = load_noise(noise_path(o)).noise_of;
  }
  if (!o.no_time) {
    for (const std::string& m : context_mismatches(base, fresh))
      options.as_sol = options.as_sol || !m.empty();
  }
  return compare_results(base, fresh, options);
}

/// Of a baseline with times, for a gate that takes none: what was right, and what was there.
void drop_times(ResultSet& set) {
  for (LoadedResult& r : set.results) {
    r.median_us = r.lo_us = r.hi_us = r.sol = std::nullopt;
    r.samples_us.clear();
  }
}

/// Before minutes are spent: would the new side's results be comparable at all?
void check_before(const GateOptions& o, const Side& fresh, const ResultSet& base, GateRuns& runs) {
  if (o.no_time) return;  // right or wrong is the same on every machine
  const SideRun probe = runs.run(fresh, {"--no-time", "--filter", "^$", "--quiet"}, "which device is it",
                                 GateRuns::Show::kErrors);
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
  std::ofstream out(path, std::ios::app);
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

void report(const GateOptions& o, const GateRuns& runs, const CompareResult& result,
            const CompareOptions& options, int code) {
  const auto write = [&](const char* name, const char* format) {
    std::ostringstream text;
    write_compare(text, format, result, options);
    const std::filesystem::path path = runs.dir() / name;
    write_file_atomically(path, text.str());
    std::cout << "report: " << path.string() << "\n";
  };
  const std::size_t width = terminal_width(STDOUT_FILENO);
  print_compare(std::cout, result, {width, width > 0 && !std::getenv("NO_COLOR")});
  write("compare.json", "json");
  if (asked(o, "md")) write("compare.md", "md");
  if (asked(o, "junit")) write("compare.junit.xml", "junit");
  if (asked(o, "github") || std::string(environment("GITHUB_ACTIONS")) == "true") {
    write_compare_github(std::cout, result, options);
  }
  write_step_summary(o, result, code);
}

/// The names of a plug-in's kernels: of several builds of one, only they are worth a comparison.
std::vector<std::string> kernel_names(const LoadedPlugin& plugin) {
  std::set<std::string> names;
  for (const Kernel* k : plugin.kernels) names.insert(k->name);
  return {names.begin(), names.end()};
}

/// The new side runs the kernels of --plugin, the other one, whose options are returned, those of
/// --against-plugin.
GateOptions with_other_plugin(GateOptions& o, const Program& program) {
  GateOptions other = o;
  other.plugins = {o.against_plugin};
  if (!o.kernels.empty()) return other;
  o.kernels = kernel_names(program.plugins.front());
  other.kernels = kernel_names(load_tried_plugin("--against-plugin", o.against_plugin));
  return other;
}

int gate(GateOptions o, const Program& program) {
  const int sides =
      !o.baseline.empty() + !o.against.empty() + !o.against_kernel.empty() + !o.against_plugin.empty();
  if (sides > 1) throw UsageError("give one of --baseline, --against, --against-kernel and --against-plugin");
  if (sides == 0 && !o.calibrate) {
    throw UsageError(
        "nothing to compare with: give --baseline FILE (made with --update-baseline), --against PROGRAM, "
        "--against-kernel NAME or --against-plugin FILE");
  }
  if (!o.against_kernel.empty() && o.kernels.size() != 1) {
    throw UsageError("--against-kernel NAME compares with the one kernel that --kernel names");
  }
  if (!o.against_plugin.empty() && o.plugins.size() != 1) {
    throw UsageError("--against-plugin OLD compares with the one plug-in that --plugin NEW names");
  }
  if (!o.against_kernel.empty()) o.compare.match = "case";
  if (o.update_baseline && o.baseline.empty()) throw UsageError("--update-baseline needs --baseline FILE");
  const bool has_baseline = !o.baseline.empty() && std::filesystem::exists(o.baseline);
  if (!o.baseline.empty() && !has_baseline && !o.update_baseline && !o.calibrate) {
    throw UsageError(fmt::format("{}: there is no such baseline; --update-baseline makes one", o.baseline));
  }

  // Before the work, so that a wrong path or pattern costs nothing.
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

  std::filesystem::path dir = o.out;
  if (o.out.empty()) {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    dir = std::filesystem::path("results") / "runs" / fmt::format("{:%Y%m%d-%H%M%S}-gate", local);
  }
  const std::optional<GateOptions> other =
      o.against_plugin.empty() ? std::nullopt : std::optional(with_other_plugin(o, program));
  GateRuns runs(dir, o.quiet);
  const Side fresh_side{"new", own_program(), run_arguments(o, o.kernels)};
  SideRun fresh;
  std::vector<int> for_baseline;  // numbers of the runs
  if (o.calibrate) {
    const int code = calibrate(o, fresh_side, runs, fresh);
    if (code != 0 || !o.update_baseline) return code;
    for (int i = 1; i <= runs.count(); ++i) for_baseline.push_back(i);
    return update_baseline(o, runs, fresh_side, for_baseline, fresh.exit_code);
  }

  Side base_side{"base", o.against.empty() ? fresh_side.program : o.against, fresh_side.args};
  if (!o.against_kernel.empty()) base_side.args = run_arguments(o, {o.against_kernel});
  if (other) base_side.args = run_arguments(*other, other->kernels);
  const bool file = !o.baseline.empty();
  ResultSet base;
  if (file && has_baseline) {
    base = load_results(o.baseline);
    if (o.no_time) drop_times(base);
    if (!o.update_baseline) check_before(o, fresh_side, base, runs);
  }
  int base_code = 0;
  const auto round = [&](const std::vector<std::string>& more, const std::string& why, bool first) {
    const auto once = [&](const Side& side, ResultSet& into, int& code, bool begin) {
      const bool table = begin && &side == &fresh_side;
      SideRun r = runs.run(side, more, why, table ? GateRuns::Show::kAll : GateRuns::Show::kProgress);
      code = worse_exit_code(code, r.exit_code > 6 ? 5 : r.exit_code);
      if (begin) {
        into = std::move(r.results);
      } else {
        pool_runs(into, r.results);
      }
    };
    if (file) {
      once(fresh_side, fresh.results, fresh.exit_code, first);
      for_baseline.push_back(runs.count());
      return;
    }
    once(base_side, base, base_code, first);
    once(fresh_side, fresh.results, fresh.exit_code, first);
    once(fresh_side, fresh.results, fresh.exit_code, false);
    once(base_side, base, base_code, false);
  };
  const auto started = std::chrono::steady_clock::now();
  round({}, file ? "all cases" : "all cases, base new new base", true);
  const double first_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  for (int i = 1; o.update_baseline && !o.no_time && i < o.runs; ++i) {
    round({}, fmt::format("all cases, {} of {}", i + 1, o.runs), false);
  }
  if (o.update_baseline && !has_baseline) {
    return update_baseline(o, runs, fresh_side, for_baseline, fresh.exit_code);
  }
  const bool broken = fresh.exit_code == 1 || fresh.exit_code == 5;  // what is wrong is said first
  if (!o.no_time && !o.update_baseline && !broken) {
    check_alike(base, fresh.results, o.compare.allow_mismatch);
  }

  CompareOptions options;
  CompareResult result = judge(o, base, fresh.results, options);
  std::set<std::string> rerun;
  const int reruns = o.reruns.value_or(file && base.context.device_kind == "cpu" ? kRerunsOfCpu : kReruns);
  for (int i = 0; i < reruns && !o.update_baseline; ++i) {
    const std::set<std::string> ids = undecided_cases(result, fresh.results);
    if (ids.empty()) break;
    rerun.insert(ids.begin(), ids.end());
    const bool whole = first_s <= o.whole_s;
    std::vector<std::string> more = whole ? std::vector<std::string>{} : only(o, ids);
    more.push_back("--no-ceilings");
    round(more, fmt::format("{} undecided, round {} of {}", ids.size(), i + 1, reruns), false);
    result = judge(o, base, fresh.results, options);
  }

  int code = compare_exit_code(result, options);
  const bool any_right = std::any_of(fresh.results.results.begin(), fresh.results.results.end(),
                                     [](const LoadedResult& r) { return r.status == Status::kPass; });
  if (code == 6 && o.no_time && any_right) code = 0;
  if (fresh.exit_code == 1 || fresh.exit_code == 5 || fresh.exit_code == 6) {
    code = worse_exit_code(code, fresh.exit_code);
  }
  if (base_code == 1 || base_code == 5) {
    std::cerr << "gate: note: the base side has cases that are wrong or crash; they are not compared\n";
  }
  if (o.update_baseline) code = update_baseline(o, runs, fresh_side, for_baseline, fresh.exit_code);
  report(o, runs, result, options, code);
  if (o.no_time && !o.update_baseline) {
    const auto right = std::count_if(fresh.results.results.begin(), fresh.results.results.end(),
                                     [](const LoadedResult& r) { return r.status == Status::kPass; });
    std::cout << fmt::format("right or wrong alone: {} right, {} incorrect, {} missing in new\n", right,
                             result.count(Change::kIncorrect), result.count(Change::kMissingNew));
  }
  if (!rerun.empty()) {
    std::cout << fmt::format(
        "{} run again{}\n", rerun.size() == 1 ? "1 case was" : fmt::format("{} cases were", rerun.size()),
        file ? ", on the new side only: a stored baseline has no further samples" : ", both sides in turns");
  }
  return code;
}

}  // namespace

std::vector<std::string> run_arguments(const GateOptions& o, const std::vector<std::string>& kernels) {
  std::vector<std::string> args = o.cases.configs;
  const auto add = [&](const char* name, const std::vector<std::string>& values) {
    for (const std::string& v : values) args.insert(args.end(), {name, v});
  };
  add("--case", o.cases.chosen);
  add("--set", o.cases.overrides);
  if (o.cases.seed) add("--seed", {std::to_string(*o.cases.seed)});
  if (!o.cases.filter.empty()) add("--filter", {o.cases.filter});
  add("--kernel", kernels);
  add("--plugin", o.plugins);
  args.insert(args.end(), o.forwarded.begin(), o.forwarded.end());
  const bool limited =
      std::find(o.forwarded.begin(), o.forwarded.end(), "--max-samples") != o.forwarded.end();
  if (!o.no_time && !limited) add("--max-samples", {kMaxSamples});
  if (o.no_time) args.push_back("--no-time");
  return args;
}

std::string noise_path(const GateOptions& o) {
  if (!o.compare.noise.empty()) return o.compare.noise;
  if (o.baseline.empty()) return "";
  std::filesystem::path path = o.baseline;
  return path.replace_extension(".noise.json").string();
}

void add_gate(CLI::App& app, Program& program) {
  auto* command =
      app.add_subcommand("gate", "Run, compare with a baseline, run again what is undecided: for CI");
  auto o = std::make_shared<GateOptions>();
  o->cases.add(*command);
  command->add_option("--baseline", o->baseline, "Results to compare with")
      ->check(has_a_name)
      ->type_name("FILE");
  command
      ->add_option("--against", o->against,
                   "Compare with another build of this program, run here in turns (base new new base)")
      ->type_name("PROGRAM");
  command
      ->add_option("--against-kernel", o->against_kernel,
                   "Compare --kernel NEW with this kernel on the same cases, in turns")
      ->type_name("NAME");
  command
      ->add_option(
          "--against-plugin", o->against_plugin,
          "Compare --plugin NEW with this build of it, in turns; without --kernel, their kernels alone")
      ->type_name("FILE");
  command->add_flag("--update-baseline", o->update_baseline, "Write the new results to --baseline");
  command->add_flag(
      "--calibrate", o->calibrate,
      "Learn the noise between equal runs on this machine, and store it where later gates find it");
  command->add_option("--pairs", o->pairs, "Pairs of runs that --calibrate makes (default 5)")
      ->type_name("N")
      ->check(CLI::Range(2, 1000));
  command->add_option("--runs", o->runs, "Runs that --update-baseline makes and pools (default 16)")
      ->type_name("N")
      ->check(CLI::Range(1, 1000));
  command
      ->add_option("--reruns", o->reruns,
                   "Rounds of reruns of undecided cases (default 12; against a stored baseline of a CPU 4)")
      ->type_name("N")
      ->check(CLI::Range(0, 100));
  command
      ->add_option(
          "--rerun-whole", o->whole_s,
          "Reruns repeat all cases where the first run took at most S seconds, since what ran before a "
          "case shows in its time; else, and with 0, only undecided cases (default 120)")
      ->type_name("S")
      ->check(number_in(0.0, 1e6));
  o->compare.add(*command);
  command->add_option("--kernel", o->kernels, "Only this kernel; may be repeated")
      ->type_name("NAME")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);  // a file may follow
  add_plugin_option(*command, program);
  for (const auto& [name, type, help] :
       std::vector<std::array<const char*, 3>>{{"--device", "DEVICE", "As of run"},
                                               {"--check", "MODE", "As of run"},
                                               {"--cache", "MODE", "As of run"},
                                               {"--min-time", "S", "As of run"},
                                               {"--max-samples", "N", "As of run"},
                                               {"--threads", "N", "As of run"},
                                               {"--timeout", "S", "As of run"}}) {
    command
        ->add_option_function<std::string>(
            name,
            [o, option = std::string(name)](const std::string& v) {
              o->forwarded.insert(o->forwarded.end(), {option, v});
            },
            help)
        ->type_name(type);
  }
  for (const char* name : {"--graph", "--no-ceilings", "--in-process"}) {
    command->add_flag_callback(
        name, [o, option = std::string(name)] { o->forwarded.push_back(option); }, "As of run");
  }
  command->add_flag("--no-time", o->no_time,
                    "Right or wrong only: nothing is timed, any machine's baseline will do");
  command->add_option("-o,--out", o->out, "Folder of the runs and reports (default: results/runs/DATE-gate)")
      ->check(has_a_name)
      ->type_name("DIR");
  command
      ->add_option(
          "--format", o->formats,
          "Beside the text and compare.json: md, junit (files), github (annotations; on by itself where "
          "GITHUB_ACTIONS is true)")
      ->type_name("LIST")
      ->allow_extra_args(false)
      ->delimiter(',')
      ->check(CLI::IsMember({"md", "json", "junit", "github"}));
  command->add_flag("-q,--quiet", o->quiet, "No progress");
  command->footer(
      "Compares as attnbench compare does (midmeans; see its --help).\n"
      "Examples:\n"
      "  attnbench gate configs/ci.yaml --baseline ci.json --update-baseline\n"
      "  attnbench gate configs/ci.yaml --baseline ci.json --calibrate --pairs 10\n"
      "  attnbench gate configs/ci.yaml --baseline ci.json --format junit,md\n"
      "  attnbench gate configs/ci.yaml --against ../base/build/attnbench --min-effect 5\n"
      "  attnbench gate configs/ci.yaml --kernel new --against-kernel old\n"
      "  attnbench gate configs/ci.yaml --plugin ./mine.so --against-plugin base/mine.so\n"
      "Exit codes: 0 none slower, 1 incorrect or missing, 2 usage or another machine's baseline, 3 slower,\n"
      "  4 inconclusive, 5 crash, 6 nothing ran.");
  command->callback([=, &program] {
    program.chosen = [=, &program] {
      o->plugins = program.plugin_files;
      try {
        return gate(*o, program);
      } catch (const GateStop& stop) {
        return stop.exit_code;
      }
    };
  });
}

}  // namespace attnbench::cli
