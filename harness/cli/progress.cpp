#include "harness/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "harness/compare/outlook.h"
#include "harness/record/text.h"
#include "harness/report/console.h"
#include "harness/report/summary.h"

namespace attnbench::cli {
namespace {

constexpr double kLongWait = 30;  ///< s: less is not worth a line

}  // namespace

Progress::Progress(std::size_t total, bool quiet, bool verbose)
    : total_(total), terminal_(isatty(STDERR_FILENO) != 0), quiet_(quiet), verbose_(verbose) {}

void Progress::clear() {
  if (terminal_ && !quiet_) std::fputs("\r\033[K", stderr);
}

void Progress::begin(const std::string& name, const std::string& repro) {
  if (quiet_) return;
  if (verbose_) {
    clear();
    std::cerr << fmt::format("[{}/{}] {}\n", done_ + 1, total_, repro);
  }
  if (!terminal_) return;
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
  if (quiet_ || (terminal_ && !needs_attention(record.status))) return;
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
