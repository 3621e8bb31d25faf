#include "harness/cli/child_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "harness/cli/usage_error.h"

namespace attnbench::cli {
namespace {

std::array<volatile std::sig_atomic_t, 2> g_children{};
volatile std::sig_atomic_t g_stopped = 0;

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
struct sigaction g_before[std::size(kSignals)];

/// A child is in a process group of its own, so that it hears of a Ctrl-C once, from here.
extern "C" void pass_on(int signal) {
  bool any = false;
  for (const volatile std::sig_atomic_t& child : g_children) {
    any = any || child > 0;
    if (child > 0) kill(static_cast<pid_t>(child), signal);
  }
  if (!any && g_stopped) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  g_stopped = 1;
}

pid_t start(const ChildProgram& program) {
  const auto& [args, log, silent] = program;
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
  return pid;
}

/// The exit code of a child; nullopt if it has none yet, with WNOHANG.
std::optional<int> ended(pid_t pid, int options) {
  int status = 0;
  pid_t which = 0;
  while ((which = waitpid(pid, &status, options)) < 0 && errno == EINTR) {
  }
  if (which == 0) return std::nullopt;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/// The workers of a run are its children.
void signal_workers(pid_t run, int signal) {
  std::error_code ec;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", run), ec)) {
    std::ifstream children(task.path() / "children");
    for (pid_t worker = 0; children >> worker;) kill(worker, signal);
  }
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
  const pid_t pid = start({args, log, silent});
  g_children[0] = pid;
  if (g_stopped) kill(pid, SIGTERM);  // the signal came between fork and here
  const int status = ended(pid, 0).value();
  g_children[0] = 0;
  return status;
}

std::array<int, 2> run_in_slices(const std::array<ChildProgram, 2>& programs) {
  constexpr auto kSlice = std::chrono::milliseconds(40);
  std::array<pid_t, 2> pids{};
  std::array<std::optional<int>, 2> codes;
  for (std::size_t i : {0, 1}) {
    pids[i] = start(programs[i]);
    g_children[i] = pids[i];
    if (g_stopped) kill(pids[i], SIGTERM);
  }
  for (std::size_t turn = 0; !codes[0] || !codes[1]; turn = 1 - turn) {
    const bool both = !codes[0] && !codes[1] && !g_stopped;
    if (both) signal_workers(pids[1 - turn], SIGSTOP);
    signal_workers(pids[turn], SIGCONT);
    if (!both) signal_workers(pids[1 - turn], SIGCONT);
    std::this_thread::sleep_for(kSlice);
    for (std::size_t i : {0, 1}) {
      if (!codes[i]) codes[i] = ended(pids[i], WNOHANG);
      if (codes[i]) g_children[i] = 0;
    }
  }
  return {*codes[0], *codes[1]};
}

}  // namespace attnbench::cli
