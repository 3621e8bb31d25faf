#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <set>
#include <sstream>

#include "harness/cli/child_program.h"
#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/device_options.h"
#include "harness/cli/earlier_run.h"
#include "harness/cli/gate.h"
#include "harness/cli/option.h"
#include "harness/cli/peers.h"
#include "harness/cli/plugins.h"
#include "harness/cli/usage_error.h"
#include "harness/compare/ratio.h"
#include "harness/results/load.h"

namespace attnbench::cli {
namespace {

/// A short kernel's time has a spread of 10 % and takes 0.1 ms to sample.
constexpr const char* kMaxSamples = "1000";
/// Many short turns tell more than few long ones: a machine is slower or quicker for seconds.
constexpr const char* kSamplesOfSlices = "15";

/// Options for what is compared and what is written.
void add_sides(CLI::App& command, const std::shared_ptr<GateOptions>& o) {
  path_option(command, "--baseline", o->baseline, "FILE", "Results to compare with");
  option(command, "--against", o->against, "PROGRAM",
         "Compare with another build of this program, run here in turns (base new new base)");
  option(command, "--against-kernel", o->against_kernel, "NAME",
         "Compare --kernel NEW with this kernel on the same cases, in turns");
  option(command, "--against-plugin", o->against_plugin, "FILE",
         "Compare --plugin NEW with this other build of the same plug-in, in turns; without --kernel only "
         "their kernels run");
  command.add_flag("--update-baseline", o->update_baseline, "Write the new results to --baseline");
  command.add_flag(
      "--calibrate", o->calibrate,
      "Measure how far equal turns on this machine lie apart, and store that beside the baseline, where later "
      "gates find it (ci.noise.json beside ci.json)");
}

/// Options for the number of turns and rounds.
void add_counts(CLI::App& command, const std::shared_ptr<GateOptions>& o) {
  option(command, "--pairs", o->pairs, "N", "Pairs of equal turns that --calibrate makes (default 5)")
      ->check(CLI::Range(2, 1000));
  option(
      command, "--runs", o->runs, "N",
      "Turns of --update-baseline: so many runs of each case are pooled (default 16). Not with --calibrate, "
      "whose turns, two for each of --pairs, are then the baseline too")
      ->check(CLI::Range(1, 1000));
  option(command, "--reruns", o->reruns, "N",
         "Most rounds that run undecided cases again (default 12; against a stored baseline of a CPU 4)")
      ->check(CLI::Range(0, 100));
  option(
      command, "--max-time", o->max_time_s, "S",
      "After S seconds of wall time, those before --resume included, no new round begins. The first round "
      "and one that has begun are finished, and count. Cases that are undecided then are "
      "inconclusive: exit code 4, or 0 with --allow-inconclusive (default: no limit; with CPU time in turns 75, or three first rounds if they take longer)")
      ->check(number_in(0.0, 1e6));
  option(command, "--rerun-whole", o->whole_s, "S",
         "If the first round took at most S seconds, later rounds repeat all cases, because the time of a "
         "case depends on what ran before it; otherwise only the undecided ones (default 120; 0: only these)")
      ->check(number_in(0.0, 1e6));
}

/// Options that are passed to `run` unchanged.
void add_forwarded(CLI::App& command, const std::shared_ptr<GateOptions>& o) {
  for (const auto& [name, type, help] : std::vector<std::array<const char*, 3>>{
           {"--device", "DEVICE", "Passed on to run"},
           {"--check", "MODE", "Passed on to run"},
           {"--cache", "MODE", "Passed on to run"},
           {"--clock", "CLOCK", "wall, cpu or auto, as of run (default: that of the baseline; else auto)"},
           {"--min-time", "S", "Passed on to run"},
           {"--max-samples", "N", "Passed on to run"},
           {"--threads", "N", "Passed on to run"},
           {"--timeout", "S", "Passed on to run"}}) {
    command
        .add_option_function<std::string>(
            name,
            [o, option = std::string(name)](const std::string& v) {
              o->forwarded.insert(o->forwarded.end(), {option, v});
            },
            help)
        ->type_name(type);
  }
  for (const char* name : {"--graph", "--trust", "--no-ceilings", "--in-process"}) {
    command.add_flag_callback(
        name, [o, option = std::string(name)] { o->forwarded.push_back(option); }, "Passed on to run");
  }
}

/// The names of a plug-in's kernels. When several builds of it are compared, only these kernels run.
std::vector<std::string> kernel_names(const LoadedPlugin& plugin) {
  std::set<std::string> names;
  for (const Kernel* k : plugin.kernels) names.insert(k->name);
  return {names.begin(), names.end()};
}

/// Whether the other build of this program is new enough for --clock; true without one.
bool knows_clock(const std::string& program) {
  if (program.empty()) return true;
  const std::filesystem::path help =
      std::filesystem::temp_directory_path() / fmt::format("attnbench-help-{}.txt", getpid());
  run_program({program, "run", "--help"}, help, /*silent=*/true);
  std::ostringstream text;
  text << std::ifstream(help).rdbuf();
  std::error_code ec;
  std::filesystem::remove(help, ec);
  return text.str().find("--clock") != std::string::npos;
}

}  // namespace

bool has_baseline(const GateOptions& o) { return !o.baseline.empty() && std::filesystem::exists(o.baseline); }

std::string forwarded(const GateOptions& o, const std::string& option, const std::string& otherwise) {
  const auto found = std::ranges::find(o.forwarded, option);
  return found == o.forwarded.end() ? otherwise : *std::next(found);
}

void choose_clock(GateOptions& o, const Program& program) {
  const bool turns = o.baseline.empty();
  const std::string given = forwarded(o, "--clock", "auto"), threads = forwarded(o, "--threads", "");
  o.slices = turns && given == "cpu" && !o.no_time;
  if (o.no_time || given != "auto") return;
  std::optional<TimeClock> clock;
  for (const char* first : {"1-base", "1-new"}) {
    if (!clock && !o.resume.empty()) clock = earlier_clock(std::filesystem::path(o.resume) / first);
  }
  if (!clock && has_baseline(o) && !o.update_baseline) {
    for (const Record& r : load_results(o.baseline).results) clock = r.time ? r.time->clock : clock;
  }
  if (!clock && (threads == "1" || (turns && threads.empty())) && knows_clock(o.against))
    clock = clock_for(device_for(forwarded(o, "--device", "auto"), o.kernels, program.kernels), o.quiet);
  if (clock != TimeClock::kCpu) return;
  o.slices = turns;
  o.forwarded.insert(o.forwarded.end(), {"--clock", "cpu"});
  if (turns && threads.empty()) o.forwarded.insert(o.forwarded.end(), {"--threads", "1"});
}

void choose_kernels_of_plugins(GateOptions& o, const Program& program) {
  const bool own = program.plugins.size() > program.peer_files.size();
  if (!o.kernels.empty() || !own || o.baseline.empty()) return;
  std::set<std::string> names;
  for (const LoadedPlugin& plugin : program.plugins) {
    for (const std::string& name : kernel_names(plugin)) names.insert(name);
  }
  if (has_baseline(o) && !o.update_baseline) {
    for (const Record& r : load_results(o.baseline).results) names.insert(r.kernel);
  }
  o.kernels.assign(names.begin(), names.end());
  if (!o.quiet) {
    std::cerr << fmt::format(
        "gate: note: without --kernel, the kernels of plug-ins and of the baseline run: {}\n",
        fmt::join(o.kernels, ", "));
  }
}

GateOptions with_other_plugin(GateOptions& o, const Program& program) {
  GateOptions other = o;
  other.plugins = {o.against_plugin};
  if (!o.kernels.empty()) return other;
  o.kernels = kernel_names(program.plugins.front());
  const LoadedPlugin against = described_plugin("--against-plugin", o.against_plugin, program);
  other.kernels = kernel_names(against);
  const auto common =
      std::find_first_of(o.kernels.begin(), o.kernels.end(), other.kernels.begin(), other.kernels.end());
  if (common == o.kernels.end()) {
    throw UsageError(fmt::format(
        "no kernel of --plugin ({}) has the name of one of --against-plugin ({}): give both files by --plugin, and "
        "--kernel {} --against-kernel {}",
        fmt::join(o.kernels, ", "), fmt::join(other.kernels, ", "), o.kernels.front(),
        other.kernels.front()));
  }
  if (!o.quiet && against.digest == program.plugins.front().digest) {
    std::cerr
        << "gate: note: --plugin and --against-plugin have the same content, so a change is noise: was one of them not built anew?\n";
  }
  return other;
}

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
  if (!o.python.empty()) add("--python", {o.python});
  add("--require", o.required);
  args.insert(args.end(), o.forwarded.begin(), o.forwarded.end());
  const bool limited = std::ranges::find(o.forwarded, "--max-samples") != o.forwarded.end();
  if (!o.no_time && !limited) add("--max-samples", {o.slices ? kSamplesOfSlices : kMaxSamples});
  if (o.no_time) args.push_back("--no-time");
  return args;
}

