#include "harness/session/timed_launches.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/cases/cost.h"
#include "harness/gigabytes.h"
#include "harness/judge/verify.h"
#include "harness/session/check_stage.h"

namespace attnbench {
namespace {

constexpr int kWarmups = 2;
constexpr int kInputChecks = 16;  ///< one launch in so many is followed by a look at the inputs
/// A launch on new inputs may take longer than this times a launch on known ones, plus this many us: new memory
/// costs address translations, and results that are kept save far more. A busy machine disturbs single
/// launches, so a kernel is accused only if this many in a row take longer.
constexpr double kNewInputsFactor = 1.5;
constexpr double kNewInputsUs = 20;
constexpr int kNewInputs = 9;
constexpr int kNewInputChecks = 8;  ///< one launch on new inputs in so many is compared with the reference

/// A launch on new inputs may take longer than this times the median of the samples, plus this many us, if the kernel is
/// honest: a busy machine disturbs some samples and some launches on new inputs, but not all nine. A kernel that becomes
/// honest when it sees that results are asked about takes as long for known inputs from then on.
constexpr double kSamplesFactor = 3;
constexpr double kSamplesUs = 100;
/// A machine is slower than while the samples were taken if one of the probes takes longer by this factor.
constexpr double kSlowerMachine = 1.5;

/// A time may be less than this times the time between two readings of a second clock, minus this many us: the
/// readings are not taken at the same moments.
constexpr double kClockFactor = 0.9;
constexpr double kClockUs = 20;

/// CPU: threads that are not the harness's may work for this share of a launch's time, or this many us, while
/// the launch is prepared. A kernel is accused if so many launches, and one in ten, see more: on a busy machine
/// a thread that works ahead is rarely done in time.
constexpr double kForeignShare = 0.25;
constexpr double kForeignUs = 200;
constexpr int kLeastForeign = 3;
constexpr int kForeignOneIn = 10;

/// What a busy machine can do to single launches is held against a kernel only if most launches, and at least
/// so many, show it.
constexpr int kLeastAccused = 5;

/// Share of the free memory that a second copy of the tensors may take.
constexpr double kShareOfMemory = 0.8;

bool slower_machine(const Sample& sample, const TimeResult& before) {
  return sample.cores_us > kSlowerMachine * before.cores_us ||
         sample.memory_us > kSlowerMachine * before.memory_us ||
         sample.handover_us > kSlowerMachine * before.handover_us;
}

}  // namespace

TimedLaunches::Made::Made(const Case& c, const WorkItem& work, const SessionOptions& options, Device& device,
                          const Launcher& like, uint64_t salt, bool launch_first)
    : item(c),
      workload(device, item, layout_for(*work.kernel, {.salt = salt}), Values::kLater),
      launcher(*work.kernel, options.table, device, workload, &like) {
  if (launch_first) {
    launcher.launch_alone();
    device.synchronize();
  }
  workload.fill_values();
}

TimedLaunches::TimedLaunches(const WorkItem& work, Device& device, const SessionOptions& options,
                             Workload& workload, Launcher& launcher, uint64_t verified, int64_t copies,
                             uint64_t seed)
    : work_(work),
      device_(device),
      options_(options),
      verified_(verified),
      order_(seed),
      watches_(options.timing.watch && options.check != CheckMode::kOff),
      rotates_(options.timing.cache == CacheMode::kRotate) {
  copies_.push_back({&workload, &launcher, launch_of(launcher)});
  for (int64_t i = 1; i < copies; ++i) add(work.item->seed, 0);
  if (!watches_) return;
  const double room = kShareOfMemory * static_cast<double>(device.free_memory());
  if (copies == 1 && cost_of(*work.item).device_bytes < room) {
    try {
      // New tokens go to the same slots in all copies, so that the digests of their caches are equal.
      add(work.item->seed, writes_cache(work.item->params) ? 0 : order_());
    } catch (const OutOfMemory&) {  // one copy will do
    }
  }
}

std::function<void()> TimedLaunches::launch_of(Launcher& launcher) {
  std::function<void()> launch = [&launcher] { launcher.launch_alone(); };
  return options_.timing.graph ? device_.capture_graph(launch) : launch;
}

TimedLaunches::Copy& TimedLaunches::add(uint64_t seed, uint64_t salt, bool launch_first) {
  Case other = *work_.item;
  other.seed = seed;
  if (seed != work_.item->seed) other.params.captured = nullptr;  // drawn values of the same shapes
  const std::size_t first = copies_.front().launcher->workspace_bytes();
  try {
    made_.emplace_back(other, work_, options_, device_, *copies_.front().launcher, salt, launch_first);
  } catch (const NoWorkspace& e) {  // a kernel must not choose how many copies there are
    if (e.bytes <= first) throw;
    throw KernelError(fmt::format(
        "{}: workspace_bytes wants {} for a copy of tensors for which it wanted {} before, and there is no "
        "memory for it",
        work_.kernel->name, gigabytes(static_cast<double>(e.bytes)), gigabytes(static_cast<double>(first))));
  }
  Made& made = made_.back();
  made.workload.reset_outputs();
  return copies_.emplace_back(Copy{&made.workload, &made.launcher, launch_of(made.launcher)});
}

int TimedLaunches::warmups() const { return std::max(kWarmups, static_cast<int>(copies_.size())); }

std::string TimedLaunches::which(const Copy& copy) const {
  return fmt::format("timed launch {}{}", summary_.launches,
                     copy.has_other_values(*work_.item)
                         ? fmt::format(" (with other values, seed {})", copy.workload->item().seed)
                         : "");
}

void TimedLaunches::prepare(Copy& copy) {
  device_.settle();
  Workload& w = *copy.workload;
  const CaseParams& p = work_.item->params;
  if (!copy.expected && !copy.has_other_values(*work_.item)) copy.expected = copies_.front().expected;
  if (copy.expected) {
    // In a rotating cache, the last moment would bring inputs into the cache. It is only that of one device.
    const bool late = !rotates_ && p.devices() == 1;
    copy.late =
        w.set_signs(other_signs(p, w.signs(), order_()), late ? few_channels(p, order_()) : FewChannels{});
  } else {
    copy.late = w.set_signs(plain_signs(p));
  }
  w.poison_outputs();
  if (options_.timing.cache == CacheMode::kHot) {
    const StateBefore before(StateBefore::Scope::kThread);
    copy.launch();
    device_.synchronize();
    copy.launcher->expect_restored(before);
    w.poison_outputs();
  }
  copy.ready = true;
}

Sample TimedLaunches::time(Copy& copy, const LaunchWatch* watch) {
  const StateBefore before(StateBefore::Scope::kThread);
  RankExchange* exchange = copy.launcher->exchange();
  if (exchange) exchange->empty_caches(options_.timing.cache);
  Sample s = device_.time_launch(copy.launch, options_.timing.cache, watch);
  if (exchange) exchange->read_times(s);
  copy.launcher->expect_restored(before);
  return s;
}

Sample TimedLaunches::timed(Copy& copy) {
  if (!copy.ready) prepare(copy);
  copy.ready = false;
  device_.reset_cache_policy();
  const std::vector<WatchedOutput> outputs = copy.workload->watched_outputs();
  LaunchWatch watch{outputs, copy.late, order_(), nullptr};
  if (copy.launcher->returns_outputs()) watch.take_outputs = [&copy] { copy.launcher->take_outputs(); };
  ++summary_.launches;
  Sample s = time(copy, &watch);
  judge(copy, s);
  if (rotates_) prepare(copy);  // its turn comes when the other copies have passed through the cache
  return s;
}

Sample TimedLaunches::sample() {
  // Until every copy has had its first launch, and in a rotating cache, copies have their turns.
  const bool in_turn = rotates_ || !watches_ || turn_ < copies_.size();
  const std::size_t chosen = (in_turn ? turn_ : order_()) % copies_.size();
  ++turn_;
  if (!watches_) return time(copies_[chosen], nullptr);
  return timed(copies_[chosen]);
}

void TimedLaunches::rest() {
  if (!watches_) return;
  for (Copy& copy : copies_) {
    copy.workload->set_signs(plain_signs(work_.item->params));
    copy.workload->poison_outputs();
    copy.ready = false;
  }
}

bool TimedLaunches::most(int launches) const {
  return launches >= kLeastAccused && 2 * launches > summary_.launches;
}

void TimedLaunches::judge(Copy& copy, const Sample& sample) {
  const WatchReading& seen = sample.watch;
  if (seen.early > 0) {
    throw WrongLaunch(fmt::format("{}: its outputs were written before it began: {} of the places looked at "
                                  "did not hold poison any more",
                                  which(copy), seen.early),
                      {detector::kEarly});
  }
  if (seen.at_end != seen.when_idle) {
    throw WrongLaunch(fmt::format("{}: its outputs still changed after it had ended", which(copy)),
                      {detector::kLate});
  }
  if (sample.us > 0 && seen.foreign_us > kForeignUs && seen.foreign_us > kForeignShare * sample.us)
    ++foreign_;
  if (foreign_ >= kLeastForeign && kForeignOneIn * foreign_ > summary_.launches) {
    throw WrongLaunch(
        fmt::format("{}: between launches, when the inputs were in place, other threads worked for "
                    "{:.0f} us; the launch took {:.0f} us. Threads of a kernel must sleep then",
                    which(copy), seen.foreign_us, sample.us),
        {detector::kForeignWork});
  }
  if (sample.us < kClockFactor * seen.span_us - kClockUs) ++clock_;
  if (most(clock_)) {
    throw WrongLaunch(
        fmt::format("{}: {:.1f} us by the timer, but {:.1f} us by a clock that a kernel cannot change",
                    which(copy), sample.us, seen.span_us),
        {detector::kClock});
  }
  if (!copy.expected) {
    judge_first(copy, seen.at_end);
  } else if (seen.at_end != *copy.expected && same_bits_) {
    check(copy, CheckMode::kSampled, "unlike the verified launch");
    same_bits_ = false;
  }
  if (!same_bits_ && summary_.launches >= next_check_) {
    check(copy, CheckMode::kSampleOnly, "chosen at random");
    next_check_ =
        summary_.launches + 1 + static_cast<int>(order_() % (3u * static_cast<unsigned>(summary_.launches)));
  }
  if (now_and_then(kInputChecks)) check_inputs(copy);
}

void TimedLaunches::judge_first(Copy& copy, uint64_t digest) {
  copy.expected = digest;
  if (copy.has_other_values(*work_.item)) {
    if (now_and_then(kNewInputChecks)) check(copy, CheckMode::kFewRows, "first one with these values");
  } else if (copy.workload->outputs_digest() != verified_) {
    same_bits_ = false;
    check(copy, CheckMode::kSampled, "unlike the verified launch");
  }
}

void TimedLaunches::check(Copy& copy, CheckMode mode, const std::string& what) {
  ++summary_.by_reference;
  const Workload& w = *copy.workload;
  const HostOutputs outputs = copy.launcher->outputs(w);
  Verdict v = verify(w, outputs, copy.launcher->numerics(), {mode, order_() | 1});
  if (v.pass) return;
  v.clues = clues_or_none(w.item(), outputs, *copy.launcher, v);
  v.clues.push_back(
      "the verified launch was right: does a part of the launch end after the function launch has returned, do threads race, "
      "or does the kernel keep something from launch to launch (results, addresses, a counter)? Each timed launch "
      "has poison in its outputs, other signs of some inputs, and maybe other addresses");
  std::vector<std::string> failed_by = v.failed_by;
  failed_by.insert(failed_by.begin(), detector::kTimed);
  throw WrongLaunch(fmt::format("{}, {}: {}", which(copy), what, v.reason), failed_by, v.clues);
}

void TimedLaunches::check_inputs(Copy& copy) {
  copy.workload->set_signs(plain_signs(work_.item->params));
  if (auto damage = copy.workload->input_damage()) {
    throw WrongLaunch(fmt::format("{}: {}", which(copy), *damage), {detector::kInputDigest});
  }
}

void TimedLaunches::add_in_place() {
  const bool both_fit =
      cost_of(*work_.item).device_bytes < kShareOfMemory * static_cast<double>(device_.free_memory());
  if (!both_fit) {
    copies_.pop_back();
    made_.pop_back();
  }
  add(order_(), order_(), /*launch_first=*/true);
  if (!both_fit) return;
  copies_.erase(copies_.end() - 2);  // while it existed, the new one could not get its memory
  made_.pop_front();
}

void TimedLaunches::try_new_inputs(const TimeResult& time) {
  // In a hot cache, the launch before a timed one has seen its inputs. A rotating one needs its copies.
  if (!watches_ || copies_.size() != 2 || rotates_ || options_.timing.cache == CacheMode::kHot) return;
  bool like_known = false, like_samples = false;
  for (int i = 0; i < kNewInputs && !(like_known && like_samples); ++i) {
    try {
      add_in_place();
    } catch (const OutOfMemory&) {  // another process has taken the memory
      return;
    }
    // Making inputs takes long, so on a busy machine the next launch waits for its turn. That must not always be the one
    // with new inputs.
    if (i > 0) timed(copies_.front());
    const Sample fresh = timed(copies_.back());
    const double known_us = timed(copies_.front()).us;
    summary_.fresh_us = i == 0 ? fresh.us : std::min(summary_.fresh_us, fresh.us);
    like_known = like_known || fresh.us <= kNewInputsFactor * known_us + kNewInputsUs;
    like_samples = like_samples || fresh.us <= kSamplesFactor * time.median_us + kSamplesUs ||
                   slower_machine(fresh, time);
  }
  if (like_known && like_samples) return;
  throw WrongLaunch(
      fmt::format(
          "it keeps results of earlier launches: with inputs that it had never seen, each of {} launches took "
          "much longer than {} ({:.1f} us at least)",
          kNewInputs,
          like_known ? fmt::format("the {:.1f} us that are the median of the samples", time.median_us)
                     : "one with known inputs just after it",
          summary_.fresh_us),
      {detector::kKeptResults});
}

void TimedLaunches::look_back(bool counted) {
  // Once, because OpenMP's threads wake up for it.
  copies_.front().launcher->expect_restored(StateBefore(StateBefore::Scope::kTeam));
  for (Copy& copy : copies_) {
    if (watches_) copy.workload->set_signs(plain_signs(work_.item->params));
    const bool was_counted = counted && (rotates_ || &copy == &copies_.front());
    Verdict v;
    if (!watches_ || was_counted) {
      copy.launcher->take_outputs();
      v = check_after_timing(*copy.workload, *copy.launcher, verified_, order_() | 1);
    } else {
      v.pass = true;
      look_at_memory(*copy.workload, *copy.launcher, v);
    }
    if (!v.pass) {
      v.failed_by.insert(v.failed_by.begin(), detector::kAfterTiming);
      throw WrongLaunch("after timing: " + v.reason, v.failed_by, v.clues);
    }
  }
}

}  // namespace attnbench
