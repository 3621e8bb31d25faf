#include "harness/cli/stop_signal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

#include "harness/launch/last_words.h"

namespace attnbench::cli {
namespace {

volatile std::sig_atomic_t g_stop = 0;
char g_text[128] = "";  ///< what the first signal prints: a handler must not format

extern "C" void on_signal(int signal) {
  if (g_stop) {
    write_stopped();
    std::signal(signal, SIG_DFL);
    std::raise(signal);
    return;
  }
  g_stop = 1;
  [[maybe_unused]] const auto written = write(STDERR_FILENO, g_text, std::strlen(g_text));
}

}  // namespace

void watch_for_stop(std::optional<double> most_s) {
  const std::string most = most_s ? fmt::format(" (at most {:g} s)", *most_s) : "";
  std::snprintf(g_text, sizeof g_text, "\nstopping after the case in hand%s; once more stops at once\n",
                most.c_str());
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  if (std::signal(SIGHUP, on_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);  // keeps nohup's setting
}

bool stop_requested() { return g_stop != 0; }

}  // namespace attnbench::cli
