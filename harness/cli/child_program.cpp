#include "harness/cli/child_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <iterator>

#include "harness/cli/usage_error.h"

namespace attnbench::cli {
namespace {

volatile std::sig_atomic_t g_child = 0;
volatile std::sig_atomic_t g_stopped = 0;

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
struct sigaction g_before[std::size(kSignals)];

/// The child is in a process group of its own, so that it hears of a Ctrl-C once, from here.
extern "C" void pass_on(int signal) {
  if (g_child > 0) {
    kill(static_cast<pid_t>(g_child), signal);
  } else if (g_stopped) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  g_stopped = 1;
}

}  // namespace

bool child_stopped() { return g_stopped != 0; }

void catch_signals() {
  struct sigaction action {};
  action.sa_handler = pass_on;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    sigaction(kSignals[i], &action, &g_before[i]);
    const bool nohup = kSignals[i] == SIGHUP && g_before[i].sa_handler == SIG_IGN;
    if (nohup) sigaction(SIGHUP, &g_before[i], nullptr);
  }
}

void restore_signals() {
  for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &g_before[i], nullptr);
}

int run_program(const std::vector<std::string>& args, const std::filesystem::path& log, bool silent) {
  std::vector<char*> argv;
  for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  const int out = log.empty()
                      ? fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)
                      : open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0644);
  if (out < 0) throw UsageError(fmt::format("{}: cannot be written: {}", log.string(), std::strerror(errno)));
  const std::string cannot_run = fmt::format("attnbench: error: cannot run {}: ", args[0]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    close(out);
    throw UsageError(fmt::format("cannot start {}: {}", args[0], std::strerror(errno)));
  }
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(kNotStarted);
    restore_signals();
    std::signal(SIGINT, SIG_DFL);  // in the background a shell ignores it
    std::signal(SIGTERM, SIG_DFL);
    dup2(out, STDOUT_FILENO);
    if (silent) dup2(out, STDERR_FILENO);
    execvp(argv[0], argv.data());
    const std::string text = cannot_run + std::strerror(errno) + "\n";
    [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, text.data(), text.size());
    _exit(kNotStarted);
  }
  close(out);
  g_child = pid;
  if (g_stopped) kill(pid, SIGTERM);  // the signal came between fork and here
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  g_child = 0;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace attnbench::cli
