#include "harness/session/worker_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <thread>

#include "harness/error.h"
#include "harness/launch/last_words.h"
#include "harness/launch/runner.h"
#include "harness/results/json.h"

namespace attnbench {
namespace {

/// Seconds after which a killed process that has not ended (stuck in a driver) is abandoned.
constexpr double kKillSeconds = 10;
/// Time that a process has to print what it is doing.
constexpr int kWhereMilliseconds = 300;
/// Bytes that are read in one go: a process may write faster than this reads.
constexpr std::size_t kAtOnce = 1 << 20;
/// Bytes without a newline that can still become an answer. The longest are records with many samples.
constexpr std::size_t kLongestAnswer = 64 << 20;

struct Pipe {
  int read = -1, write = -1;
};

Pipe make_pipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0)
    throw Error(std::string("cannot make a pipe: ") + std::strerror(errno), kExitFailure);
  return {fds[0], fds[1]};
}

/// Runs in the child between fork and exec: only calls that are safe there.
[[noreturn]] void become_worker(pid_t parent, int in, int out, int log, char* const* argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent ended before prctl
  // Moves the pipes off the descriptor numbers that they get below.
  in = fcntl(in, F_DUPFD_CLOEXEC, 10);
  out = fcntl(out, F_DUPFD_CLOEXEC, 10);
  log = fcntl(log, F_DUPFD_CLOEXEC, 10);
  const int null = open("/dev/null", O_RDONLY);
  const bool ok = in >= 0 && out >= 0 && log >= 0 && null >= 0 && dup2(null, STDIN_FILENO) >= 0 &&
                  dup2(log, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0 &&
                  dup2(in, kWorkerIn) >= 0 && dup2(out, kWorkerOut) >= 0;
#ifdef SYS_close_range
  // What this process has inherited is not for kernels to write to. An old system lacks the call.
  syscall(SYS_close_range, static_cast<unsigned>(kWorkerOut) + 1, ~0U, 4U);  // CLOSE_RANGE_CLOEXEC
#endif
  if (ok) execv(argv[0], argv);
  constexpr char kText[] = "attnbench: cannot run a worker process; --in-process runs without\n";
  [[maybe_unused]] const auto n = write(log, kText, sizeof kText - 1);
  _exit(127);
}

std::set<pid_t> g_workers;

void close_fd(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

}  // namespace

WorkerProcess::WorkerProcess(const std::vector<std::string>& argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a dead worker is an error of one case and must not end the supervisor
  std::vector<char*> args;
  for (const std::string& a : argv) args.push_back(const_cast<char*>(a.c_str()));
  args.push_back(nullptr);
  Pipe in = make_pipe(), out = make_pipe(), log = make_pipe();
  const pid_t parent = getpid();
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  pid_ = fork();
  if (pid_ == 0) become_worker(parent, in.read, out.write, log.write, args.data());
  const int error = errno;
  for (int* fd : {&in.read, &out.write, &log.write}) close_fd(*fd);
  if (pid_ > 0) g_workers.insert(pid_);
  in_ = in.write;
  out_ = out.read;
  log_ = log.read;
  if (pid_ < 0) {
    reaped_ = true;
    for (int* fd : {&in_, &out_, &log_}) close_fd(*fd);
    throw Error(std::string("cannot start a worker process: ") + std::strerror(error), kExitFailure);
  }
  for (const int fd : {out_, log_}) fcntl(fd, F_SETFL, O_NONBLOCK);
}

WorkerProcess::~WorkerProcess() {
  end(0);
  for (int* fd : {&in_, &out_, &log_}) close_fd(*fd);
}

bool WorkerProcess::send(const Message& request) { return write_line(in_, dump_json(request)); }

bool WorkerProcess::receive() {
  char buffer[1 << 16];
  for (std::size_t got = 0; got < kAtOnce;) {
    const ssize_t n = read(out_, buffer, sizeof buffer);
    if (n > 0) {
      lines_.add(buffer, static_cast<std::size_t>(n));
      got += static_cast<std::size_t>(n);
    } else if (n == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN;
    }
  }
  return true;
}

std::optional<Message> WorkerProcess::next_answer() {
  const auto line = lines_.next();
  if (!line) return lines_.rest().size() > kLongestAnswer ? std::optional(Message()) : std::nullopt;
  return Message::parse(*line, nullptr, /*allow_exceptions=*/false);
}

std::string WorkerProcess::printed() const {
  std::string text;
  char buffer[1 << 14];
  while (text.size() < kAtOnce) {
    const ssize_t n = read(log_, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  return text;
}

void WorkerProcess::ask_where() const {
  kill(pid_, kWhereSignal);
  pollfd news{log_, POLLIN, 0};
  poll(&news, 1, kWhereMilliseconds);
  // One line is written in several pieces.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

bool WorkerProcess::ended() {
  if (reaped_) return true;
  reaped_ = waitpid(pid_, &status_, WNOHANG) == pid_;
  if (reaped_) {
    g_workers.erase(pid_);
    end_children_but(g_workers);
    std::error_code ec;
    std::filesystem::remove_all(runner_scratch(pid_), ec);
  }
  return reaped_;
}

bool WorkerProcess::wait_for_end(double seconds) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!ended()) {
    if (std::chrono::steady_clock::now() >= limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

std::string WorkerProcess::end(double grace_s) {
  if (!wait_for_end(grace_s)) {
    kill(pid_, SIGKILL);
    if (!wait_for_end(kKillSeconds)) return "cannot be killed: it hangs inside the system";
  }
  if (WIFSIGNALED(status_)) {
    const int number = WTERMSIG(status_);
    return fmt::format("was killed by signal {} ({}){}", number, strsignal(number),
                       number == SIGKILL ? ": by hand, or by the system for want of memory" : "");
  }
  return fmt::format("ended with exit code {}", WEXITSTATUS(status_));
}

void WorkerProcess::pause() const { kill(pid_, SIGSTOP); }
void WorkerProcess::resume() const { kill(pid_, SIGCONT); }

void WorkerProcess::close_input() {
  resume();
  close_fd(in_);
}

}  // namespace attnbench
