#include "harness/session/timed_launches.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "harness/cases/cost.h"
#include "harness/device/cpu_info.h"
#include "harness/gigabytes.h"
#include "harness/judge/verify.h"
#include "harness/session/check_stage.h"

namespace attnbench {
namespace {

constexpr int kWarmups = 2;
constexpr int kInputChecks = 16;  ///< one launch in so many is followed by a look at the inputs

/// One launch in so many gets new values, until there are kNewValues of them and then.
constexpr int kOftenNew = 4, kSeldomNew = 16, kNewValues = 9;
constexpr int kNewValueChecks = 2;  ///< one in so many of them is compared with the reference
/// A kernel keeps results if three quarters of the launches with new values take longer than this times the median of
/// the others, plus this many us. Both kinds are drawn at random, so a busy machine disturbs them alike.
constexpr double kNewValuesFactor = 1.5, kNewValuesUs = 20;

/// A time may be this much less than that by the second clock, whose readings are not taken at the same moments.
constexpr double kClockFactor = 0.9;
constexpr double kClockUs = 20, kOuterClockUs = 300;
/// Another process's clock is read around launches with new values that follow each other: as many as take kGoUs, of
/// which the readings take up to kGoReadingUs. If the times do not fit, other work may have disturbed them: they are
/// launched again.
constexpr double kGoUs = 1500, kGoReadingUs = 150;
constexpr int kMostInAGo = 10, kGoes = 6;
constexpr double kMostGoBytes = 512e6;  ///< of the tensors of a go on a CPU, all of which get new values
/// On a GPU a go has a launch of each copy. What a go without launches takes is no part of its time, up to this: two
/// processes take turns.
constexpr double kEmptyGoUs = 500;
/// CPU time of each thread in such launches, as a share of their time.
constexpr double kMostCpu = 1.2;

/// Share of the free memory that a second copy of the tensors may take.
constexpr double kShareOfMemory = 0.8;

/// The lower of the two figures that a time is compared by: the median, and the mean of the middle half.
double middle(std::vector<double> x) {
  std::ranges::sort(x);
  const auto quarter = static_cast<std::ptrdiff_t>(x.size() / 4);
  const double sum = std::accumulate(x.begin() + quarter, x.end() - quarter, 0.0);
  return std::min(x[(x.size() - 1) / 2],
                  sum / static_cast<double>(x.size() - 2 * static_cast<std::size_t>(quarter)));
}

}  // namespace

TimedLaunches::TimedLaunches(const WorkItem& work, Device& device, const SessionOptions& options,
                             BoundLaunch& first, uint64_t verified, int64_t copies, uint64_t seed)
    : work_(work),
      device_(device),
      options_(options),
      verified_(verified),
      order_(seed),
      watches_(options.timing.watch && options.check != CheckMode::kOff),
      rotates_(options.timing.cache == CacheMode::kRotate) {
  copies_.push_back({&first, 0, launch_of(*first.launcher)});
  for (int64_t i = 1; i < copies; ++i) add(0);
  if (!watches_) return;
  const double room = kShareOfMemory * static_cast<double>(device.free_memory());
  if (copies == 1 && cost_of(*work.item).device_bytes < room) {
    try {
      // New tokens go to the same slots in all copies, so that the digests of their caches are equal.
      add(writes_cache(work.item->params) ? 0 : order_());
    } catch (const OutOfMemory&) {  // one copy will do
    }
  }
}

std::function<void()> TimedLaunches::launch_of(Launcher& launcher) {
  std::function<void()> launch = [&launcher] { launcher.launch_alone(); };
  return options_.timing.graph ? device_.capture_graph(launch) : launch;
}

std::unique_ptr<Launcher> TimedLaunches::planned(const Workload& workload, const Launcher& like) {
  const std::size_t first = like.workspace_bytes();
  try {
    return std::make_unique<Launcher>(*work_.kernel, options_.table, device_, workload, &like);
  } catch (const NoWorkspace& e) {  // a kernel must not choose how many copies there are
    if (e.bytes <= first) throw;
    throw KernelError(fmt::format(
        "{}: workspace_bytes wants {} for a copy of tensors for which it wanted {} before, and there is no "
        "memory for it",
        work_.kernel->name, gigabytes(static_cast<double>(e.bytes)), gigabytes(static_cast<double>(first))));
  }
}

void TimedLaunches::add(uint64_t salt) {
  BoundLaunch made{std::make_unique<Workload>(device_, *work_.item, layout_for(*work_.kernel, {.salt = salt}),
                                              Values::kLater),
                   nullptr};
  made.launcher = planned(*made.workload, copies_.front().launcher());
  made.workload->fill_values();
  made.workload->reset_outputs();
  made_.push_back(std::move(made));
  copies_.push_back({&made_.back(), salt, launch_of(*made_.back().launcher)});
}

void TimedLaunches::renew(Copy& copy) {
  Case other = *work_.item;
  other.seed = order_();
  other.params.captured = nullptr;  // drawn values of the same shapes
  // Pages and slots follow from seed ^ salt: they stay.
  copy.salt ^= copy.workload().item().seed ^ other.seed;
  copy.bound->workload =
      std::make_unique<Workload>(device_, other, layout_for(*work_.kernel, {.salt = copy.salt}), Values::kNow,
                                 copy.bound->workload.get());
  copy.workload().reset_outputs();
  copy.expected.reset();
  // A plan is made for pointers and for scalars, such as the seed of dropout.
  if (copy.workload().in_place() && other.params.dropout == 0) return;
  renewable_ = copy.workload().in_place();  // new memory has a slow first launch
  copy.bound->launcher = planned(copy.workload(), copy.launcher());
  copy.launch = launch_of(copy.launcher());
}

int TimedLaunches::warmups() const { return std::max(kWarmups, static_cast<int>(copies_.size())); }

std::string TimedLaunches::which(const Copy& copy) const {
  return fmt::format("timed launch {}{}", summary_.launches,
                     copy.has_other_values(*work_.item)
                         ? fmt::format(" (with other values, seed {})", copy.workload().item().seed)
                         : "");
}

void TimedLaunches::prepare(Copy& copy) {
  Workload& w = copy.workload();
  const CaseParams& p = work_.item->params;
  if (!copy.expected && !copy.has_other_values(*work_.item)) copy.expected = known_;
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
    copy.launcher().expect_restored(before);
    w.poison_outputs();
  }
  copy.ready = true;
}

