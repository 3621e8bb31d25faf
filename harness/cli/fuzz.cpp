#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <random>

#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/device_options.h"
#include "harness/cli/earlier_run.h"
#include "harness/cli/executor.h"
#include "harness/cli/option.h"
#include "harness/cli/plugins.h"
#include "harness/cli/stop_signal.h"
#include "harness/cli/usage_error.h"
#include "harness/fuzz/report.h"
#include "harness/launch/last_words.h"
#include "harness/launch/launcher.h"
#include "harness/report/console.h"
#include "harness/report/formats.h"
#include "harness/results/exit_code.h"
#include "harness/results/files.h"
#include "harness/results/json.h"
#include "harness/results/text.h"
#include "harness/session/worker.h"

namespace attnbench::cli {
namespace {

constexpr double kTimeoutSeconds = 20;  ///< cases are small
constexpr double kProgressSeconds = 10;
constexpr double kNoLimit = 1e9;     ///< seconds: only --cases ends the run
constexpr double kSizeOnCpu = 0.25;  ///< factor for the size of cases, which a GPU computes faster
constexpr int kThreadsOfWorker = 2;  ///< two, so that a kernel's threads share its work

struct FuzzFlags {
  RunOptions run;  ///< device, kernels, threads, workers and so on
  FuzzOptions fuzz;
  double minutes = 1;
  bool minutes_given = false;
  std::optional<uint64_t> seed;
};

SessionOptions session_options(const RunOptions& o, const Program& program) {
  SessionOptions s;
  s.table = program.kernels;
  for (const LoadedPlugin& plugin : program.plugins) {
    for (const Kernel* k : plugin.kernels) s.plugin_of[k] = plugin.path;
  }
  s.check = CheckMode::kFull;
  s.invariants = true;
  s.invariants_every = kInvariantsEvery;
  s.time = false;
  s.kernels = o.kernels;
  s.plain_args = {"--check full,invariants", "--no-time"};
  for (const std::string& word : python_words(program)) s.plain_args.push_back(shell_word(word));
  return s;
}

std::vector<const Kernel*> chosen_kernels(const Program& program, const RunOptions& o, DeviceKind device) {
  std::vector<const Kernel*> out;
  for (const Op op : kOps) {
    const auto of_op = select_kernels(program.kernels, op, device, o.kernels);
    out.insert(out.end(), of_op.begin(), of_op.end());
  }
  return out;
}

uint64_t seed_of_the_system() {
  std::random_device device;
  return device();
}

/// Computes small cases side by side. A team of threads that wait busily for each other takes ten times as
/// long. So everything but the kernel runs in one thread.
void spread_over_workers(RunOptions& o) {
  setenv("OMP_NUM_THREADS", "1", 0);
  setenv("OMP_WAIT_POLICY", "passive", 0);
  if (o.workers == 0) o.workers = open_device("cpu")->info().threads;
  o.threads = kThreadsOfWorker * o.workers;
}

/// The files of --out, if it is given.
class Reports {
 public:
  Reports(const std::string& out, RunContext context, const FuzzOptions& options)
      : dir_(out), context_(std::move(context)), options_(options) {
    if (out.empty()) return;
    make_folder(dir_);
    keep_earlier_run(dir_);
    check_writable(dir_ / "fuzz.json");
    check_writable(dir_ / "results.json");
  }

  void write(const FuzzResult& result) const {
    if (dir_.empty()) return;
    make_folder(dir_);  // perhaps it has been removed
    write_file_atomically(dir_ / "fuzz.json", results_text(fuzz_to_json(context_, options_, result)));
    std::vector<Record> records;
    for (const Finding& f : result.findings) records.push_back(f.record);
    RunContext context = context_;
    context.planned = std::ssize(records);
    write_reports(dir_, {}, context, records);
    for (const char* name : {"fuzz.json", "results.json"})
      std::cout << "report: " << (dir_ / name).string() << "\n";
  }

