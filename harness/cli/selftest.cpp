#include "harness/selftest/selftest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <sstream>

#include "harness/cli/case_options.h"
#include "harness/cli/cheats.h"
#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/device_options.h"
#include "harness/cli/executor.h"
#include "harness/cli/installed.h"
#include "harness/cli/option.h"
#include "harness/cli/pattern.h"
#include "harness/cli/plugins.h"
#include "harness/cli/stop_signal.h"
#include "harness/cli/usage_error.h"
#include "harness/launch/last_words.h"
#include "harness/launch/launcher.h"
#include "harness/results/files.h"
#include "harness/results/json.h"
#include "harness/results/text.h"
#include "harness/selftest/isolated.h"
#include "harness/selftest/report.h"

namespace attnbench::cli {
namespace {

struct SelftestFlags {
  std::string device = "auto";
  CaseOptions sweep;
  std::vector<std::string> kernels;
  std::vector<std::string> formats = {"json"};
  std::string filter;
  std::string out = "results/runs/selftest";
  int seeds = 2;
  int threads = 0;
  std::vector<int64_t> contexts = {512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};
  std::string op = op_name(Op::kAttention);  ///< of --sensitivity
  double timeout_s = 120;
  bool timeout_given = false;
  bool in_process = false;
  bool worker = false;  ///< this process is a worker
  bool sensitivity = false;
  bool clues = false;
  bool cheats = false;
  std::string cheats_dir;
  bool quiet = false;
};

std::function<bool(const std::string&)> filter_of(const std::string& filter) {
  return filter.empty() ? nullptr : finder("--filter", filter);
}

/// Interval of the warnings about a step of --in-process that does not end, in seconds.
constexpr int kStepHangSeconds = 60;

/// Runs the steps, in a worker process or in this process.
class Steps {
 public:
  Steps(const SelftestFlags& flags, const Program& program) {
    if (flags.in_process || flags.sensitivity || flags.clues) {
      tell_hangs(kStepHangSeconds);
      device_ = open_chosen_device(flags.device, flags.threads, flags.quiet);
      info_ = device_->info();
      return;
    }
    IsolatedOptions o;
    o.worker_command = [&program](const std::string& plugin) { return worker_command(program, plugin, {}); };
    o.plugin_of = [&program](const Kernel& kernel) { return plugin_of(program, kernel); };
    o.device = chosen_devices(flags.device, flags.quiet).front();
    o.threads = flags.threads;
    o.timeout_s = flags.timeout_s;
    o.output = [](std::string_view text) { std::cerr << text << std::flush; };
    isolated_ = std::make_unique<IsolatedSteps>(o);
    try {
      info_ = isolated_->open();
    } catch (const DeviceError& e) {
      if (e.lost) throw;
      throw UsageError(cannot_open(flags.device, e.what()));
    }
  }

  const DeviceInfo& info() const { return info_; }
  Device& device() { return *device_; }  ///< for steps in this process

  SelftestResult run(const Program& program, const SelftestOptions& options) {
    if (!isolated_) return run_selftest(program.kernels, *device_, options);
    return run_selftest(
        plan_selftest(program.kernels, info_.kind, options),
        [&](const SelftestStep& step) {
          set_in_hand("selftest " + step.text());
          return isolated_->run(step);
        },
        options);
  }

