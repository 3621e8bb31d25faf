#include "harness/cli/stop_signal.h"

#include <unistd.h>

#include <csignal>

#include "harness/run/last_words.h"

namespace attnbench::cli {
namespace {

volatile std::sig_atomic_t g_stop = 0;

extern "C" void on_signal(int signal) {
  if (g_stop) {
    write_stopped();
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  g_stop = 1;
  constexpr char kText[] = "\nstopping after the case in hand; once more stops at once\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, sizeof kText - 1);
}

}  // namespace

void watch_for_stop() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  if (std::signal(SIGHUP, on_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);  // keeps nohup's setting
}

bool stop_requested() { return g_stop != 0; }

}  // namespace attnbench::cli
