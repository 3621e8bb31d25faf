#include "harness/launch/opening_child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <iostream>
#include <iterator>

#include "harness/launch/confine.h"
#include "harness/launch/last_words.h"
#include "harness/launch/plugin.h"

namespace attnbench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kNotice{2};
constexpr int kPollMilliseconds = 10;  ///< a pipe does not always show that a process ended
constexpr std::size_t kLongestAnswer = 16 << 20;
/// Bytes that are read in one go: a process may write faster than this reads.
constexpr std::size_t kAtOnce = 1 << 20;
/// Bytes that are shown of the beginning of a long output, and of its end.
constexpr std::size_t kShown = 8 << 10;

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
struct sigaction g_before[std::size(kSignals)];
volatile std::sig_atomic_t g_group = 0;  ///< of the child

extern "C" void end_both(int signal) {
  if (g_group > 0) kill(-static_cast<pid_t>(g_group), SIGKILL);
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    if (kSignals[i] == signal) sigaction(signal, &g_before[i], nullptr);
  }
  std::raise(signal);  // comes when this handler has returned
}

/// While it lives, a signal that is not ignored ends the child's group before this process gets it.
struct SignalsCaught {
  SignalsCaught() {
    struct sigaction action {};
    action.sa_handler = end_both;
    sigemptyset(&action.sa_mask);
    for (std::size_t i = 0; i < std::size(kSignals); ++i) {
      sigaction(kSignals[i], nullptr, &g_before[i]);
      if (g_before[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
    }
  }
  ~SignalsCaught() {
    g_group = 0;
    for (std::size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &g_before[i], nullptr);
  }
  SignalsCaught(const SignalsCaught&) = delete;
  SignalsCaught& operator=(const SignalsCaught&) = delete;
};

/// A pipe from the child.
class Pipe {
 public:
  Pipe() {
    if (pipe2(fds_, O_CLOEXEC) != 0)
      throw PluginError(fmt::format("a pipe to a process cannot be made: {}", std::strerror(errno)));
    fcntl(fds_[0], F_SETFL, O_NONBLOCK);
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int read_end() const { return fds_[0]; }
  int write_end() const { return fds_[1]; }
  void close_end(int i) {
    if (fds_[i] >= 0) close(fds_[i]);
    fds_[i] = -1;
  }
  /// What has arrived since the last call.
  std::string news() {
    std::string text;
    char buffer[1 << 14];
    while (fds_[0] >= 0 && text.size() < kAtOnce) {
      const ssize_t n = read(fds_[0], buffer, sizeof buffer);
      if (n < 0 && errno == EINTR) continue;
      if (n == 0) close_end(0);
      if (n <= 0) break;
      text.append(buffer, static_cast<std::size_t>(n));
    }
    return text;
  }

 private:
  int fds_[2] = {-1, -1};
};

/// What the child printed to stderr and is not shown yet.
class Printed {
 public:
  void add(const std::string& news) {
    text_ += news;
    if (text_.size() <= 2 * kShown) return;
    left_out_ += text_.size() - 2 * kShown;
    text_.erase(kShown, text_.size() - 2 * kShown);
  }
  void show() {
    if (text_.empty()) return;
    any_ = true;
    if (left_out_ > 0) text_.insert(kShown, fmt::format("\n... {} bytes are left out ...\n", left_out_));
    if (text_.back() != '\n') text_ += '\n';
    std::cerr << text_ << std::flush;  // which shows control characters and does not send them
    text_.clear();
    left_out_ = 0;
  }
  bool any() const { return any_; }

 private:
  std::string text_;
  std::size_t left_out_ = 0;
  bool any_ = false;
};

[[noreturn]] void be_child(const Opening& opening, pid_t parent, int answer, int log) noexcept {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // the parent ended before prctl
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
  std::signal(SIGPIPE, SIG_DFL);
  tell_no_crashes();  // the parent reports the end
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);  // the file prints again in each worker
  dup2(log, STDERR_FILENO);
  confine(working_folders());
  opening.open(answer);
  _exit(0);
}

bool has_ended(pid_t pid) {
  siginfo_t info{};  // not reaped: until then nobody else gets the number of its group
  return waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

std::string how_it_ended(int status) {
  if (WIFEXITED(status)) return fmt::format("with exit code {}", WEXITSTATUS(status));
  return fmt::format("by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
}

}  // namespace

void write_answer(int answer, const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = write(answer, text.data() + done, text.size() - done);
    if (n < 0 && errno != EINTR) return;
    done += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  }
}

std::string answer_of_child(const Opening& opening) {
  Pipe answer, log;
  const SignalsCaught signals;
  const pid_t parent = getpid(), pid = fork();
  if (pid == 0) be_child(opening, parent, answer.write_end(), log.write_end());
  if (pid < 0)
    throw PluginError(fmt::format("a process to open it in cannot be started: {}", std::strerror(errno)));
  setpgid(pid, pid);  // the child does it, too: whoever comes first
  g_group = pid;
  answer.close_end(1);
  log.close_end(1);

  std::string text;
  Printed printed;
  const auto take = [&] {
    text += answer.news();
    text.resize(std::min(text.size(), kLongestAnswer));
    printed.add(log.news());
  };
  const auto begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  bool noticed = false;
  while (!has_ended(pid) && seconds() < opening.limit_s) {
    pollfd fds[] = {{answer.read_end(), POLLIN, 0}, {log.read_end(), POLLIN, 0}};
    poll(fds, 2, kPollMilliseconds);
    take();
    if (noticed || seconds() < std::chrono::duration<double>(kNotice).count()) continue;
    noticed = true;
    printed.show();
    std::cerr << fmt::format("still opening {} (limit {:g} s) ...\n", opening.file, opening.limit_s)
              << std::flush;
  }
  const bool ended = has_ended(pid);
  kill(-pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  take();
  printed.show();
  const std::string opened = "opening it, which runs " + opening.runs + ", ";
  if (!ended) {
    throw LoadCrash(
        fmt::format("{}did not end within {:g} s; mend what hangs there, or wait longer by --timeout S",
                    opened, opening.limit_s));
  }
  if (text.empty()) {
    throw LoadCrash(fmt::format("{}ended the process {}{}", opened, how_it_ended(status),
                                printed.any() ? "; what it printed to stderr is above" : ""));
  }
  return text;
}

}  // namespace attnbench
