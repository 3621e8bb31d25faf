#include "harness/selftest/isolated.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "harness/launch/last_words.h"
#include "harness/results/json.h"
#include "harness/selftest/report.h"
#include "harness/session/worker.h"
#include "harness/session/worker_pipe.h"

namespace attnbench {
namespace {

using Clock = std::chrono::steady_clock;

/// Opening a device may take this long, whatever the timeout of a step is.
constexpr double kLeastStartSeconds = 120;
constexpr std::size_t kLogBytes = 4096;
/// No further step runs after this many have hung: a kernel that hangs in every fault would take hours.
constexpr int kMostTimeouts = 3;

/// The last line of a text that is not empty.
std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

/// Why a worker ended, from `how` ("was killed by signal 11 (Segmentation fault)") and the last line that it
/// printed. If that is its last message (last_words.h), only the call into the kernel is added: the step, the
/// case and the signal are known.
std::string end_text(const std::string& how, std::string words) {
  std::string text = "the worker process " + how;
  if (words.starts_with(kLastWordsBegin)) {
    words.erase(0, kLastWordsBegin.size());
    words.erase(std::min({words.size(), words.find(", selftest "), words.find(" in selftest ")}));
    const std::string what = words.substr(0, words.find(" in "));
    if (how.find(what) != how.npos) return text + words.substr(what.size());
  }
  return words.empty() ? text : text + ": " + words;
}

/// The result of a step that did not end.
StepResult failed_step(const SelftestStep& step, const std::string& device, const std::string& item,
                       const std::string& why) {
  StepResult r;
  if (step.fault.empty()) {
    r.clean.runs = 1;
    r.clean.errors = 1;
    r.clean.failures = {{step.kernel->name, why, repro_of_clean(step, device), ""}};
    return r;
  }
  FaultResult& f = r.fault.emplace();
  const std::size_t slash = step.fault.find('/');
  f.fault_class = step.fault.substr(0, slash);
  f.name = step.fault.substr(slash + 1);
  f.what = what_of_fault(step.fault);
  f.kernel = step.kernel->name;
  f.item = item;
  f.outcome = FaultResult::Outcome::kError;
  f.reason = why;
  return r;
}

bool is_error(const StepResult& r) {
  return r.clean.errors > 0 || (r.fault && r.fault->outcome == FaultResult::Outcome::kError);
}

}  // namespace

IsolatedSteps::~IsolatedSteps() { end_worker(); }

void IsolatedSteps::end_worker() {
  if (!process_) return;
  process_->close_input();
  process_->end(5);
  process_.reset();
}

void IsolatedSteps::take_log() {
  const std::string text = process_->printed();
  if (text.empty()) return;
  log_ += text;
  if (log_.size() > 2 * kLogBytes) log_.erase(0, log_.size() - kLogBytes);
  unprinted_ += text;
  print_lines(unprinted_.rfind('\n') + 1);
}

void IsolatedSteps::print_lines(std::size_t size) {
  std::string text;
  for (std::size_t at = 0; at < size;) {
    const std::size_t next = std::min(size, unprinted_.find('\n', at)) + 1;
    const std::string line = unprinted_.substr(at, std::min(next, size) - at);
    if (!line.starts_with(kLastWordsBegin)) text += line;
    at = next;
  }
  unprinted_.erase(0, size);
  if (options_.output && !text.empty()) options_.output(text);
}

IsolatedSteps::Answer IsolatedSteps::wait_for_answer(double seconds) {
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const auto ended = [&](double grace_s) {
    const std::string how = process_->end(grace_s);
    take_log();
    print_lines(unprinted_.size());
    process_.reset();
    return Answer{std::nullopt, end_text(how, last_line(log_))};
  };
  for (;;) {
    take_log();
    const bool open = process_->receive();
    if (auto answer = process_->next_answer()) {
      take_log();
      if (answer->is_object()) return {std::move(*answer), ""};
      print_lines(unprinted_.size());
      process_.reset();
      return {std::nullopt, std::string(kForgedLine) + "; its worker process was killed"};
    }
    if (!open || process_->ended()) return ended(5);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      ++timeouts_;
      print_lines(unprinted_.size());
      process_.reset();
      return {std::nullopt,
              fmt::format("no result within {:g} s (--timeout); its worker process was killed", seconds)};
    }
    pollfd fds[] = {{process_->out(), POLLIN, 0}, {process_->log(), POLLIN, 0}};
    // A process may end without an event on its pipes, so the wait is limited.
    poll(fds, 2, static_cast<int>(std::min<long>(left + 1, 1000)));
  }
}