Sample TimedLaunches::time(Copy& copy, const LaunchWatch* watch) {
  const StateBefore before(StateBefore::Scope::kThread);
  RankExchange* exchange = copy.launcher().exchange();
  if (exchange) exchange->empty_caches(options_.timing.cache);
  Sample s = device_.time_launch(copy.launch, options_.timing.cache, watch);
  if (exchange) exchange->read_times(s);
  copy.launcher().expect_restored(before);
  return s;
}

bool TimedLaunches::renews() const {
  // In a hot cache, the launch before a timed one has seen its inputs. A rotating one needs equal copies.
  return watches_ && renewable_ && !rotates_ && options_.timing.cache != CacheMode::kHot;
}

Sample TimedLaunches::timed(Copy& copy, int one_in) {
  const bool fresh = renews() && known_ && now_and_then(one_in);
  const auto begin = std::chrono::steady_clock::now();
  if (fresh) renew(copy);
  const double apart_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!copy.ready) prepare(copy);
  copy.ready = false;
  device_.reset_cache_policy();
  const std::vector<WatchedOutput> outputs = copy.workload().watched_outputs();
  LaunchWatch watch{outputs, copy.late, order_(), nullptr};
  if (copy.launcher().returns_outputs()) watch.take_outputs = [&copy] { copy.launcher().take_outputs(); };
  ++summary_.launches;
  Sample s = time(copy, &watch);
  s.apart_s = fresh ? apart_s : 0;
  timer_us_.push_back(s.us);
  outer_us_.push_back(s.watch.span_us);
  (fresh ? fresh_us_ : known_us_)
      .push_back(std::max(s.us, s.watch.span_us));  // a kernel may change one clock
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
  return timed(copies_[chosen], fresh_us_.size() < kNewValues ? kOftenNew : kSeldomNew);
}

