// The launches of a case that are timed, on a kernel that is not trusted.
//
// A kernel may compute right in the launch that is verified and little in those that are timed. So each timed
// launch is as good as the first one: its outputs hold poison, its inputs have signs that no launch has seen,
// and it may be on another copy of the tensors, on other pages. Its outputs are known bit by bit
// (values/signs.h) and are compared as soon as it has ended. Some launches, which nothing announces, have wholly new
// values. Nothing of this is inside the timed span.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "harness/launch/launcher.h"
#include "harness/session/plan.h"

namespace attnbench {

/// A timed launch did something else than the verified one; what() says what.
class WrongLaunch : public Error {
 public:
  WrongLaunch(const std::string& what, std::vector<std::string> detectors,
              std::vector<std::string> guesses = {}, double by_other_clock = 0)
      : Error(what, kExitFailure),
        failed_by(std::move(detectors)),
        clues(std::move(guesses)),
        other_us(by_other_clock) {}
  std::vector<std::string> failed_by, clues;  ///< as in Verdict
  double other_us;                            ///< of doubt(): how long a launch may take in truth
};

class TimedLaunches {
 public:
  /// `first` is the verified launch, whose digest is `verified`. `copies`: tensors that a rotating cache needs, all
  /// alike; 1: none, and a second copy with other pages is made if there is memory for it. Without checks, or if the
  /// kernel is trusted, nothing is watched. Throws KernelError, OutOfMemory.
  TimedLaunches(const WorkItem& work, Device& device, const SessionOptions& options, BoundLaunch& first,
                uint64_t verified, int64_t copies, uint64_t seed);

  /// Times one launch. Throws WrongLaunch.
  Sample sample();
  /// Before launches that are counted instead of timed: the inputs are those of the verified launch again.
  void rest();
  int warmups() const;
  /// Of the launches since the last call: whether those with new values took longer than the others, because the kernel
  /// keeps results, or its clock is wrong, or it computes with more threads. Launches more if there were few. A busy machine can be the cause.
  std::optional<WrongLaunch> doubt();
  /// At the end: what the launches must have left alone, and what those that were not watched computed.
  /// `counted`: there were launches after rest(). Throws WrongLaunch.
  void look_back(bool counted);
  const WatchSummary& summary() const { return summary_; }
  std::size_t size() const { return copies_.size(); }
  /// The launch of each copy, for counters.
  const std::function<void()>& launch(std::size_t copy) const { return copies_[copy].launch; }

 private:
  struct Copy {
    BoundLaunch* bound;
    uint64_t salt;  ///< of its pages
    std::function<void()> launch;
    std::optional<uint64_t> expected;  ///< digest of the outputs without changed signs
    bool ready = false;                ///< prepared when it was last used: a rotating cache must not see it
    std::vector<LateSigns> late;       ///< to be changed at the last moment
    Workload& workload() const { return *bound->workload; }
    Launcher& launcher() const { return *bound->launcher; }
    bool has_other_values(const Case& item) const { return workload().item().seed != item.seed; }
  };
  /// Another copy of the tensors, at other places, with pages moved by `salt`.
  void add(uint64_t salt);
  /// Gives a copy new values, in place.
  void renew(Copy& copy);
  /// Plans a launch, which may want no more than the first one. Throws KernelError.
  std::unique_ptr<Launcher> planned(const Workload& workload, const Launcher& like);
  std::function<void()> launch_of(Launcher& launcher);
  void prepare(Copy& copy);
  /// `one_in`: one launch in so many gets new values.
  Sample timed(Copy& copy, int one_in);
  /// Times one launch, on all its devices.
  Sample time(Copy& copy, const LaunchWatch* watch);
  /// `launches` launches with new values that follow each other. Throws WrongLaunch.
  Go time_go(std::size_t launches);
  void judge(Copy& copy, const Sample& sample);
  void judge_first(Copy& copy, uint64_t digest);
  /// Compares the outputs with the reference. Throws WrongLaunch.
  void check(Copy& copy, CheckMode mode, const std::string& what);
  void check_inputs(Copy& copy);
  bool now_and_then(int one_in) { return order_() % static_cast<unsigned>(one_in) == 0; }
  std::string which(const Copy& copy) const;
  bool renews() const;  ///< whether launches get new values

  const WorkItem& work_;
  Device& device_;
  const SessionOptions& options_;
  uint64_t verified_;
  std::mt19937_64 order_;
  std::deque<BoundLaunch> made_;
  std::deque<Copy> copies_;
  bool watches_;
  bool rotates_;
  std::size_t turn_ = 0;
  bool renewable_ = true;          ///< new values fit into the memory of a copy
  bool same_bits_ = true;          ///< equal inputs have given equal bits so far
  int next_check_ = 1;             ///< launch that is compared with the reference, if not same_bits_
  std::optional<uint64_t> known_;  ///< digest of the outputs with the verified values
  std::vector<double> timer_us_, outer_us_;  ///< launches since the clocks were compared, by either
  std::vector<double> fresh_us_, known_us_;  ///< launches with new values, and others, by the slower clock
  WatchSummary summary_;
};

}  // namespace attnbench