DeviceInfo IsolatedSteps::open() { return open(""); }

DeviceInfo IsolatedSteps::open(const std::string& plugin) {
  log_.clear();
  plugin_ = plugin;
  process_ = std::make_unique<WorkerProcess>(options_.worker_command(plugin));
  process_->send({{"open", {{"device", options_.device}, {"threads", options_.threads}}}});
  const Answer a = wait_for_answer(std::max(kLeastStartSeconds, options_.timeout_s));
  if (!a.message)
    throw DeviceError(a.failure + (plugin.empty() ? "" : "; it opens --plugin " + plugin + " when it starts"),
                      true);
  if (const auto failed = a.message->find("failed"); failed != a.message->end()) {
    process_.reset();
    throw DeviceError(failed->get<std::string>(), false);
  }
  DeviceInfo info = device_from_json(a.message->at("ready").at("device"));
  device_name_ = info.name;
  return info;
}

StepResult IsolatedSteps::run(const SelftestStep& step) {
  if (timeouts_ >= kMostTimeouts) {
    throw DeviceError(fmt::format("not begun, since {} steps gave no result within {:g} s (--timeout)",
                                  timeouts_, options_.timeout_s),
                      false);
  }
  const std::string plugin = options_.plugin_of(*step.kernel);
  if (plugin != plugin_) end_worker();
  if (!process_) open(plugin);
  log_.clear();
  // If the worker has ended already, wait_for_answer sees it.
  process_->send({{"step",
                   {{"kernel", step.kernel->name},
                    {"op", static_cast<int>(step.kernel->op)},
                    {"fault", step.fault},
                    {"item", step.item},
                    {"seed", step.seed},
                    {"check", step.sweep_checks ? static_cast<int>(step.sweep_checks->mode) : -1},
                    {"invariants", step.sweep_checks && step.sweep_checks->invariants}}}});
  std::string item;
  for (;;) {
    const Answer a = wait_for_answer(options_.timeout_s);
    if (!a.message) return failed_step(step, device_name_, item, a.failure);
    try {
      if (const auto id = a.message->find("case"); id != a.message->end()) {
        item = id->get<std::string>();
        continue;
      }
      if (const auto lost = a.message->find("lost"); lost != a.message->end()) {
        process_.reset();
        return failed_step(step, device_name_, item, lost->get<std::string>());
      }
      print_lines(unprinted_.size());
      StepResult found = step_from_json(a.message->at("step"));
      if (is_error(found)) process_.reset();  // its state may be damaged
      return found;
    } catch (const nlohmann::json::exception&) {
      process_.reset();
      return failed_step(step, device_name_, item, std::string(kForgedLine));
    }
  }
}

int serve_steps(KernelTable table) {
  std::unique_ptr<Device> device;
  return serve_messages([&](const Message& m) {
    if (const auto open = m.find("open"); open != m.end()) {
      try {
        device = open_device(open->at("device").get<std::string>(), open->at("threads").get<int>());
      } catch (const DeviceError& e) {
        tell({{"failed", e.what()}});
        return false;
      }
      return tell({{"ready", {{"device", device_to_json(device->info())}}}});
    }
    const Message& j = m.at("step");
    const auto kernels = select_kernels(table, static_cast<Op>(j.at("op").get<int>()), device->info().kind,
                                        {j.at("kernel").get<std::string>()});
    SelftestStep step{kernels.at(0), j.at("fault").get<std::string>(), j.at("item").get<std::string>(),
                      j.at("seed").get<uint64_t>()};
    if (const int check = j.at("check").get<int>(); check >= 0)
      step.sweep_checks = {static_cast<CheckMode>(check), j.at("invariants").get<bool>()};
    try {
      const StepResult found = run_step(step, *device, [&](const std::string& id) {
        set_in_hand(fmt::format("selftest {}, case {}", step.text(), id));
        tell({{"case", id}});
      });
      set_in_hand("");
      std::fflush(nullptr);  // what a kernel printed belongs to this step
      return tell({{"step", step_to_json(found)}});
    } catch (const DeviceError& e) {
      tell({{"lost", e.what()}});
      return false;
    }
  });
}

}  // namespace attnbench