 private:
  DeviceInfo info_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<IsolatedSteps> isolated_;
};

/// Finds the smallest faults that are caught, for the first chosen kernel.
int run_sensitivity(const SelftestFlags& flags, const Program& program, Device& device,
                    const std::filesystem::path& dir, const RunContext& context) {
  const Op op = flags.op == op_name(Op::kAttention) ? Op::kAttention : Op::kAttentionBackward;
  const auto kernels = select_kernels(program.kernels, op, device.info().kind, flags.kernels);
  if (kernels.empty()) {
    std::cerr << fmt::format("no {} kernel of these names on {}; --op names the op of --sensitivity\n",
                             flags.op, device.info().name);
    return 6;
  }
  set_advice("the rows before it are in " + (dir / "sensitivity.json").string());
  watch_for_stop();
  const auto write = [&](const std::vector<SensitivityRow>& rows) {
    make_folder(dir);  // perhaps it has been removed
    write_file_atomically(dir / "sensitivity.json",
                          results_text(sensitivity_to_json(context, *kernels[0], rows)));
  };
  write({});  // replaces the file of an earlier run, in case this run does not finish
  const Sensitivity found = measure_sensitivity(
      *kernels[0], device, flags.contexts,
      [&](const std::string& line) {
        if (!flags.quiet) std::cerr << line << "\n";
      },
      write, stop_requested);
  const std::vector<SensitivityRow>& rows = found.rows;
  std::cout << "report: " << (dir / "sensitivity.json").string() << "\n";
  if (found.stopped) {
    std::cerr << fmt::format("interrupted: the report holds {}\n", counted(std::ssize(rows), "row"));
    return kExitInterrupted;
  }
  if (!found.unfinished.empty()) {
    std::cerr << fmt::format("{}; the report holds {}\n", one_line(found.unfinished),
                             counted(std::ssize(rows), "row"));
    return 5;
  }
  if (!found.wrong.empty()) {
    std::cerr << fmt::format("{}: {}\n", kernels[0]->name, one_line(found.wrong));
    return 1;
  }
  return rows.empty() ? 6 : found.all_caught() ? 0 : 1;
}

/// Adds --plugin and --python to the reproducing line of a kernel that a plug-in brought: a step knows kernels only.
void name_plugin(const Program& program, std::string& line) {
  for (const Kernel* kernel : program.kernels) {
    const std::string file = plugin_of(program, *kernel);
    const std::string named = fmt::format(" --kernel {} ", kernel->name);
    const std::size_t at = line.find(named);
    if (file.empty() || at == line.npos) continue;
    std::string words = fmt::format("--plugin {} ", shell_word(file));
    for (const std::string& word : python_words(program)) words += shell_word(word) + " ";
    line.insert(at + named.size(), words);
    return;
  }
}

CheatOptions cheat_options(const SelftestFlags& flags, const Program& program) {
  if (!program.plugin_files.empty()) {
    throw UsageError(
        "--cheats runs the plug-ins of its own folder; --cheats DIR names another one, not --plugin");
  }
  CheatOptions o;
  o.dir = flags.cheats_dir;
  o.device = chosen_devices(flags.device, flags.quiet).front();
  o.kernels = flags.kernels;
  o.out = flags.out;
  if (flags.timeout_given) o.timeout_s = flags.timeout_s;
  o.threads = flags.threads;
  o.quiet = flags.quiet;
  o.command_line = program.command_line;
  return o;
}

/// Faults go into the cases of a sweep, which are checked as the sweep says.
void take_sweep(const CaseOptions& sweep, SelftestOptions& options) {
  Cases cases = load_cases(sweep);
  if (!cases.check_conflict.empty()) throw UsageError(cases.check_conflict + ": name one of them");
  const Checks checks = checks_of(cases.check);
  if (checks.mode == CheckMode::kOff)
    throw UsageError("the file's 'check: off' catches nothing: name another sweep");
  options.cases = std::move(cases.cases);
  options.sweep_checks = {checks.mode, checks.invariants};
}

int run_selftest_command(const SelftestFlags& given, const Program& program) {
  if (given.worker) return serve_steps(program.kernels);
  if (given.cheats) return run_cheats(cheat_options(given, program));
  check_kernel_names(given.kernels, program.kernels);
  SelftestFlags flags = given;
  flags.device = device_for(flags.device, flags.kernels, program.kernels);
  if (flags.timeout_given && (flags.in_process || flags.sensitivity || flags.clues)) {
    throw UsageError(
        "--timeout needs a worker process: nobody could stop a step of --in-process, --sensitivity or --clues");
  }
  SelftestOptions options;
  options.kernels = flags.kernels;
  options.seeds = flags.seeds;
  options.chosen = filter_of(flags.filter);
  if (!flags.quiet) options.progress = [](const std::string& line) { std::cerr << line << "\n"; };
  options.stop = stop_requested;
  if (!flags.sweep.configs.empty()) take_sweep(flags.sweep, options);
  const std::filesystem::path dir(flags.out);
  // Before the work, so that a wrong path costs nothing.
  make_folder(dir);
  check_writable(dir / (flags.sensitivity ? "sensitivity.json"
                        : flags.clues     ? "clues.json"
                                          : "selftest.json"));
  Steps steps(flags, program);
  const auto write = [&](const char* name, const std::string& text) {
    make_folder(dir);  // perhaps it has been removed
    write_file_atomically(dir / name, text);
    std::cout << "report: " << (dir / name).string() << "\n";
  };
  const RunContext context = context_of_run(steps.info(), "selftest", program);
  if (flags.sensitivity) return run_sensitivity(flags, program, steps.device(), dir, context);
  if (flags.in_process) set_advice("without --in-process it is the error of one step, and the others go on");
  watch_for_stop();
  if (flags.clues) {
    const std::vector<ClueShare> shares = measure_clues(program.kernels, steps.device(), options);
    write("clues.json", results_text(clues_to_json(context, shares)));
    std::cout << clue_summary(shares) << "\n";
    return stop_requested() ? kExitInterrupted : shares.empty() ? 6 : 0;
  }
  SelftestResult result = steps.run(program, options);
  for (CleanFailure& f : result.clean.failures) name_plugin(program, f.repro);
  for (const std::string& format : flags.formats) {
    std::ostringstream text;
    if (format == "md") {
      write_selftest_markdown(text, result);
      write("selftest.md", text.str());
    } else {
      write("selftest.json", results_text(selftest_to_json(context, result)));
    }
  }
  for (const FaultResult& f : result.faults) {
    if (f.outcome == FaultResult::Outcome::kEscaped || f.outcome == FaultResult::Outcome::kError)
      std::cout << fmt::format("{}: {}/{} on {}, case {}{}{}\n", outcome_name(f.outcome), f.fault_class,
                               f.name, f.kernel, f.item, f.reason.empty() ? "" : ": ", one_line(f.reason));
  }
  std::cout << selftest_summary(result) << "\n" << result.clean_text() << std::flush;
  if (!result.unfinished.empty()) std::cerr << error_line(result.unfinished) << "\n";
  if (stop_requested()) return kExitInterrupted;
  if (result.exit_code() == 6) {
    std::cerr << (flags.filter.empty() ? std::string("no fault applies to these kernels\n")
                                       : fmt::format("no fault that applies matches --filter '{}'; "
                                                     "without it, all are listed\n",
                                                     flags.filter));
  }
  return result.exit_code();
}

}  // namespace

void add_selftest(CLI::App& app, Program& program) {
  auto* command =
      app.add_subcommand("selftest", "Test the checks: wrong kernels must be caught, right ones must pass");
  auto o = std::make_shared<SelftestFlags>();
  auto* config = option(
      *command, "config", o->sweep.configs, "CONFIG",
      "Sweeps: the faults go into their cases, those with most of a fault's keys first, until one catches it "
      "(default: into cases of their own). A fault has escaped if no case catches it");
  config->transform(sweep_path);
  add_seed_option(*command, o->sweep.seed)->needs(config);
  option(*command, "--device", o->device, "DEVICE",
         "auto (a GPU where one works and --kernel wants it), cpu, cuda or cuda:N");
  add_kernel_option(
      *command, o->kernels,
      "Put the faults into these kernels, comma-separated, or with --cheats run only these (default: all of "
      "the device, or of --cheats)");
  add_plugin_option(*command, program);
  command
      ->add_option_function<double>(
          "--timeout",
          [o](const double& s) {
            o->timeout_s = s;
            o->timeout_given = true;
          },
          "Seconds after which a step is given up and its worker process killed (default 120; --cheats: 20), and the "
          "opening of a plug-in (default 60; one in Python: 120)")
      ->type_name("S")
      ->check(number_in(0.001, 1e6));
  auto* in_process = command->add_flag(
      "--in-process", o->in_process,
      "Run the kernels in this process, for debuggers: a crash or a hang ends the selftest");
  add_worker_options(*command, o->worker, program);
  option(*command, "--seeds", o->seeds, "N",
         "Every case also runs without a fault, with seeds 1 to N (default 2), and must pass")
      ->check(CLI::Range(1, 100000));
  auto* filter = option(*command, "--filter", o->filter, "REGEX",
                        "Only faults whose class/name matches this regular expression (RE2)");
  list_option(*command, "--format", o->formats, "Reports: json, md (comma-separated; default json)")
      ->check(CLI::IsMember({"json", "md"}));
  path_option(*command, "-o,--out", o->out, "DIR",
              "Folder of selftest.json and selftest.md (default: results/runs/selftest)");
  option(*command, "--threads", o->threads, "N",
         "Host threads of the cpu device (default: all, or OMP_NUM_THREADS)")
      ->check(CLI::Range(1, 4096));
  auto* sensitivity = command->add_flag(
      "--sensitivity", o->sensitivity,
      "Instead: the smallest scale error, the fewest dropped keys and the smallest LSE offset that "
      "are caught, by context (sensitivity.json)");
  command
      ->add_option(
          "--op", o->op,
          "Op of --sensitivity: attention (default), or attention_backward, whose gradients are off by "
          "a factor and lack keys or queries")
      ->check(CLI::IsMember({op_name(Op::kAttention), op_name(Op::kAttentionBackward)}))
      ->needs(sensitivity);
  list_option(*command, "--contexts", o->contexts,
              "Contexts of --sensitivity (default: 512 to 131072 by twos)")
      ->check(CLI::Range(512, 1 << 24))
      ->needs(sensitivity);
  auto* clues =
      command->add_flag("--clues", o->clues,
                        "Instead: whether the clues of a wrong case name its fault, over all cases of "
                        "the faults and the seeds (clues.json)");
  clues->excludes(sensitivity)->excludes(in_process)->excludes(config);
  sensitivity->excludes(config);
  auto* cheats = command->add_option(
      "--cheats", o->cheats_dir,
      "Instead: run the kernels that cheat in DIR (default: tests/cheats in the program's own folder), "
      "which must be caught, and odd honest ones, which must pass (cheats.json). Not with --plugin");
  cheats->type_name("[DIR]")
      ->expected(0, 1)
      ->excludes(sensitivity)
      ->excludes(in_process)
      ->excludes(config)
      ->excludes(filter)
      ->excludes(clues);
  command->add_flag("-q,--quiet", o->quiet, "No progress");
  command->footer(
      "Examples:\n"
      "  attnbench selftest --device cpu\n"
      "  attnbench selftest --kernel cuda_simt --filter paging --format json,md --out results/runs/selftest\n"
      "  attnbench selftest --plugin ./mine.so --kernel mine\n"
      "  attnbench selftest smoke --kernel cpu\n"
      "  attnbench selftest --cheats --device cpu\n"
      "Exit codes: 0 all faults that apply were caught and no clean run failed, 1 otherwise, 5 a step "
      "crashed, "
      "hung or could\n  not be run, 6 no fault applied, 130 interrupted. With --cheats: 0 all cheats were "
      "caught or gained\n  nothing and all honest kernels passed, 1 otherwise.");
  command->callback([=, &program] {
    o->cheats = cheats->count() > 0;
    program.calls = o->in_process                ? Calls::kHere
                    : o->sensitivity || o->clues ? Calls::kInChild
                                                 : Calls::kInWorkers;
    program.chosen = [=, &program] { return run_selftest_command(*o, program); };
  });
}

}  // namespace attnbench::cli