 private:
  std::filesystem::path dir_;
  RunContext context_;
  const FuzzOptions& options_;
};

/// Progress lines on stderr, at intervals.
class Lines {
 public:
  Lines(bool quiet, const FuzzOptions& options) : quiet_(quiet), options_(options) {}
  void operator()(const FuzzResult& result) {
    if (quiet_ || result.seconds < next_) return;
    next_ = result.seconds + kProgressSeconds;
    const std::string way = options_.seconds < kNoLimit
                                ? fmt::format("{:.0f} of {:.0f} s", result.seconds, options_.seconds)
                                : fmt::format("{} of {} cases", result.ran(), options_.cases);
    std::cerr << fmt::format("{}: {} ran, {} skipped, {}\n", way, result.ran(), result.skipped(),
                             counted(std::ssize(result.findings), "finding"));
  }

 private:
  bool quiet_;
  const FuzzOptions& options_;
  double next_ = kProgressSeconds;
};

int run_fuzz(const FuzzFlags& flags, const Program& program) {
  RunOptions o = flags.run;
  const SessionOptions session = session_options(o, program);
  if (o.worker) return serve_cases(session, runner_of(program));
  check_kernel_names(o.kernels, program.kernels);
  o.device = device_for(o.device, o.kernels, program.kernels);
  FuzzOptions options = flags.fuzz;
  options.seed = flags.seed.value_or(0);
  if (!flags.seed) options.seed = seed_of_the_system();
  options.seconds = 60 * flags.minutes;
  if (options.cases > 0 && !flags.minutes_given) options.seconds = kNoLimit;

  const bool on_cpu = chosen_devices(o.device, true).front() == "cpu";
  if (on_cpu) options.size = kSizeOnCpu;
  if (on_cpu && !o.in_process) {
    spread_over_workers(o);
  } else if (o.workers > 0) {
    throw UsageError("--workers is for worker processes of the cpu device");
  }
  Executor executor(o, program, session, {});
  const auto kernels = chosen_kernels(program, o, executor.info().kind);
  if (kernels.empty()) {
    std::cerr << fmt::format("no kernel of these names on {}\n", executor.info().name);
    return 6;
  }
  const Reports reports(o.out, context_of_run(executor.info(), "fuzz", program), options);
  if (!o.quiet) std::cerr << fmt::format("fuzz: seed {} on {}\n", options.seed, executor.info().name);
  set_advice(o.in_process ? "without --in-process it is a finding, and others are looked for" : "");
  watch_for_stop();

  FuzzEvents events;
  std::size_t found = 0;
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                             std::chrono::duration<double>(options.seconds));
  events.run = [&](const std::vector<WorkItem>& work) {
    std::vector<Record> records;
    RunEvents run;
    run.begin = [&](const WorkItem& w, const std::string&) { set_in_hand(in_hand_text(w, session)); };
    run.end = [&](Record record) {
      records.push_back(std::move(record));
      return true;
    };
    // A repeated or shrunk case comes alone and may run past the end. Output of kernels is not printed.
    run.stop = [&] {
      return stop_requested() || (work.size() > 1 && std::chrono::steady_clock::now() >= end);
    };
    executor.run(work, run);
    return records;
  };
  events.found = [&](const Finding& f) { print_finding(std::cout, f, ++found), std::cout.flush(); };
  events.found_like = [&](std::size_t number, const Record& r) {
    print_finding_like(std::cout, r, number), std::cout.flush();
  };
  events.progress = Lines(o.quiet, options);
  events.stop = [&] { return stop_requested() || !executor.lost().empty(); };
  const FuzzResult result = fuzz(kernels, options, events);

