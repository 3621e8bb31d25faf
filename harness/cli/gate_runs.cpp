#include "harness/cli/gate_runs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iostream>

#include "harness/cli/usage_error.h"
#include "harness/record/text.h"

namespace attnbench::cli {
namespace {

volatile std::sig_atomic_t g_child = 0;
volatile std::sig_atomic_t g_stopped = 0;

/// The child has its own process group, so it gets a Ctrl-C once, from this handler.
extern "C" void pass_on(int signal) {
  g_stopped = 1;
  if (g_child > 0) kill(static_cast<pid_t>(g_child), signal);
}

/// Forwards signals to the child for as long as it lives.
class Forwarding {
 public:
  Forwarding() {
    struct sigaction action {};
    action.sa_handler = pass_on;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &old_int_);
    sigaction(SIGTERM, &action, &old_term_);
  }
  ~Forwarding() {
    sigaction(SIGINT, &old_int_, nullptr);
    sigaction(SIGTERM, &old_term_, nullptr);
    g_child = 0;
  }
  Forwarding(const Forwarding&) = delete;
  Forwarding& operator=(const Forwarding&) = delete;

 private:
  struct sigaction old_int_ {
  }, old_term_{};
};

/// Runs the program and returns its exit code. `log` gets its stdout, and its stderr too if `silent`.
int run_program(const std::vector<std::string>& args, const std::filesystem::path& log, bool silent) {
  std::vector<char*> argv;
  for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (out < 0) throw UsageError(fmt::format("{}: cannot be written: {}", log.string(), std::strerror(errno)));
  const std::string cannot_run = fmt::format("attnbench: error: cannot run {}: ", args[0]);
  const Forwarding forwarding;
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) {
    close(out);
    throw UsageError(fmt::format("cannot start {}: {}", args[0], std::strerror(errno)));
  }
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGTERM, SIG_DFL);
    dup2(out, STDOUT_FILENO);
    if (silent) dup2(out, STDERR_FILENO);
    execvp(argv[0], argv.data());
    const std::string text = cannot_run + std::strerror(errno) + "\n";
    [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, text.data(), text.size());
    _exit(127);
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

}  // namespace

GateRuns::GateRuns(std::filesystem::path dir, bool quiet) : dir_(std::move(dir)), quiet_(quiet) {
  std::error_code ec;
  std::filesystem::create_directories(dir_, ec);
  if (ec) throw UsageError(fmt::format("{}: cannot make the folder: {}", dir_.string(), ec.message()));
}

SideRun GateRuns::run(const Side& side, const std::vector<std::string>& more, const std::string& why,
                      Show show) {
  ++count_;
  const std::filesystem::path out = dir_ / fmt::format("{}-{}", count_, side.name);
  const std::filesystem::path log = out.string() + ".txt";
  std::vector<std::string> args = {side.program, "run"};
  args.insert(args.end(), side.args.begin(), side.args.end());
  if (std::find(more.begin(), more.end(), "--filter") != more.end()) {  // --filter may be given only once
    const auto own = std::find(args.begin(), args.end(), "--filter");
    if (own != args.end()) args.erase(own, own + 2);
  }
  args.insert(args.end(), more.begin(), more.end());
  args.insert(args.end(), {"--out", out.string()});
  if (quiet_) args.push_back("--quiet");
  if (!quiet_) std::cerr << fmt::format("gate: run {}, {}: {}\n", count_, side.name, why);
  // Removes what an earlier gate left in the folder, so that it is not taken for this run's results.
  std::error_code ignored;
  std::filesystem::remove(out / "results.json", ignored);
  std::filesystem::remove(out / "journal.jsonl", ignored);

  SideRun r;
  r.exit_code = run_program(args, log, show == Show::kErrors);
  const bool broken = r.exit_code == 5 || r.exit_code > 6;
  const bool silent_error = show == Show::kErrors && (broken || r.exit_code == 2);
  std::ostream& to = silent_error ? std::cerr : std::cout;
  if (show == Show::kAll || broken || silent_error)
    to << std::ifstream(log, std::ios::binary).rdbuf() << std::flush;
  to.clear();  // an empty log sets failbit
  if (g_stopped || r.exit_code == 130) throw GateStop{130};
  if (r.exit_code == 2 || r.exit_code == 127) throw GateStop{2};  // the run has printed the reason
  if (!std::filesystem::exists(out / "results.json", ignored)) {
    std::cerr << fmt::format("attnbench: error: {} ended with exit code {} and left no results\n",
                             side.program, r.exit_code);
    throw GateStop{5};
  }
  try {
    r.results = load_results(out.string());
  } catch (const ResultsError& e) {
    std::cerr << one_line(e.what()) << "\n";
    throw GateStop{5};
  }
  return r;
}

std::string own_program() {
  std::error_code ec;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ec);
  if (ec) throw UsageError("cannot find this program's own file (/proc/self/exe)");
  return self.string();
}

}  // namespace attnbench::cli