void TimedLaunches::rest() {
  if (!watches_) return;
  for (Copy& copy : copies_) {
    copy.workload().set_signs(plain_signs(work_.item->params));
    copy.workload().poison_outputs();
    copy.ready = false;
  }
}

std::optional<WrongLaunch> TimedLaunches::doubt() {
  if (!watches_) return std::nullopt;
  while (renews() && fresh_us_.size() < kNewValues) timed(copies_[order_() % copies_.size()], 2);
  const std::vector<double> timer = std::exchange(timer_us_, {}), outer = std::exchange(outer_us_, {});
  std::vector<double> fresh = std::exchange(fresh_us_, {}), known = std::exchange(known_us_, {});
  if (renews()) {
    std::ranges::sort(fresh);
    std::ranges::sort(known);
    summary_.fresh_us = quantile(fresh, 0.5);
    const double lower = quantile(fresh, 0.25), others = quantile(known, 0.5);
    if (lower > kNewValuesFactor * others + kNewValuesUs)
      return WrongLaunch(
          fmt::format("it keeps results of earlier launches: of {} launches with values that it "
                      "had never seen, three quarters took {:.1f} us or more; the median of the "
                      "others is {:.1f} us",
                      fresh.size(), lower, others),
          {detector::kKeptResults}, {}, lower);
  }
  const double us = middle(timer);
  const auto compared = [&](double by_clock, double tolerance, const char* of = "") {
    return us >= kClockFactor * by_clock - tolerance
               ? std::nullopt
               : std::optional(
                     WrongLaunch(fmt::format("{} launches: {:.1f} us by the timer, but {:.1f} us{} by "
                                             "a clock that a kernel cannot change",
                                             timer.size(), us, by_clock, of),
                                 {detector::kClock}, {}, by_clock));
  };
  const bool gpu = device_.info().kind == DeviceKind::kCuda;
  if (gpu || device_.kernel_host() == nullptr) {
    if (auto wrong = compared(middle(outer), kClockUs)) return wrong;
    if (device_.kernel_host() == nullptr || options_.timing.cache == CacheMode::kHot) return std::nullopt;
  }
  // Launches that follow each other are slower than those that are timed in a hot cache, and where threads of one that
  // still wait for work hold cores that the next one needs.
  if (options_.timing.cache == CacheMode::kHot || device_.info().threads > cpu_threads() ||
      work_.item->params.devices() > 1)
    return compared(*std::ranges::min_element(outer), kOuterClockUs);
  int together =
      gpu ? static_cast<int>(copies_.size()) : std::clamp(static_cast<int>(kGoUs / us), 1, kMostInAGo);
  double room = kShareOfMemory * static_cast<double>(device_.free_memory());
  if (!gpu) room = std::min(room, kMostGoBytes);
  const double bytes = std::max(cost_of(*work_.item).device_bytes, 1.0);
  together = static_cast<int>(std::clamp(room / bytes, 1.0, static_cast<double>(together)));
  std::optional<WrongLaunch> out;
  for (int i = 0; i < kGoes && (i == 0 || out); ++i) {
    const Go go = time_go(static_cast<std::size_t>(together));
    const double taken_us = options_.timing.clock == TimeClock::kCpu ? go.cpu_us : go.us;
    const double none = gpu ? std::min(device_.time_go([] {}).us, kEmptyGoUs) : 0;
    out = compared((taken_us - none) / together, kGoReadingUs / together, renews() ? " with new values" : "");
    const int threads = device_.info().threads;
    if (!out && !gpu && go.cpu_us > kMostCpu * threads * go.held_us)
      out = WrongLaunch(
          fmt::format(
              "{} launches took {:.1f} us with {} thread{}, but {:.1f} us of processors: it computes with "
              "more threads than it is given",
              together, go.held_us, threads, threads == 1 ? "" : "s", go.cpu_us),
          {detector::kClock}, {}, us * go.cpu_us / (threads * go.held_us));
  }
  return out;
}

