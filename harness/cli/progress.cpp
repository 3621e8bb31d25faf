#include "harness/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "harness/cases/cost.h"
#include "harness/compare/undecided.h"
#include "harness/report/console.h"
#include "harness/report/summary.h"
#include "harness/results/text.h"

namespace attnbench::cli {
namespace {

constexpr double kLongWait = 30;  ///< s: less is not worth a line
constexpr double kLaunches = 12;  ///< of a timed case at least, the verified one included

}  // namespace

Progress::Progress(std::size_t total, const Machine& machine, const SessionOptions& session,
                   const RunOptions& options)
    : total_(total),
      machine_(machine),
      session_(session),
      options_(options),
      terminal_(isatty(STDERR_FILENO) != 0) {}

void Progress::clear() {
  if (terminal_ && !options_.quiet) std::fputs("\r\033[K", stderr);
}

double Progress::estimate(const Case& item) const {
  const CaseSeconds s = estimated_seconds(item.params, machine_, session_.check, session_.invariants);
  return s.check.middle() + (session_.time ? s.time.middle() : 0);
}

std::string Progress::announcement(const WorkItem& work) const {
  const auto slowness = slowness_.find(work.kernel->name);
  double s = estimate(*work.item) * (slowness == slowness_.end() ? 1 : slowness->second);
  const auto rate = flop_per_s_.find(work.kernel->name);
  if (session_.time && rate != flop_per_s_.end())
    s = std::max(s, kLaunches * cost_of(work.item->params).flop / rate->second);
  const double limit = options_.timeout_s;
  if (s < std::min(kLongWait, limit)) return "";
  if (s > limit) return fmt::format("may take longer than --timeout {:g}: ", limit);
  const bool guessed =
      session_.plugin_of.count(work.kernel) > 0 && slowness == slowness_.end() && rate == flop_per_s_.end();
  return fmt::format("expected to take about {}{}: ", duration_text(s),
                     guessed ? ", if the plug-in is as fast as the built-in kernels" : "");
}

void Progress::learn(const Record& r) {
  // A shorter launch is bound by other work than its FLOP.
  constexpr double kShortLaunch = 50;  // us
  if (const double flop = cost_of(r.item.params).flop;
      flop > 0 && r.time && r.time->median_us > kShortLaunch) {
    double& most = flop_per_s_[r.kernel];
    most = std::max(most, flop / (1e-6 * r.time->median_us));
  }
  constexpr double kShort = 0.5;  // s: less is spent on starting, not on what is estimated
  const double expected = estimate(r.item);
  if (expected < kShort || r.status == Status::kSkip) return;
  const double took = r.status == Status::kTimeout ? options_.timeout_s
                                                   : r.stages.setup_s + r.stages.verify_s + r.stages.time_s;
  double& least = slowness_.try_emplace(r.kernel, took / expected).first->second;
  least = std::min(least, took / expected);
}

void Progress::begin(const WorkItem& work, const std::string& repro) {
  if (options_.quiet) return;
  if (options_.verbose) {
    clear();
    std::cerr << fmt::format("[{}/{}] {}\n", done_ + 1, total_, repro);
  }
  const std::string takes = announcement(work), name = takes + work.item->id + "/" + work.kernel->name;
  if (!terminal_) {
    if (!takes.empty()) std::cerr << fmt::format("[{}/{}] {}\n", done_ + 1, total_, one_line(name));
    return;
  }
  std::string eta;
  if (done_ > 0) {
    const int left = static_cast<int>(seconds_left());
    eta = fmt::format("  ETA {}:{:02}", left / 60, left % 60);
  }
  const std::string line = fmt::format("[{}/{}]{}  {}", done_ + 1, total_, eta, name);
  clear();
  std::cerr << shorten_middle(line, terminal_width(STDERR_FILENO) - 1);
}

void Progress::end(const Record& record) {
  ++done_;
  timeouts_ += record.status == Status::kTimeout;
  learn(record);
  if (options_.quiet || (terminal_ && !needs_attention(record.status))) return;
  clear();
  ConsoleOptions options;
  options.width = terminal_width(STDERR_FILENO);
  std::cerr << progress_line(record, static_cast<int64_t>(done_), static_cast<int64_t>(total_), options)
            << "\n";
  if (record.status == Status::kTimeout && timeouts_ == 1 && done_ < total_) {
    std::cerr << "attnbench: note: each further case that hangs waits as long: --timeout S waits less, "
                 "--fail-fast stops at the first, and Ctrl-C keeps what is done\n";
  }
  if (!terminal_) say_time_left();
}

void Progress::say_time_left() {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point now = Clock::now();
  const double left_s = seconds_left();
  if (left_s < kLongWait || now - said_ < std::chrono::duration<double>(kLongWait)) return;
  said_ = now;
  const bool at_most = timeouts_ == done_;  // no run can take longer than these
  std::cerr << fmt::format("{} {} left for {} of {} runs\n", at_most ? "at most" : "about",
                           duration_text(left_s, at_most), total_ - done_, total_);
}

double Progress::seconds_left() const {
  if (done_ == 0) return 0;
  const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  return spent / static_cast<double>(done_) * static_cast<double>(total_ - done_);
}

}  // namespace attnbench::cli
