#include "harness/session/supervisor.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "harness/launch/last_words.h"
#include "harness/results/json.h"
#include "harness/results/text.h"
#include "harness/session/experiments.h"
#include "harness/session/invariants.h"

namespace attnbench {
namespace {

/// A worker that cannot open its device is started again after a pause, up to this many failed starts.
constexpr int kMostFailedStarts = 3;
constexpr std::chrono::seconds kPause{1};
/// Least time limit for opening a device and for measuring its ceilings, whatever the timeout of a case is.
constexpr double kLeastStartSeconds = 120;
constexpr std::size_t kLogBytes = 4096;
constexpr std::size_t kLogLines = 20;

std::chrono::steady_clock::duration seconds(double s) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(s));
}

/// The last lines of what a worker printed, at most kLogLines and kLogBytes. A worker's last words begin a line of
/// their own, before which there may be an empty one.
std::string tail_of(std::string text) {
  const std::size_t words = text.rfind(kLastWordsBegin);
  if (words != text.npos && words > 0 && text[words - 1] == '\n' && (words == 1 || text[words - 2] == '\n'))
    text.erase(words - 1, 1);
  std::size_t begin = text.size() > kLogBytes ? text.size() - kLogBytes : 0;
  if (begin > 0) begin = std::min(text.find('\n', begin), text.size() - 1) + 1;
  std::size_t lines = 0;
  std::size_t at = text.size();
  if (at > begin && text[at - 1] == '\n') --at;
  const std::size_t end = at;
  while (at > begin) {
    if (text[at - 1] == '\n' && ++lines == kLogLines) break;
    --at;
  }
  return text.substr(at, end - at);
}

/// What is known of the result when timing begins.
const char* result_before_timing(const SessionOptions& options) {
  return options.check == CheckMode::kOff ? " (nothing was checked)"
                                          : " (the check before it passed: the result was right)";
}

}  // namespace

bool needs_new_worker(const Record& record, DeviceKind device) {
  const bool counted = record.counters && record.counters->launches > 0;
  return counted || record.status == Status::kError ||
         (record.status == Status::kFail && device == DeviceKind::kCpu);
}

Supervisor::Supervisor(SupervisorOptions options, const SessionOptions& session)
    : options_(std::move(options)), session_(session) {
  for (const std::string& device : options_.devices) {
    slots_.emplace_back();
    slots_.back().device = device;
  }
  if (options_.known && !slots_.empty()) slots_.front().ceilings = ceilings_to_json(*options_.known);
}

Supervisor::~Supervisor() {
  for (Slot& s : slots_) {
    if (s.process && s.state == State::kIdle) s.parked[s.plugin] = std::move(s.process);
    for (auto& [plugin, process] : s.parked) process->close_input();
  }
  for (Slot& s : slots_) {
    for (auto& [plugin, process] : s.parked) process->end(5);
  }
}

bool Supervisor::more_work() const { return !stopped_ && work_ != nullptr && next_ < work_->size(); }

void Supervisor::start(Slot& slot) {
  slot.log.clear();
  slot.served = 0;
  slot.process = std::make_unique<WorkerProcess>(options_.worker_command(slot.plugin));
  slot.state = State::kOpening;
  slot.deadline = Clock::now() + seconds(std::max(kLeastStartSeconds, options_.timeout_s));
  slot.process->send({{"open",
                       {{"device", slot.device},
                        {"threads", options_.threads},
                        {"ceilings", slot.ceilings ? *slot.ceilings : Message(nullptr)}}}});
}

std::string Supervisor::next_plugin() const {
  const auto plugin = session_.plugin_of.find((*work_)[next_].kernel);
  return plugin == session_.plugin_of.end() ? "" : plugin->second;
}

void Supervisor::change_worker(Slot& slot, const std::string& plugin) {
  if (slot.process) {
    take_log(slot);
    const auto last = last_of_.find(slot.plugin);
    if (last != last_of_.end() && last->second >= next_) {
      slot.process->pause();
      slot.parked[slot.plugin] = std::move(slot.process);
    } else {
      slot.process->close_input();
      slot.process->end(5);
    }
  }
  slot.plugin = plugin;
  const auto parked = slot.parked.find(plugin);
  if (parked == slot.parked.end() || parked->second->ended()) return start(slot);
  slot.process = std::move(parked->second);
  slot.parked.erase(parked);
  slot.process->resume();
  slot.state = State::kIdle;
  give_work(slot);
}

