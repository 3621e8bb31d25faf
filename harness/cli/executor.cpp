#include "harness/cli/executor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "harness/cli/cli.h"
#include "harness/cli/device_options.h"
#include "harness/cli/peers.h"
#include "harness/cli/plugins.h"
#include "harness/cli/usage_error.h"
#include "harness/launch/last_words.h"
#include "harness/launch/python.h"
#include "harness/launch/runner.h"
#include "harness/ops/op.h"
#include "harness/session/experiments.h"
#include "harness/session/session.h"

namespace attnbench::cli {
namespace {

/// Interval of the warnings about a case of --in-process that does not end, in seconds.
constexpr int kHangSeconds = 60;

/// Whether the plug-in has the merge_states kernel of the same name for a kernel of the file `plugin`.
bool merges_for(const LoadedPlugin& merging, const std::string& plugin, const Program& program) {
  return std::any_of(merging.kernels.begin(), merging.kernels.end(), [&](const Kernel* m) {
    const auto same = [&](const Kernel* k) {
      return std::string_view(k->name) == m->name && plugin_of(program, *k) == plugin;
    };
    return traits_of(m->op).merges && std::any_of(program.kernels.begin(), program.kernels.end(), same);
  });
}

}  // namespace

std::vector<std::string> worker_command(const Program& program, const std::string& plugin,
                                        std::vector<std::string> more, bool judge) {
  more.push_back("--worker");
  if (judge) more.push_back("--judge");
  bool python = false;
  for (std::size_t i = 0; i < program.plugins.size(); ++i) {
    const LoadedPlugin& p = program.plugins[i];
    more.push_back("--plugin-digest=" + p.digest);
    if (p.path != plugin && (plugin.empty() || !merges_for(p, plugin, program))) continue;
    more.push_back(fmt::format("--worker-opens={}", i));
    python = python || (is_python(p.path) && !judge);
  }
  for (const std::string& word : peer_words(program)) more.push_back(word);
  return words_again(program, more, python);
}

std::vector<std::string> runner_of(const Program& program) {
  if (!program.judge) return {};
  // Nothing else of the command line: seeds and files of cases are no business of a kernel.
  std::vector<std::string> words = {program_file(), "run", "--worker", "--runner"};
  bool python = false;
  for (const std::string& file : program.plugin_files) words.push_back("--plugin=" + file);
  for (const std::string& digest : program.plugin_digests) words.push_back("--plugin-digest=" + digest);
  for (const std::size_t i : program.worker_opens) {
    words.push_back(fmt::format("--worker-opens={}", i));
    python = python || is_python(program.plugin_files.at(i));
  }
  return python ? python_command(python_file(program.python), words) : words;
}

void add_worker_options(CLI::App& command, bool& worker, Program& program) {
  command.add_flag("--judge", program.judge)->group("");
  command.add_flag("--runner", program.runner)->group("");
  command.add_flag("--worker", worker)->group("");
  command.add_option("--worker-opens", program.worker_opens)
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false)
      ->group("");
  command.add_option("--plugin-digest", program.plugin_digests)
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false)
      ->group("");
}

Executor::Executor(const RunOptions& o, const Program& program, const SessionOptions& session,
                   const std::vector<std::string>& check_of_file, const std::optional<Ceilings>& known)
    : session_(session) {
  if (o.in_process && o.timeout_given) {
    throw UsageError("--timeout needs worker processes: nobody could stop a case of --in-process");
  }
  if (o.in_process && (o.workers > 1 || o.device == "all")) {
    throw UsageError("--in-process runs on one device, in this process");
  }
  if (o.in_process) {
    tell_hangs(kHangSeconds);
    device_ = open_chosen_device(o.device, o.threads, o.quiet);
    if (device_->info().kind == DeviceKind::kCpu) device_ = open_cpu_protected(o.threads);
    info_ = device_->info();
    info_.trust = "in_process";
    has_ceilings_ = known.has_value();
    if (known) device_->adopt_ceilings(*known);
  } else {
    open_workers(o, program, check_of_file, known);
  }
}

void Executor::open_workers(const RunOptions& o, const Program& program,
                            const std::vector<std::string>& check_of_file,
                            const std::optional<Ceilings>& known) {
  SupervisorOptions s;
  s.known = known;
  // A worker gets cases through a pipe. The checks of their file go on its command line.
  std::vector<std::string> more;
  if (!check_of_file.empty()) more.push_back(fmt::format("--check={}", fmt::join(check_of_file, ",")));
  if (o.timing.clock_chosen) more.push_back("--clock=" + o.timing.clock);
  s.devices = chosen_devices(o.device, o.quiet);
  const bool judge = s.devices.front() == "cpu" || (!o.several_gpus && probe_devices().shared_cuda);
  s.worker_command = [&program, more, judge](const std::string& plugin) {
    return worker_command(program, plugin, more, judge);
  };
  if (s.devices.front() == "cpu") {
    // A judge's threads sleep when they wait, so that kernels have all cores.
    const char* policy = std::getenv("OMP_WAIT_POLICY");
    setenv(kUsersWaitPolicy, policy != nullptr ? policy : "", 0);
    setenv("OMP_WAIT_POLICY", "passive", 1);
  }
  s.threads = o.threads;
  s.timeout_s = o.timeout_s;
  if (o.workers > 1) {
    if (s.devices.front() != "cpu") {
      throw UsageError("--workers is for the cpu device; a GPU has one worker (--device all: one each)");
    }
    if (session_.time) {
      throw UsageError("--workers disturbs times, as workers share caches and memory; add --no-time");
    }
    const int threads = o.threads > 0 ? o.threads : open_device("cpu")->info().threads;
    s.devices.assign(static_cast<std::size_t>(o.workers), "cpu");
    s.threads = std::max(1, threads / o.workers);
  }
  supervisor_ = std::make_unique<Supervisor>(s, session_);
  try {
    const std::vector<DeviceInfo> infos = supervisor_->open();
    info_ = infos.front();
    if (const std::string& means = info_.confinement; !o.quiet && means.find("no ") != means.npos)
      std::cerr << fmt::format("note: kernels are confined by less than this program knows ({})\n", means);
    for (const DeviceInfo& i : infos) {
      if (i.model == info_.model) continue;
      throw UsageError(
          fmt::format("--device all: {} is a {}, {} a {}: their times would stand in one report as "
                      "if they were of one device; run each kind alone, --device {}",
                      info_.name, info_.model, i.name, i.model, i.name));
    }
  } catch (const DeviceError& e) {
    if (e.lost) throw;
    throw UsageError(cannot_open(o.device, e.what()));
  }
}

void Executor::run(const std::vector<WorkItem>& work, const RunEvents& events) {
  if (supervisor_) {
    supervisor_->run(work, events);
    lost_ = supervisor_->lost();
    return;
  }
  bool lost = false;
  int failed = 0;
  for (WorkItem w : work) {
    if (events.stop()) return;
    if (lost) {
      lost_ = info_.name + " is unusable after this error";
      return;
    }
    w.experiments = failed < kMostExperiments;
    Record record =
        run_item(w, *device_, session_, lost, [&](const std::string& repro) { events.begin(w, repro); });
    set_in_hand("");
    failed += took_experiments(record);
    has_ceilings_ = has_ceilings_ || (record.time && session_.wants_ceilings());
    if (!events.end(std::move(record))) return;
  }
}

std::optional<Ceilings> Executor::ceilings() {
  if (supervisor_) return supervisor_->ceilings();
  if (!lost_.empty() || !has_ceilings_) return std::nullopt;
  return device_->ceilings(ceiling_dtypes());
}

}  // namespace attnbench::cli