Go TimedLaunches::time_go(std::size_t launches) {
  const CaseParams& p = work_.item->params;
  const std::size_t before = copies_.size();
  while (copies_.size() < launches) {
    add(writes_cache(p) ? 0 : order_());
    copies_.back().launch();  // the first one on these tensors is slow
  }
  const std::size_t first = launches == 1 ? order_() % copies_.size() : 0;
  for (std::size_t i = first; i < first + launches; ++i) {
    Copy& copy = copies_[i];
    if (renews()) {
      renew(copy);
    } else {
      copy.workload().set_signs(other_signs(p, copy.workload().signs(), order_()));
    }
    copy.workload().poison_outputs();
    copy.ready = false;
  }
  const Go go = device_.time_go([&] {
    for (std::size_t i = first; i < first + launches; ++i) copies_[i].launch();
  });
  // On a GPU all outputs are copied for it, so one launch is chosen.
  const bool gpu = device_.info().kind == DeviceKind::kCuda;
  const std::size_t chosen = first + order_() % launches;
  for (std::size_t i = first; i < first + launches; ++i) {
    copies_[i].launcher().take_outputs();
    if (!gpu || i == chosen)
      check(copies_[i], CheckMode::kFewRows, "one of several that followed each other");
  }
  while (copies_.size() > before) {
    copies_.pop_back();
    made_.pop_back();
  }
  return go;
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
    if (now_and_then(kNewValueChecks)) check(copy, CheckMode::kFewRows, "first one with these values");
    return;
  }
  known_ = digest;
  if (copy.workload().outputs_digest() != verified_) {
    same_bits_ = false;
    check(copy, CheckMode::kSampled, "unlike the verified launch");
  }
}

void TimedLaunches::check(Copy& copy, CheckMode mode, const std::string& what) {
  ++summary_.by_reference;
  const Workload& w = copy.workload();
  const HostOutputs outputs = copy.launcher().outputs(w);
  Verdict v = verify(w, outputs, copy.launcher().numerics(), {mode, order_() | 1});
  if (v.pass) return;
  v.clues = clues_or_none(w.item(), outputs, copy.launcher(), v);
  v.clues.push_back(
      "the verified launch was right: does a part of the launch end after the function launch has returned, do threads race, "
      "or does the kernel keep something from launch to launch (results, addresses, a counter)? Each timed launch "
      "has poison in its outputs, other signs of some inputs, and maybe other addresses");
  std::vector<std::string> failed_by = v.failed_by;
  failed_by.insert(failed_by.begin(), detector::kTimed);
  throw WrongLaunch(fmt::format("{}, {}: {}", which(copy), what, v.reason), failed_by, v.clues);
}

void TimedLaunches::check_inputs(Copy& copy) {
  copy.workload().set_signs(plain_signs(work_.item->params));
  if (auto damage = copy.workload().input_damage()) {
    throw WrongLaunch(fmt::format("{}: {}", which(copy), *damage), {detector::kInputDigest});
  }
}

void TimedLaunches::look_back(bool counted) {
  // Once, because OpenMP's threads wake up for it.
  copies_.front().launcher().expect_restored(StateBefore(StateBefore::Scope::kTeam));
  for (Copy& copy : copies_) {
    if (watches_) copy.workload().set_signs(plain_signs(work_.item->params));
    const bool was_counted = counted && (rotates_ || &copy == &copies_.front());
    Verdict v;
    if (!watches_ || was_counted) {
      copy.launcher().take_outputs();
      v = check_after_timing(copy.workload(), copy.launcher(), verified_, order_() | 1);
    } else {
      v.pass = true;
      look_at_memory(copy.workload(), copy.launcher(), v);
    }
    if (!v.pass) {
      v.failed_by.insert(v.failed_by.begin(), detector::kAfterTiming);
      throw WrongLaunch("after timing: " + v.reason, v.failed_by, v.clues);
    }
  }
}

}  // namespace attnbench
