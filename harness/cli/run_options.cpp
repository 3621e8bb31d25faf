// The options of `attnbench run`.
#include <CLI/CLI.hpp>

#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/device_options.h"
#include "harness/cli/earlier_run.h"
#include "harness/cli/executor.h"
#include "harness/cli/help.h"
#include "harness/cli/option.h"
#include "harness/cli/peers.h"
#include "harness/cli/plugins.h"
#include "harness/cli/run_options.h"
#include "harness/cli/usage_error.h"
#include "harness/device/cpu_info.h"

namespace attnbench::cli {

void add_run_options(CLI::App& app, const std::shared_ptr<RunOptions>& o, Program& program) {
  CLI::App* command = &app;
  o->cases.add(*command);
  option(*command, "--device", o->device, "DEVICE",
         "auto (a GPU where one works and --kernel wants it), cpu, cuda, cuda:N, or all: one "
         "worker process for each GPU")
      ->take_last();
  add_kernel_option(*command, o->kernels,
                    "Only these kernels, comma-separated (attnbench kernels lists them)");
  add_plugin_option(*command, program);
  add_peers_option(*command, program);
  list_option(*command, "--check", o->check,
              "full: every output row against the float64 reference; sampled (default): every row where "
              "that is cheap, "
              "else a sample with all sequence ends, tile boundaries and heads; off. With invariants: "
              "other layouts, batches and launches of a case must give the same result "
              "(--check sampled,invariants). Default: what the file's 'check' says, else sampled");
  add_require_option(*command, o->required);
  option(*command, "--repeats", o->repeats, "N",
         "With --check sampled,invariants: launches of a case that must agree bit for bit (default 2)")
      ->check(CLI::Range(2, 10000000));
  command->add_flag("--no-time", o->no_time, "Verify only: nothing is timed");
  o->timing.add(*command);
  command->add_flag("--counters", o->counters,
                    "After timing, count further launches with the GPU's counters (CUPTI): bytes that DRAM "
                    "moved, tensor pipe activity, L2 hits. Where they cannot be read, the record says why");
  option(*command, "--threads", o->threads, "N",
         "Host threads of the cpu device (default: all, or OMP_NUM_THREADS)")
      ->check(CLI::Range(1, 4096));
  option(*command, "--workers", o->workers, "N",
         "Worker processes of the cpu device, which share its threads; with --no-time only")
      ->check(CLI::Range(1, 1024));
  command
      ->add_option_function<double>(
          "--timeout",
          [o](const double& s) {
            o->timeout_s = s;
            o->timeout_given = true;
          },
          "Seconds after which a case is given up and its worker process killed (default 120), and the opening of a "
          "plug-in (default 60; one in Python: 120)")
      ->type_name("S")
      ->check(number_in(0.001, 1e6));
  command->add_flag("--in-process", o->in_process,
                    "Run the cases in this process, for debuggers: a crash or a hang ends the run");
  add_worker_options(*command, o->worker, program);
  auto* watch = command->add_flag(
      "--watch", o->watch,
      "Run again whenever a file of --plugin or a sweep file changes, each time in a new folder of results/runs, and "
      "print which cases became right or wrong. Ctrl-C ends it");
  auto* out = path_option(*command, "-o,--out", o->out, "DIR",
                          "Folder of the reports (default: results/runs/DATE-NAME)");
  auto* dump = path_option(
      *command, "--dump", o->dump, "DIR",
      "Write inputs, outputs, expected outputs and |error| / sigma of one case on one kernel to this new "
      "folder as .npy; 'python DIR/worst.py' prints the worst elements");
  auto* resume =
      path_option(*command, "--resume", o->resume, "DIR",
                  "Go on with the interrupted run of this folder: the same configuration and options; cases "
                  "that are finished are not repeated");
  auto* shard =
      option(*command, "--shard", o->shard, "I/N",
             "Only the I-th of N shares of the cases, of equal estimated cost and the same on every "
             "machine; attnbench merge joins the results");
  list_option(*command, "--format", o->formats,
              "Reports: json (results.json, always written), csv, md, junit (comma-separated)");
  command->add_flag("--fail-fast", o->fail_fast, "Stop at the first case that is not a pass or a skip");
  auto* last_failed = command->add_flag(
      "--last-failed", o->last_failed,
      "Only what failed in the last run: that in the folder of --out, or else the newest one in results/runs "
      "of the same sweeps and plug-ins");
  auto* dry_run =
      command->add_flag("--dry-run", o->dry_run, "Print the line that would run each case, and run none");
  for (CLI::Option* other : {out, dump, resume, shard, last_failed, dry_run}) watch->excludes(other);
  command->add_flag("-q,--quiet", o->quiet, "No progress");
  command->add_flag("-v,--verbose", o->verbose, "Before each case print the line that reproduces it");
  group_options(*command, {{"Most used",
                            {"--case", "--set", "--filter", "--device", "--kernel", "--plugin", "--check",
                             "--no-time", "--out", "--format"}},
                           {"Cases and kernels", {"--seed", "--python", "--peers", "--require"}},
                           {"Verdict", {"--repeats", "--seed-order", "--trust", "--in-process", "--dump"}},
                           {"Timing",
                            {"--cache", "--clock", "--graph", "--no-ceilings", "--min-time", "--max-samples",
                             "--counters", "--threads"}},
                           {"Long and repeated runs",
                            {"--workers", "--timeout", "--watch", "--resume", "--shard", "--fail-fast",
                             "--last-failed", "--dry-run"}},
                           {"Output", {"--quiet", "--verbose"}}});
}

void choose_clock(RunOptions& o, const Program& program) {
  if (o.timing.clock != "auto" || o.no_time || o.is_turn() || o.dry_run) return;
  const bool one = (o.threads > 0 ? o.threads : cpu_threads()) == 1;
  const auto earlier = earlier_clock(o.resume);
  o.timing.clock = clock_name(earlier ? *earlier
                              : one   ? clock_for(device_for(o.device, o.kernels, program.kernels), o.quiet)
                                      : TimeClock::kWall);
  o.timing.clock_chosen = true;
}

void check_timing_on(DeviceKind kind, const RunOptions& o, const SessionOptions& options) {
  if (kind != DeviceKind::kCpu) {
    if (options.timing.clock == TimeClock::kCpu)
      throw UsageError("--clock cpu is for the cpu device; launches on a GPU are timed by its own clock");
    return;
  }
  if (o.timing.graph) throw UsageError("--graph times CUDA graphs; the cpu device has none");
  if (options.timing.cache == CacheMode::kColdData && options.time) {
    throw UsageError("--cache cold_data leaves code in the caches of a GPU; on the cpu, take --cache cold");
  }
}

}  // namespace attnbench::cli
