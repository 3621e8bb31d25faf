#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "harness/cli/case_options.h"
#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/device_options.h"
#include "harness/cli/earlier_run.h"
#include "harness/cli/executor.h"
#include "harness/cli/peers.h"
#include "harness/cli/plugins.h"
#include "harness/cli/progress.h"
#include "harness/cli/run_folder.h"
#include "harness/cli/stop_signal.h"
#include "harness/cli/trace_folder.h"
#include "harness/cli/usage_error.h"
#include "harness/config/sweep_file.h"
#include "harness/launch/last_words.h"
#include "harness/report/console.h"
#include "harness/report/formats.h"
#include "harness/report/summary.h"
#include "harness/results/exit_code.h"
#include "harness/results/files.h"
#include "harness/results/json.h"
#include "harness/results/load.h"
#include "harness/results/text.h"
#include "harness/session/journal.h"
#include "harness/session/plan.h"
#include "harness/session/resume.h"
#include "harness/session/time_stage.h"
#include "harness/session/worker.h"

namespace attnbench::cli {
namespace {

SessionOptions session_options(const RunOptions& o, const Program& program,
                               const std::vector<std::string>& check_of_file) {
  SessionOptions s;
  s.table = program.kernels;
  for (const LoadedPlugin& plugin : program.plugins) {
    for (const Kernel* k : plugin.kernels) s.plugin_of[k] = plugin.path;
  }
  const std::vector<std::string>& check = o.check.empty() ? check_of_file : o.check;
  const Checks checks = checks_of(check);
  s.check = checks.mode;
  s.invariants = checks.invariants;
  read_required(o.required, s.required);  // the option has checked them
  s.repeats = o.repeats;
  s.dump = o.dump;
  s.time = !o.no_time;
  s.counters = o.counters;
  s.timing = o.timing.options();
  s.kernels = o.kernels;
  if (o.timeout_given) s.timeout_s = o.timeout_s;
  if (!check.empty() && check != std::vector<std::string>{"sampled"})
    s.plain_args.push_back(fmt::format("--check {}", fmt::join(check, ",")));
  if (!o.required.empty()) s.plain_args.push_back(fmt::format("--require {}", fmt::join(o.required, ",")));
  if (o.repeats != 2) s.plain_args.push_back(fmt::format("--repeats {}", o.repeats));
  if (o.no_time) s.plain_args.push_back("--no-time");
  if (o.timing.cache != "cold") s.plain_args.push_back("--cache " + o.timing.cache);
  if (s.timing.clock == TimeClock::kCpu) s.plain_args.push_back("--clock cpu");
  if (o.timing.graph) s.plain_args.push_back("--graph");
  if (o.timing.trust) s.plain_args.push_back("--trust");
  if (o.timing.order_seed != 0) s.plain_args.push_back(fmt::format("--seed-order {}", o.timing.order_seed));
  if (o.timing.no_ceilings) s.plain_args.push_back("--no-ceilings");
  if (o.counters) s.plain_args.push_back("--counters");
  if (o.threads > 0) s.plain_args.push_back(fmt::format("--threads {}", o.threads));
  for (const std::string& word : python_words(program)) s.plain_args.push_back(shell_word(word));
  return s;
}

/// Warns about CPU times that were taken while other processes used the cores, because they are unreliable.
void warn_if_busy(const std::vector<Record>& records, int threads) {
  int64_t busy = 0;
  for (const Record& r : records) busy += r.time && r.time->busy();
  if (busy > 0) {
    std::cerr << fmt::format(
        "{} timed while other processes took the cores, so the times are unreliable (correctness is not affected): end "
        "the others{}; if none runs, threads of the kernel's own took them: limit a library's (NumPy: "
        "OPENBLAS_NUM_THREADS=1)\n",
        counted(busy, "case"), threads > 0 ? "" : ", or leave them cores with --threads N");
  }
}

/// Prints why there are no counters, once per reason.
void say_why_no_counters(const std::vector<Record>& records) {
  std::map<std::string, int64_t> cases;
  for (const Record& r : records) {
    if (r.counters && !r.counters->reason.empty()) ++cases[r.counters->reason];
  }
  for (const auto& [reason, n] : cases) {
    std::cerr << fmt::format("no counters for {}: {}\n", counted(n, "case"), one_line(reason));
  }
}

int dry_run(const std::vector<WorkItem>& work, const DeviceInfo& device, const SessionOptions& options) {
  for (const WorkItem& w : work) {
    std::cout << repro_line(w, device.name, options) << "\n";
  }
  std::cout << counted(std::ssize(work), "run") << "\n";
  return work.empty() ? 6 : 0;
}

/// "2/8": shard 2 of 8.
std::pair<int, int> parse_shard(const std::string& text) {
  if (text.empty()) return {1, 1};
  int index = 0, count = 0, end = 0;
  const bool whole = std::sscanf(text.c_str(), "%6d/%6d%n", &index, &count, &end) == 2 &&
                     static_cast<std::size_t>(end) == text.size();
  if (!whole || index < 1 || count < index) {
    throw UsageError(fmt::format("--shard {}: give I/N, as in 2/8, with I from 1 to N", text));
  }
  return {index, count};
}

/// The records that --resume finds in DIR. Checks that they belong to the same run.
std::vector<Record> take_up(const std::filesystem::path& dir, const RunOptions& o, const RunContext& context,
                            const std::vector<WorkItem>& work, Journal& journal) {
  const auto results = dir / "results.json";
  std::error_code ec;
  if (std::filesystem::exists(results, ec)) {
    const ResultSet there = load_results(results.string());
    refuse_other_run(dir, differences(there, context, work), o.is_turn() ? "" : began_as(there.context));
  }
  Finished finished = read_finished(dir / "journal.jsonl", work);
  journal.cut(finished.whole_bytes);
  if (!finished.ends_a_line) journal.append("\n");
  return std::move(finished.records);
}

int report(const RunOptions& o, const Cases& cases, const std::vector<Record>& records,
           const Ceilings& ceilings, std::size_t planned, double elapsed,
           const std::vector<std::filesystem::path>& paths, const std::string& lost) {
  print_console(std::cout, records, {style_of_stdout(), elapsed, ceilings.disturbed});
  for (const auto& path : paths) std::cout << "report: " << path.string() << "\n";
  std::cout << dump_text(o.dump, records);
  std::cout.flush();
  if (!o.is_turn()) say_duplicates(cases);
  if (!lost.empty())
    std::cerr << error_line(fmt::format("{}; {} not started", lost,
                                        counted(static_cast<int64_t>(planned - records.size()), "run")))
              << "\n";
  if (!o.quiet && !o.is_turn()) warn_if_busy(records, o.threads);  // a gate names such cases itself
  say_why_no_counters(records);
  // The gate itself says whether a turn has ended and how to go on.
  const bool whole = records.size() == planned;
  if (stop_requested() && !(o.is_turn() && whole)) {
    if (!o.is_turn() && whole) {
      std::cerr << "interrupted in the last run: all runs are in the reports, nothing is left for --resume\n";
    } else if (!o.is_turn()) {
      std::cerr << fmt::format(
          "interrupted: {} of {} runs are in the reports; to go on, repeat the command with --resume {} and without --out\n",
          records.size(), planned, paths.front().parent_path().string());
    }
    return kExitInterrupted;
  }
  if (planned == 0 && !o.shard.empty() && !cases.cases.empty()) {
    std::cerr << fmt::format("shard {} holds no case: there are fewer cases than shards\n", o.shard);
    return 0;
  }
  if (planned == 0 && cases.cases.empty()) {
    say_nothing_matched(cases);
  } else if (planned == 0) {
    std::cerr << fmt::format("nothing to run: {} on {} supports the op of none of the {}\n",
                             fmt::join(o.kernels, ", "), o.device, counted(std::ssize(cases.cases), "case"));
  }
  return worse_exit_code(worse_exit_code(exit_code_of(records), lost.empty() ? 0 : 5), cases.exit_code());
}

/// Refuses options that contradict each other.
void check_options(const RunOptions& o, const Program& program) {
  try {
    check_formats(o.formats);
  } catch (const Error& e) {
    throw UsageError(fmt::format("--format: {}", e.what()));
  }
  if (const auto wrong = wrong_check(o.check)) throw UsageError("--check: " + *wrong);
  check_kernel_names(o.kernels, program.kernels);
  if (o.counters && o.no_time) {
    throw UsageError("--counters reads the hardware's counters after timing; drop --no-time");
  }
}

/// Says which cases the plan lacks, because no chosen kernel has their op.
void say_left_out(const std::vector<WorkItem>& plan, const Cases& cases, const SessionOptions& options) {
  std::set<const Case*> planned;
  for (const WorkItem& w : plan) planned.insert(w.item);
  if (planned.empty() || planned.size() == cases.cases.size()) return;
  std::cerr << fmt::format("note: {} of {} cases are left out: {} has none of their ops\n",
                           cases.cases.size() - planned.size(), cases.cases.size(),
                           fmt::join(options.kernels, ", "));
}

/// Says which plug-ins have no kernel in the plan, because all are for another device.
void say_idle_plugins(const Program& program, const DeviceInfo& device, const SessionOptions& options) {
  if (!options.kernels.empty()) return;
  for (const LoadedPlugin& plugin : program.plugins) {
    const auto runs = [&](const Kernel* k) { return k->device == device.kind; };
    if (plugin.kernels.empty() || std::ranges::any_of(plugin.kernels, runs)) continue;
    std::cerr << fmt::format("note: --plugin {}: kernel {} is for {}, and nothing of it runs on {}\n",
                             plugin.path, plugin.kernels.front()->name,
                             device.kind == DeviceKind::kCpu ? "cuda" : "cpu", device.name);
  }
}

/// Refuses a folder of --resume that holds no run.
void check_earlier_run(const RunOptions& o) {
  if (o.resume.empty()) return;
  const std::filesystem::path dir = o.resume;
  if (!std::filesystem::exists(dir / "journal.jsonl") && !std::filesystem::exists(dir / "results.json")) {
    throw UsageError(fmt::format(
        "--resume {0}: the folder holds no run (no journal.jsonl, no results.json); --out {0} starts one there",
        o.resume));
  }
  if (o.last_failed) throw UsageError("--last-failed starts a run of its own; drop --resume");
}

/// The options of the command line, completed by those of the sweep file.
SessionOptions complete_options(const RunOptions& o, const Program& program, const Cases& cases) {
  if (o.check.empty() && !cases.check_conflict.empty()) {
    throw UsageError(fmt::format("{}: run them one by one, or give --check for all", cases.check_conflict));
  }
  SessionOptions options = session_options(o, program, cases.check);
  options.kernels = kernels_to_run(options.kernels, cases);
  check_kernel_names(options.kernels, program.kernels);
  return options;
}

/// Refuses a session that would do nothing, or not do what an option requests.
void check_session(const RunOptions& o, const SessionOptions& options, const Cases& cases) {
  if (options.check == CheckMode::kOff && !options.time && !cases.cases.empty()) {
    throw UsageError(
        fmt::format("{} and --no-time leave nothing to do: leave out {}, to verify, or --no-time, to time",
                    o.check.empty() ? "the file's 'check: off'" : "--check off",
                    o.check.empty() ? "the first (--check sampled)" : "the first"));
  }
  if (options.required.any && options.check == CheckMode::kOff) {
    throw UsageError("--require is part of the check, which is off: add --check sampled, or drop --require");
  }
  if (o.repeats != 2 && !options.invariants) {
    throw UsageError("--repeats counts launches of the invariant 'repeat': add --check sampled,invariants");
  }
}

/// Those items of `work` that failed in the last run. Says which run that was, and how much of it there is.
std::vector<WorkItem> failed_last_time(const std::vector<WorkItem>& work, const RunOptions& o,
                                       const Cases& cases, const std::vector<LoadedPlugin>& plugins) {
  const LastRun last = last_run(o.out, cases.name, plugins, work);
  std::set<std::pair<std::string, std::string>> ran, failed;
  for (const Record& r : last.results.results) {
    ran.emplace(r.item.id, r.kernel);
    if (needs_attention(r.status)) failed.emplace(r.item.id, r.kernel);
  }
  std::vector<WorkItem> left;
  std::size_t held = 0;
  for (const WorkItem& w : work) {
    if (!w.kernel) continue;
    held += ran.count({w.item->id, w.kernel->name});
    if (failed.count({w.item->id, w.kernel->name}) == 0) continue;
    left.push_back(w);
    left.back().index = std::ssize(left) - 1;
  }
  std::cerr << last.note
            << fmt::format("{}: {}{} failed; {}\n", last.dir.string(),
                           last.results.context.complete
                               ? ""
                               : fmt::format("interrupted after {}; ",
                                             counted(std::ssize(last.results.results), "run")),
                           counted(std::ssize(failed), "run"),
                           left.empty() ? "nothing to run again"
                                        : fmt::format("{} of them to run again", left.size()));
  if (left.empty() && held < work.size()) {
    std::cerr << fmt::format("note: that run has only {} of these {}; --out DIR names another run\n", held,
                             counted(std::ssize(work), "run"));
  }
  return left;
}

/// The folder of the run; creates it if the user named none.
std::filesystem::path folder_of(const RunOptions& o, const Cases& cases) {
  if (!o.resume.empty()) return o.resume;
  return o.out.empty() ? new_run_folder(cases.name) : std::filesystem::path(o.out);
}

/// Prints a line on stderr, if there is something to say.
void say(const std::string& text) {
  if (!text.empty()) std::cerr << text << "\n";
}

/// The records of this run that the folder already holds; none unless the run is resumed.
std::vector<Record> earlier_records(const std::filesystem::path& dir, const RunOptions& o,
                                    const RunContext& context, const std::vector<WorkItem>& work,
                                    Journal& journal) {
  if (o.resume.empty()) {
    keep_earlier_run(dir);
    journal.cut(0);
    return {};
  }
  return take_up(dir, o, context, work, journal);
}

/// Runs `left`. Each finished case goes to the journal and to `records`, which are sorted by the plan at the
/// end. `timed` is called after each one that has a time.
void run_left(Executor& executor, const std::vector<WorkItem>& left, const RunOptions& o,
              const SessionOptions& options, Journal& journal, std::vector<Record>& records,
              const std::function<void()>& timed) {
  const DeviceInfo& device = executor.info();
  Progress progress(left.size(), {device.kind, device.threads, device.cache_bytes}, options, o);
  RunEvents events;
  events.begin = [&](const WorkItem& w, const std::string& repro) {
    set_in_hand(in_hand_text(w, options));
    progress.begin(w, repro);
  };
  events.end = [&](Record record) {
    records.push_back(std::move(record));
    journal.append(journal_line(records.back()));
    if (records.back().time) timed();
    progress.end(records.back());
    const Status s = records.back().status;
    return !o.fail_fast || s == Status::kPass || s == Status::kSkip;
  };
  events.output = [&](std::string_view text) {
    progress.clear();
    std::cerr << text << std::flush;
  };
  events.stop = stop_requested;
  executor.run(left, events);
  progress.clear();
  // Several workers finish in any order.
  std::ranges::sort(records, [](const Record& a, const Record& b) { return a.index < b.index; });
}

Ceilings ceilings_of(Executor& executor, const SessionOptions& options) {
  Ceilings none;
  none.note = !options.time              ? "not measured: nothing was timed"
              : !options.timing.ceilings ? "not measured: --no-ceilings"
              : stop_requested()         ? "not measured: the run was stopped"
                                         : "not measured: no case reached its timing";
  return options.wants_ceilings() ? executor.ceilings().value_or(none) : none;
}

/// What is known of a run before it begins.
RunContext context_of(const DeviceInfo& device, const Cases& cases, const Program& program,
                      const std::vector<WorkItem>& whole, const std::vector<WorkItem>& work,
                      const SessionOptions& options, std::pair<int, int> shard) {
  RunContext context = context_of_run(device, cases.name, program);
  describe_plan(context, whole, work, options);
  std::tie(context.plan.shard, context.plan.shards) = shard;
  context.complete = false;
  return context;
}

int run(const RunOptions& given, const Program& program) {
  if (given.worker)  // its supervisor has checked the options
    return serve_cases(session_options(given, program, {}), runner_of(program));
  check_options(given, program);
  check_resume(given.resume, given.out, given.cases);
  check_earlier_run(given);
  RunOptions o = given;
  const auto [shard, shards] = parse_shard(o.shard);
  const Cases cases = load_cases(for_interpreter(o.cases, program));
  choose_clock(o, program);
  const SessionOptions options = complete_options(o, program, cases);
  o.device = device_for(o.device, options.kernels, program.kernels);
  check_session(o, options, cases);
  const auto plan = [&](const DeviceInfo& device) {
    check_timing_on(device.kind, o, options);
    return plan_session(cases.cases, program.kernels, device.kind, options.kernels);
  };
  if (o.dry_run) {
    const auto device = open_chosen_device(o.device, o.threads, o.quiet);
    const auto whole = plan(device->info());
    std::vector<WorkItem> work = shard_of(whole, device->info().kind, shard, shards);
    if (o.last_failed) work = failed_last_time(work, o, cases, program.plugins);
    return worse_exit_code(dry_run(work, device->info(), options), cases.exit_code());
  }
  // Where nothing is timed, waiting threads sleep and leave the cores to the machine's other work. Timed kernels
  // keep the runtime's default: threads that must wake up first would lengthen their times.
  if (!options.time) setenv("OMP_WAIT_POLICY", "passive", 0);
  o.several_gpus = std::ranges::any_of(cases.cases, [](const Case& c) { return c.params.devices() > 1; });
  const auto earlier = earlier_ceilings(o.resume);
  Executor executor(o, program, options, o.check.empty() ? cases.check : std::vector<std::string>{},
                    earlier ? earlier->still_known() : std::nullopt);
  const std::vector<WorkItem> whole = plan(executor.info());
  if (!o.quiet) say_left_out(whole, cases, options);
  if (!o.quiet) say_idle_plugins(program, executor.info(), options);
  std::vector<WorkItem> work = shard_of(whole, executor.info().kind, shard, shards);
  if (o.last_failed) {
    work = failed_last_time(work, o, cases, program.plugins);
    if (work.empty()) return 0;
  }
  prepare_dump(o.dump, work, options);
  const int captured =
      options.check == CheckMode::kOff ? 0 : judge_captured_outputs(cases.cases, options.check, o.quiet);
  RunContext context = context_of(executor.info(), cases, program, whole, work, options, {shard, shards});

  // A gate reads the results of its runs.
  if (work.empty() && o.shard.empty() && o.resume.empty() && !o.is_turn())
    return report(o, cases, {}, {}, 0, 0, {}, "");  // no folder

  // Files are opened before any work: a full disk or a wrong path then costs nothing. A gate says itself why runs differ.
  if (options.time && !o.quiet && !o.is_turn())
    say_if_busy(executor.info(), "times will be too long and noisy");
  const std::filesystem::path dir = folder_of(o, cases);
  make_folder(dir);
  if (o.resume.empty()) check_space(dir, work.size());
  Journal journal(dir / "journal.jsonl");
  std::vector<Record> records = earlier_records(dir, o, context, work, journal);
  if (earlier) context.ceilings = earlier->ceilings;
  write_reports(dir, o.formats, context, records);
  if (!o.resume.empty() && !o.quiet)
    std::cerr << fmt::format("{}: {} of {} runs are finished\n", dir.string(), records.size(), work.size());

  set_advice(fmt::format("finished cases are in {}; --resume {} continues{}",
                         (dir / "journal.jsonl").string(), o.folder_to_resume(dir),
                         o.in_process ? "; without --in-process each case is isolated" : ""));
  watch_for_stop(o.in_process ? std::nullopt : std::optional(o.timeout_s));
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<WorkItem> left = unfinished(work, records);
  if (earlier && !left.empty() && options.wants_ceilings() && !o.quiet) say(earlier->text());
  // A run that is killed goes on with the ceilings that its records have shares of.
  const auto store_ceilings = [&] {
    const Ceilings now = ceilings_of(executor, options);
    if (ceilings_to_json(now) == ceilings_to_json(context.ceilings)) return;
    context.ceilings = now;
    write_reports(dir, o.formats, context, records);
  };
  std::vector<std::filesystem::path> paths;
  bool lost = false;
  try {
    run_left(executor, left, o, options, journal, records, store_ceilings);
    context.complete = records.size() == work.size();
    if (o.resume.empty() || !left.empty()) context.ceilings = ceilings_of(executor, options);
    if (!left.empty() && context.ceilings.read_gbs && (!earlier || earlier->still_known()))
      renew_rooflines(context.ceilings, options.timing.cache, executor.info(), records);
    paths = write_reports(dir, o.formats, context, records);
    if (!cases.traces.empty()) paths.push_back(write_evaluations(cases.traces, dir, context, records));
  } catch (const FileError& e) {
    paths = rescue(e, dir, journal, o, context, records);
    lost = true;
  }
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const int code = worse_exit_code(
      captured, report(o, cases, records, context.ceilings, work.size(), elapsed, paths, executor.lost()));
  return lost ? worse_exit_code(code, kExitUsage) : code;
}

}  // namespace

void add_run(CLI::App& app, Program& program) {
  auto* command =
      app.add_subcommand("run", "Expand sweeps; verify and time each case on each kernel; report");
  auto o = std::make_shared<RunOptions>();
  add_run_options(*command, o, program);
  command->footer(
      "Examples:\n"
      "  attnbench run quickstart\n"
      "  attnbench run smoke --device cpu --no-time --check full --format json,junit --out "
      "results/runs/smoke\n"
      "  attnbench run quickstart --filter paged --set dtype=fp16 --kernel cpu\n"
      "  attnbench run --case '{kv: paged, batch: 8q1s4k, block_size: 64}'\n"
      "  attnbench run quick --plugin ./mine.so --kernel mine --no-time --watch\n"
      "  attnbench run capture.safetensors; attnbench run flashinfer-trace/     (harness/interop/README.md)\n"
      "Exit codes: 0 all good, 1 a wrong result, 2 usage or configuration error, 4 a time below what the hardware\n"
      "  allows, 5 crash, hang or device error, 6 nothing matched or nothing ran, 130 interrupted.");
  command->callback([=, &program] {
    if (o->watch) return watch_instead(o, program);
    program.calls = o->in_process ? Calls::kHere : Calls::kInWorkers;
    if (const char* gate = std::getenv(kGateFolder); gate != nullptr) {
      o->gate = gate;
      o->cases.notes_said = true;
    }
    program.chosen = [=, &program] {
      o->kernels = with_peers(o->kernels, program);
      return run(*o, program);
    };
  });
}

}  // namespace attnbench::cli