Ahead ahead_of_turns(const GateOptions& o, const GateRuns& runs, double turn_s) {
  Ahead ahead;
  ahead.turn_s = turn_s;
  ahead.turns_left = runs.planned() - runs.finished();
  ahead.so_far_s = runs.seconds();
  ahead.max_time_s = o.max_time_s;
  ahead.filtered = !o.cases.filter.empty();
  ahead.heads_set = std::ranges::any_of(o.cases.overrides,
                                        [](const std::string& set) { return set.starts_with("heads="); });
  return ahead;
}

std::string noise_path(const GateOptions& o) {
  if (!o.compare.noise.empty()) return o.compare.noise;
  if (o.baseline.empty()) return "";
  std::filesystem::path path = o.baseline;
  return path.replace_extension(".noise.json").string();
}

GateSettings gate_settings(const GateOptions& o) {
  // Where a file lies means nothing; what it holds, much.
  const auto digest = [](const std::string& file) {
    std::error_code ec;
    return file.empty() || !std::filesystem::exists(file, ec)
               ? std::string()
               : fmt::format("{:016x}", name_seed(read_results_text(file)));
  };
  const bool compares = !o.calibrate && !o.update_baseline;
  const char* against = !o.against.empty()          ? "--against"
                        : !o.against_kernel.empty() ? "--against-kernel"
                        : !o.against_plugin.empty() ? "--against-plugin"
                                                    : "--baseline";
  return {{"compared with", against},
          {"baseline (its digest)", compares ? digest(o.baseline) : ""},
          {"noise between runs (its digest)", compares ? digest(noise_path(o)) : ""},
          {"--calibrate", o.calibrate ? fmt::format("{} pairs", o.pairs) : ""},
          {"--update-baseline", o.update_baseline ? fmt::format("{} runs", o.runs) : ""},
          {"--no-time", o.no_time ? "yes" : ""},
          {"--match", o.compare.match},
          {"--min-effect", fmt::format("{:g}", o.compare.min_effect_percent)},
          {"--min-effect-of", fmt::format("{}", fmt::join(o.compare.min_effect_of, " "))},
          {"--allow-mismatch", o.compare.allow_mismatch ? "yes" : ""},
          {"--min-coverage", o.min_coverage ? fmt::format("{:g}", *o.min_coverage) : ""},
          {"--rerun-whole", fmt::format("{:g}", o.whole_s)}};
}