bool Supervisor::must_wait(const Slot& slot) const {
  const bool shared = (*work_)[next_].item->params.devices() > 1;
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& other) {
    if (&other == &slot) return false;
    if (other.state == State::kMeasuring) return shared;
    return other.state == State::kRunning && (shared || other.work->item->params.devices() > 1);
  });
}

void Supervisor::give_work(Slot& slot) {
  for (; more_work() && (*work_)[next_].kernel == nullptr; ++next_) {
    finish(slot, no_kernel_record((*work_)[next_], slot.info->name, session_));
  }
  if (!more_work() || must_wait(slot)) return;
  if (session_.wants_ceilings() && !slot.ceilings) {
    slot.state = State::kMeasuring;
    slot.deadline = Clock::now() + seconds(std::max(kLeastStartSeconds, options_.timeout_s));
    slot.process->send({{"measure", true}});
    return;
  }
  if (const std::string plugin = next_plugin(); plugin != slot.plugin) return change_worker(slot, plugin);
  slot.process->receive();
  if (slot.process->has_more()) return not_an_answer(slot, std::string(kForgedLine));
  slot.work = (*work_)[next_++];
  if (events_->begin) events_->begin(*slot.work, repro_line(*slot.work, slot.info->name, session_));
  send_work(slot);
}

void Supervisor::send_work(Slot& slot) {
  take_log(slot);
  slot.log.clear();
  ++slot.served;
  slot.state = State::kRunning;
  slot.reached = {};
  slot.so_far.reset();
  slot.deadline = Clock::now() + seconds(options_.timeout_s);
  // If the process has already ended, the pipe shows it.
  const bool again = slot.wrong.has_value();
  slot.process->send(case_message(*slot.work->item, slot.work->kernel->name, slot.work->index,
                                  failed_ < kMostExperiments && !again,
                                  again ? std::optional(slot.wrong->check->rows_seed) : std::nullopt));
}

void Supervisor::take_log(Slot& slot) {
  const std::string text = slot.process->printed();
  if (text.empty()) return;
  slot.log += text;
  if (slot.log.size() > 16 * kLogBytes) slot.log.erase(0, slot.log.size() - 2 * kLogBytes);
  if (slot.state != State::kRunning) return show(text);
  // A traceback from Python stands under the record of its case. Shown at once, it would be there twice.
  slot.held += text;
  const std::size_t traceback = slot.held.find("Traceback (most recent call last):");
  show(slot.held.substr(0, traceback));
  slot.held.erase(0, traceback);
}

void Supervisor::show(const std::string& text) const {
  if (!text.empty() && events_ != nullptr && events_->output) events_->output(text);
}

bool Supervisor::may_keep_state(const Slot& slot, const Record& record) const {
  if (slot.wrong || slot.served < 2 || failed_ >= kMostExperiments) return false;
  if (record.status != Status::kFail || !record.check || slot.reached.phase == Phase::kTiming) return false;
  const bool repeats = std::ranges::none_of(
      record.check->clues, [](const std::string& clue) { return clue.starts_with(kSecondLaunch); });
  return repeats && record.check->reference_s <= kExperimentSeconds && slot.work->item->params.devices() == 1;
}

void Supervisor::finish(Slot& slot, Record record) {
  if (auto wrong = std::exchange(slot.wrong, std::nullopt)) {
    if (record.status == Status::kPass) wrong->check->clues = {kPassesAlone};
    record = std::move(*wrong);
  }
  const std::string held = std::exchange(slot.held, "");
  if (record.log.find(held.substr(0, held.find_last_not_of('\n') + 1)) == std::string::npos) show(held);
  slot.work.reset();
  slot.failed_starts = 0;
  slot.state = State::kIdle;
  failed_ += took_experiments(record);
  if (!events_->end(std::move(record))) stopped_ = true;
}

void Supervisor::stop_worker(Slot& slot) {
  slot.process.reset();
  slot.state = State::kDown;
}

void Supervisor::start_failed(Slot& slot, const std::string& why, bool died) {
  if (slot.wrong) finish(slot, *slot.wrong);
  stop_worker(slot);
  slot.parked.clear();  // they may hold what it lacks: memory, or a GPU that one process may use at a time
  slot.died = died;
  slot.why_not = why;
  if (died && !slot.plugin.empty()) slot.why_not += "; it opens --plugin " + slot.plugin + " when it starts";
  slot.not_before = Clock::now() + kPause;
  if (++slot.failed_starts >= kMostFailedStarts) slot.state = State::kGivenUp;
}