  print_fuzz_table(std::cout, result, terminal_width(STDOUT_FILENO));
  std::cout << fuzz_summary(options, result) << "\n";
  reports.write(result);
  if (!executor.lost().empty()) std::cerr << error_line(executor.lost()) << "\n";
  if (stop_requested()) return kExitInterrupted;
  return worse_exit_code(result.exit_code(), executor.lost().empty() ? 0 : 5);
}

std::string whole_number(const std::string& text) {
  uint64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? "" : fmt::format("a whole number from 0 to {} required, given '{}'", UINT64_MAX, text);
}

void add_run_options(CLI::App& command, FuzzFlags& f, Program& program) {
  RunOptions& o = f.run;
  option(command, "--device", o.device, "DEVICE",
         "auto (a GPU where one works and --kernel wants it), cpu, cuda or cuda:N");
  add_kernel_option(command, o.kernels,
                    "Fuzz these kernels, comma-separated (default: all of the device, in turns)");
  add_plugin_option(command, program);
  option(command, "--workers", o.workers, "N",
         "Worker processes of the cpu device, of two threads each (default: one for each thread of "
         "the machine)")
      ->check(CLI::Range(1, 1024));
  option(
      command, "--timeout", o.timeout_s, "S",
      "Seconds after which a case is given up and its worker process killed (default 20), and the opening of a "
      "plug-in (default 60; one in Python: 120)")
      ->check(number_in(0.001, 1e6));
  command.add_flag("--in-process", o.in_process,
                   "Run the cases in this process, for debuggers: a crash or a hang ends the run");
  add_worker_options(command, o.worker, program);
  path_option(
      command, "-o,--out", o.out, "DIR",
      "Folder of fuzz.json (counts, values of sweep keys that ran, findings) and results.json (records "
      "of the findings); default: none is written");
  command.add_flag("-q,--quiet", o.quiet, "No progress");
}

}  // namespace

void add_fuzz(CLI::App& app, Program& program) {
  auto* command = app.add_subcommand(
      "fuzz", "Look for failures in random cases; print the smallest case of each as a line to run");
  auto f = std::make_shared<FuzzFlags>();
  f->run.timeout_s = kTimeoutSeconds;
  f->run.no_time = true;
  f->run.workers = 0;
  add_run_options(*command, *f, program);
  command
      ->add_option_function<double>(
          "--minutes",
          [f](const double& m) {
            f->minutes = m;
            f->minutes_given = true;
          },
          "Draw cases for this long, all kernels together (default 1; with --cases no limit)")
      ->type_name("N")
      ->check(number_in(0.001, 1e5));
  option(*command, "--cases", f->fuzz.cases, "N",
         fmt::format("Run this many cases. Skipped ones do not count, but {} of them for each case "
                     "end the command",
                     kMostSkipsPerCase))
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command
      ->add_option_function<std::string>(
          "--seed", [f](const std::string& text) { f->seed = std::stoull(text); },
          "Seed of all that is drawn (default: a new one, which is printed). The same seed, kernels and "
          "--cases draw the same cases")
      ->type_name("N")
      ->check(whole_number);
  option(*command, "--max-findings", f->fuzz.max_findings, "N",
         "Stop at this many distinct findings (default 20)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command->footer(
      "Cases are drawn from the keys and values of sweep files; values that the kernel refused are drawn less then. Every\n"
      "row of a case is checked, and one case of four with invariants and graph replays too.\n"
      "Examples:\n"
      "  attnbench fuzz --device cpu\n"
      "  attnbench fuzz --kernel sm90_decode --kernel sm90_decode_fixed --minutes 10 --out "
      "results/runs/fuzz\n"
      "  attnbench fuzz --plugin ./mine.so --kernel mine --minutes 5\n"
      "  attnbench fuzz --kernel cpu --cases 500 --seed 7\n"
      "Exit codes: 0 no failure, 1 a wrong result, 5 a crash, a hang or an error, 6 no case ran, 130 "
      "interrupted.");
  command->callback([=, &program] {
    program.calls = f->run.in_process ? Calls::kHere : Calls::kInWorkers;
    program.chosen = [=, &program] { return run_fuzz(*f, program); };
  });
}

}  // namespace attnbench::cli