void add_gate(CLI::App& app, Program& program) {
  auto* command = app.add_subcommand(
      "gate", "Compare a sweep with a baseline or another build, and repeat undecided cases: for CI");
  auto o = std::make_shared<GateOptions>();
  o->cases.add(*command);
  add_sides(*command, o);
  add_counts(*command, o);
  o->compare.add(*command);
  add_kernel_option(
      *command, o->kernels,
      "Only these kernels, comma-separated (default: all; of --plugin with --baseline, those of plug-ins and of the baseline)");
  add_plugin_option(*command, program);
  add_peers_option(*command, program);
  add_forwarded(*command, o);
  add_require_option(*command, o->required);
  option(*command, "--min-coverage", o->min_coverage, "PERCENT",
         "Fail if a kernel of the new side ran less than PERCENT of the cases asked of it (not with "
         "--update-baseline or --calibrate, which compare nothing)")
      ->check(number_in(0.0, 100.0));
  command->add_flag("--no-time", o->no_time,
                    "Right or wrong only: nothing is timed, any machine's baseline will do");
  path_option(*command, "-o,--out", o->out, "DIR",
              "Folder of the turns and reports (default: results/runs/DATE-gate)");
  path_option(
      *command, "--resume", o->resume, "DIR",
      "Go on with the interrupted gate of this folder: the same configuration and options (only "
      "--max-time, --reruns, --allow-inconclusive and what is written may differ); finished turns are "
      "not repeated");
  list_option(*command, "--format", o->formats,
              "Beside the text and compare.json: md, junit (files), github (annotations; on by itself where "
              "GITHUB_ACTIONS is true)")
      ->check(CLI::IsMember({"md", "json", "junit", "github"}));
  command->add_flag("-q,--quiet", o->quiet, "No progress");
  command->footer(
      "Times are compared as attnbench compare does it (its --help says how).\n"
      "Examples:\n"
      "  attnbench gate ci --baseline ci.json --update-baseline\n"
      "  attnbench gate ci --baseline ci.json --calibrate --pairs 10\n"
      "  attnbench gate ci --baseline ci.json --format junit,md\n"
      "  attnbench gate ci --against ../base/build/attnbench --min-effect 5\n"
      "  attnbench gate ci --kernel new --against-kernel old\n"
      "  attnbench gate ci --plugin ./mine.so --against-plugin base/mine.so\n"
      "Exit codes: 0 none slower, 1 incorrect or missing, 2 usage or another machine's baseline, 3 slower,\n"
      "  4 inconclusive, 5 crash, 6 nothing ran, 130 interrupted.");
  command->callback([=, &program] {
    program.chosen = [=, &program] {
      if (o->calibrate && command->count("--runs") > 0) {
        throw UsageError(
            "--runs counts the turns of --update-baseline alone; --calibrate makes two for each of --pairs: drop --runs");
      }
      o->plugins = program.plugin_files;
      o->python = program.python;
      try {
        return gate(*o, program);
      } catch (const GateStop& stop) {
        return stop.exit_code;
      }
    };
  });
}

}  // namespace attnbench::cli