Record Supervisor::failed_record(const Slot& slot, Status status, const std::string& reason) const {
  if (slot.so_far) {  // launches that look for a cause cost no verdict
    Record wrong = *slot.so_far;
    wrong.check->clues.push_back("a further launch, to look for the cause, did not end: " + reason);
    return wrong;
  }
  Record r = empty_record(*slot.work, slot.info->name, session_);
  r.status = status;
  r.reason = reason;
  r.log = tail_of(slot.log);
  return r;
}

std::string Supervisor::during(const Reached& reached) const {
  if (reached.phase == Phase::kTiming) return " during timing" + std::string(result_before_timing(session_));
  if (reached.phase != Phase::kInvariant) return "";
  return during_invariant(reached.invariant);
}

void Supervisor::worker_ended(Slot& slot) {
  const std::string how = slot.process->end(5);
  take_log(slot);
  if (slot.state == State::kRunning) {
    Record record =
        failed_record(slot, Status::kError,
                      "the worker process " + how + call_in_last_words(slot.log) + during(slot.reached) +
                          crash_advice(slot.work->item->params, slot.reached));
    stop_worker(slot);
    finish(slot, std::move(record));
    slot.state = State::kDown;
    return;
  }
  const std::string log = tail_of(slot.log);
  if (slot.state == State::kIdle) return stop_worker(slot);  // ended between two cases: a new one starts
  start_failed(slot, "the worker process " + how + (log.empty() ? "" : ": " + log), true);
}

std::string Supervisor::unfinished(const Reached& reached) const {
  const std::string advice = "raise --timeout, or take smaller cases (--set, --filter)";
  const std::string launch_s = digits(reached.launch_s, 2);
  switch (reached.phase) {
    case Phase::kSetup:
      break;
    case Phase::kLaunch:
      return ": the first launch did not end, so it hung, or takes longer. Then " + advice;
    case Phase::kCompare:
      return fmt::format(": the first launch took {} s, and the check of its result did not end: {}",
                         launch_s, advice);
    case Phase::kInvariant:
      return fmt::format(
          ": the result of the first launch was right, and that launch took {} s. Invariant {} ({}) did not end, so a "
          "launch hung, or all launches take longer. Then raise --timeout, take smaller cases (--set, --filter), or "
          "check without invariants (--check sampled)",
          launch_s, reached.invariant, invariant_words(reached.invariant));
    case Phase::kTiming:
      // A sample is one launch; one more warms up. Where the launches are this slow, so few are taken.
      const int launches = session_.timing.min_samples + 1;
      return fmt::format(
          ": timing did not end{}, so a launch hung, or takes more than {:.2g} s: timing needs {} launches at least. "
          "Then raise --timeout, take smaller cases (--set, --filter), or check without timing (--no-time)",
          result_before_timing(session_), options_.timeout_s / launches, launches);
  }
  return "";
}

void Supervisor::timed_out(Slot& slot) {
  take_log(slot);
  if (slot.state != State::kRunning) {
    return start_failed(slot,
                        fmt::format("the worker was not ready within {:g} s: the machine is busy, or the "
                                    "device hangs; --timeout gives it more",
                                    std::max(kLeastStartSeconds, options_.timeout_s)),
                        true);
  }
  slot.process->ask_where();
  take_log(slot);
  Record record =
      failed_record(slot, Status::kTimeout,
                    fmt::format("no result within {:g} s (--timeout){}; its worker process was killed{}",
                                options_.timeout_s, slot.so_far ? "" : unfinished(slot.reached),
                                call_in_last_words(slot.log)));
  stop_worker(slot);
  finish(slot, std::move(record));
  slot.state = State::kDown;
}

void Supervisor::not_an_answer(Slot& slot, const std::string& why) {
  take_log(slot);
  if (slot.state == State::kRunning) {
    Record record = failed_record(slot, Status::kError, why + "; its worker process was killed");
    stop_worker(slot);
    finish(slot, std::move(record));
    slot.state = State::kDown;
    return;
  }
  // An idle worker's last case has its record already.
  if (slot.state == State::kIdle && events_ != nullptr && events_->output)
    events_->output("attnbench: note: " + why + ", after a case had ended; a new worker process starts\n");
  start_failed(slot, why, true);  // counted, as it may happen each time
}

