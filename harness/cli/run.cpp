#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <iostream>

#include "harness/cli/common.h"
#include "harness/cli/progress.h"
#include "harness/cli/stop_signal.h"
#include "harness/config/sweep_file.h"
#include "harness/report/console.h"
#include "harness/report/files.h"
#include "harness/report/json.h"
#include "harness/session/journal.h"

namespace attnbench::cli {
namespace {

constexpr int kInterrupted = 130;  ///< 128 + SIGINT, as shells have it

struct RunOptions {
  CaseOptions cases;
  TimingFlags timing;
  std::string device = "auto";
  std::vector<std::string> kernels;
  std::vector<std::string> check;
  int repeats = 2;
  std::string out;
  std::vector<std::string> formats = {"json"};
  int threads = 0;
  bool no_time = false;
  bool dry_run = false;
  bool quiet = false;
  bool verbose = false;
  bool fail_fast = false;
};

/// "configs" with a date: where a run goes that was not told.
std::filesystem::path default_folder(const std::string& name) {
  std::string safe;
  for (const char c : name)
    safe += std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' ? c : '-';
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return std::filesystem::path("results") / "runs" / fmt::format("{:%Y%m%d-%H%M%S}-{}", local, safe);
}

SessionOptions session_options(const RunOptions& o, const std::vector<std::string>& check_of_file) {
  SessionOptions s;
  const std::vector<std::string>& check = o.check.empty() ? check_of_file : o.check;
  const auto asked = [&](const char* word) {
    return std::find(check.begin(), check.end(), word) != check.end();
  };
  s.check = asked("full") ? CheckMode::kFull : asked("off") ? CheckMode::kOff : CheckMode::kSampled;
  s.invariants = asked("invariants");
  s.repeats = o.repeats;
  s.time = !o.no_time;
  s.timing = o.timing.options();
  s.kernels = o.kernels;
  if (!check.empty() && check != std::vector<std::string>{"sampled"})
    s.plain_args.push_back(fmt::format("--check {}", fmt::join(check, ",")));
  if (o.repeats != 2) s.plain_args.push_back(fmt::format("--repeats {}", o.repeats));
  if (o.no_time) s.plain_args.push_back("--no-time");
  if (o.timing.cache != "cold") s.plain_args.push_back("--cache " + o.timing.cache);
  if (o.timing.graph) s.plain_args.push_back("--graph");
  if (o.timing.no_ceilings) s.plain_args.push_back("--no-ceilings");
  return s;
}

/// CPU times taken while other processes wanted the cores say little.
void warn_if_busy(const std::vector<Record>& records) {
  std::size_t busy = 0;
  for (const Record& r : records)
    busy += r.time && 2 * static_cast<std::size_t>(r.time->disturbed) > r.time->samples_us.size();
  if (busy > 0) {
    std::cerr << fmt::format(
        "{} cases were timed while other processes took the cores: their times say little "
        "(results are right all the same); OMP_WAIT_POLICY=passive makes them less wrong\n",
        busy);
  }
}

int dry_run(const std::vector<WorkItem>& work, const Device& device, const SessionOptions& options) {
  for (const WorkItem& w : work) {
    std::cout << repro_line(*w.item, w.kernel ? w.kernel->name : "", device.info().name, options) << "\n";
  }
  std::cout << fmt::format("{} runs\n", work.size());
  return work.empty() ? 6 : 0;
}

int run(const RunOptions& o, const Program& program) {
  try {
    check_formats(o.formats);
  } catch (const std::invalid_argument& e) {
    throw UsageError(fmt::format("--format: {}", e.what()));
  }
  if (const auto wrong = wrong_check(o.check)) throw UsageError("--check: " + *wrong);
  check_kernel_names(o.kernels, program.kernels);
  const Cases cases = load_cases(o.cases);
  SessionOptions options = session_options(o, cases.check);
  if (options.kernels.empty() && !cases.kernel.empty()) {
    options.kernels = {cases.kernel};
    check_kernel_names(options.kernels, program.kernels);
  }
  const auto device = open_chosen_device(o.device, o.threads, o.quiet);
  if (o.timing.graph && device->info().kind == DeviceKind::kCpu) {
    throw UsageError("--graph times CUDA graphs; the cpu device has none");
  }
  const std::vector<WorkItem> work =
      plan_session(cases.cases, program.kernels, device->info().kind, options.kernels);
  if (o.dry_run) return dry_run(work, *device, options);

  const std::filesystem::path dir = o.out.empty() ? default_folder(cases.name) : std::filesystem::path(o.out);
  RunContext context = describe_run(*device, cases.name, program.command_line);
  context.planned = static_cast<int64_t>(work.size());
  context.complete = false;
  std::vector<Record> records;
  // The folder and its files are opened before any work, so that a full disk or a wrong path costs nothing.
  write_reports(dir, o.formats, context, records);
  Journal journal(dir / "journal.jsonl");

  watch_for_stop();
  Progress progress(work.size(), o.quiet, o.verbose);
  const auto begin = std::chrono::steady_clock::now();
  bool lost = false;
  for (const WorkItem& w : work) {
    if (stop_requested() || lost) break;
    const std::string name = w.item->id + (w.kernel ? std::string("/") + w.kernel->name : "");
    records.push_back(
        run_item(w, *device, options, lost, [&](const std::string& repro) { progress.begin(name, repro); }));
    journal.append(journal_line(records.back()));
    progress.end(records.back());
    if (o.fail_fast && session_exit_code(records) != 0 && records.back().status != Status::kSkip) break;
  }
  progress.clear();
  context.complete = records.size() == work.size();
  if (!options.time) {
    context.ceilings.note = "not measured: nothing was timed";
  } else if (!options.timing.ceilings) {
    context.ceilings.note = "not measured: --no-ceilings";
  } else if (!lost && !stop_requested()) {
    context.ceilings = device->ceilings({DType::kBf16, DType::kFp16, DType::kFp32});
  }
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const auto paths = write_reports(dir, o.formats, context, records);

  const std::size_t width = terminal_width(STDOUT_FILENO);
  print_console(std::cout, records, {width, width > 0 && !std::getenv("NO_COLOR"), elapsed});
  for (const auto& path : paths) std::cout << "report: " << path.string() << "\n";
  std::cout.flush();
  if (cases.duplicates > 0) std::cerr << fmt::format("{} duplicate cases were dropped\n", cases.duplicates);
  if (lost)
    std::cerr << fmt::format("{} is unusable after this error; {} runs were not started\n",
                             device->info().name, work.size() - records.size());
  warn_if_busy(records);
  if (work.empty()) {
    std::cerr << fmt::format("nothing matched: {} cases were filtered out, {} excluded\n", cases.filtered,
                             cases.excluded);
  }
  if (stop_requested()) {
    std::cerr << fmt::format("interrupted: {} of {} runs are in the reports\n", records.size(), work.size());
    return kInterrupted;
  }
  return session_exit_code(records);
}

}  // namespace

void add_run(CLI::App& app, Program& program) {
  auto* command =
      app.add_subcommand("run", "Expand sweeps; verify and time each case on each kernel; report");
  auto o = std::make_shared<RunOptions>();
  o->cases.add(*command);
  command->add_option("--device", o->device, "auto (a GPU where one works), cpu, cuda or cuda:N")
      ->type_name("DEVICE");
  command
      ->add_option("--kernel", o->kernels, "Only this kernel; may be repeated (attnbench kernels lists them)")
      ->type_name("NAME")
      ->expected(1)
      ->take_all();
  command
      ->add_option("--check", o->check,
                   "full: every output row against the float64 reference; sampled (default): every row where "
                   "that is cheap, "
                   "else a sample with all sequence ends, tile boundaries and heads; off. With invariants: "
                   "other layouts, batches and launches of a case must give the same result "
                   "(--check sampled,invariants). Default: what the file's 'check' says, else sampled")
      ->type_name("LIST")
      ->delimiter(',');
  command
      ->add_option("--repeats", o->repeats,
                   "Launches that must agree bit for bit, of the invariant 'repeat' (default 2)")
      ->type_name("N")
      ->check(CLI::Range(2, 10000000));
  command->add_flag("--no-time", o->no_time, "Verify only");
  o->timing.add(*command);
  command->add_option("--threads", o->threads, "Host threads of the cpu device (default: all)")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
  command->add_option("--out", o->out, "Folder of the reports (default: results/runs/DATE-NAME)")
      ->type_name("DIR");
  command->add_option("--format", o->formats, "Reports beside results.json: csv, md, junit (comma-separated)")
      ->type_name("LIST")
      ->delimiter(',');
  command->add_flag("--fail-fast", o->fail_fast, "Stop at the first case that is not a pass or a skip");
  command->add_flag("--dry-run", o->dry_run, "Print the line that would run each case, and run none");
  command->add_flag("-q,--quiet", o->quiet, "No progress");
  command->add_flag("-v,--verbose", o->verbose,
                    "Print each case's reproducing line before it runs, on a terminal too");
  command->footer(
      "Examples:\n"
      "  attnbench run configs/quickstart.yaml\n"
      "  attnbench run configs/smoke.yaml --device cpu --no-time --check full --format json,junit --out "
      "results/runs/smoke\n"
      "  attnbench run configs/quickstart.yaml --filter paged --set dtype=fp16 --kernel cpu\n"
      "  attnbench run --case '{kv: paged, batch: 8q1s4k, block_size: 64}'");
  command->callback([=, &program] { program.chosen = [=, &program] { return run(*o, program); }; });
}

}  // namespace attnbench::cli