void Supervisor::handle(Slot& slot, const Message& m) {
  std::optional<Record> record;
  bool lost = false;
  try {
    if (const auto it = m.find("ready"); it != m.end()) {
      slot.info = device_from_json(it->at("device"));
      slot.state = State::kIdle;
      if (slot.wrong) send_work(slot);
    } else if (const auto failed = m.find("failed"); failed != m.end()) {
      start_failed(slot, failed->get<std::string>(), false);
    } else if (const auto measured = m.find("ceilings"); measured != m.end()) {
      slot.ceilings = *measured;
      if (slot.state == State::kMeasuring) slot.state = State::kIdle;
    } else if (const auto wrong = m.find("wrong"); wrong != m.end() && slot.state == State::kRunning) {
      slot.so_far = whole_record(*wrong, *slot.work->item);
    } else if (m.contains("phase")) {
      slot.reached = reached_from_message(m);
    } else if (slot.state == State::kRunning) {
      record = whole_record(m.at("record"), *slot.work->item);
      lost = m.at("lost").get<bool>();
    }
  } catch (const std::exception& e) {
    return not_an_answer(slot, fmt::format("the worker's answer cannot be read: {}", e.what()));
  }
  if (!record) return;
  if (slot.process->has_more()) return not_an_answer(slot, std::string(kForgedLine));
  take_log(slot);
  if (record->status == Status::kError) record->log = tail_of(slot.log);
  if (may_keep_state(slot, *record)) {
    slot.wrong = std::move(record);
    stop_worker(slot);
    return start(slot);
  }
  const bool renew = lost || needs_new_worker(*record, slot.info->kind);
  finish(slot, std::move(*record));
  if (renew) stop_worker(slot);
}

void Supervisor::look_at(Slot& slot) {
  if (!slot.process) return;
  take_log(slot);
  const bool open = slot.process->receive();
  while (slot.process) {
    const auto answer = slot.process->next_answer();
    if (!answer) break;
    if (!answer->is_object()) return not_an_answer(slot, std::string(kForgedLine));
    handle(slot, *answer);
  }
  if (!slot.process) return;
  if (!open || slot.process->ended()) return worker_ended(slot);
  const bool waits = slot.state != State::kIdle;
  if (waits && Clock::now() >= slot.deadline) timed_out(slot);
}

void Supervisor::wait_for_news() {
  std::vector<pollfd> fds;
  auto until = Clock::now() + std::chrono::seconds(1);  // a pipe does not always show that a process ended
  for (const Slot& s : slots_) {
    if (s.process) {
      fds.push_back({s.process->out(), POLLIN, 0});
      fds.push_back({s.process->log(), POLLIN, 0});
      if (s.state != State::kIdle) until = std::min(until, s.deadline);
    } else if (s.state == State::kDown && more_work()) {
      until = std::min(until, s.not_before);
    }
  }
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count() + 1;
  poll(fds.data(), fds.size(), static_cast<int>(std::max<long>(left, 0)));
}

std::vector<DeviceInfo> Supervisor::open() {
  for (Slot& s : slots_) start(s);
  const auto opening = [](const Slot& s) { return s.state == State::kOpening; };
  while (std::any_of(slots_.begin(), slots_.end(), opening)) {
    wait_for_news();
    for (Slot& s : slots_) look_at(s);
  }
  std::vector<DeviceInfo> infos;
  for (Slot& s : slots_) {
    if (!s.info) throw DeviceError(s.why_not, s.died);
    infos.push_back(*s.info);
  }
  return infos;
}

void Supervisor::run(const std::vector<WorkItem>& work, const RunEvents& events) {
  work_ = &work;
  events_ = &events;
  last_of_.clear();
  for (next_ = 0; next_ < work.size(); ++next_) last_of_[next_plugin()] = next_;
  next_ = 0;
  stopped_ = false;
  for (;;) {
    bool busy = false, can_go_on = false;
    for (Slot& s : slots_) {
      stopped_ = stopped_ || events.stop();
      if (more_work() && s.state == State::kDown && Clock::now() >= s.not_before)
        change_worker(s, next_plugin());
      if (more_work() && s.state == State::kIdle) give_work(s);
      busy = busy || s.state == State::kRunning || s.state == State::kMeasuring ||
             (s.state == State::kOpening && (more_work() || s.wrong));
      can_go_on = can_go_on || s.state != State::kGivenUp;
    }
    if (!busy && !more_work()) break;
    if (!busy && !can_go_on) {
      lost_ = slots_.front().why_not;
      break;
    }
    wait_for_news();
    for (Slot& s : slots_) look_at(s);
  }
  work_ = nullptr;
  events_ = nullptr;
}

std::optional<Ceilings> Supervisor::ceilings() const {
  if (slots_.empty() || !slots_.front().ceilings) return std::nullopt;
  return ceilings_from_json(*slots_.front().ceilings);
}

}  // namespace attnbench
