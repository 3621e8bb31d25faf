#include "harness/launch/runner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "harness/device/cpu_info.h"
#include "harness/error.h"
#include "harness/launch/description.h"
#include "harness/launch/guarded_call.h"
#include "harness/launch/python.h"
#include "harness/launch/runner_messages.h"

namespace attnbench {
namespace {

constexpr std::size_t kMostHosted = 512;  ///< kernels of a runner

constexpr std::string_view kScratch = "attnbench-runner-";  ///< and the judge's process id

constexpr std::string_view kForgedAnswer =
    "the kernel's process sent what is no answer: a kernel wrote to its socket";
/// What it may take to bring returned outputs to their place, and for each byte of them. A kernel may compute meanwhile.
constexpr double kCopyUs = 60, kCopyNs = 2;
constexpr uint64_t kLongestDescription = 16 << 20;  ///< of all kernels, in bytes

Runner* g_runner = nullptr;

double now_us() {
  return 1e-3 * static_cast<double>(std::chrono::steady_clock::now().time_since_epoch().count());
}

/// CPU time of a process and its descendants, in us.
double cpu_us_of(pid_t pid) {
  clockid_t clock{};
  timespec t{};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &t) != 0) return 0;
  double us = 1e6 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_nsec);
  std::error_code ec;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), ec)) {
    std::ifstream children(task.path() / "children");
    for (pid_t child = 0; children >> child;) us += cpu_us_of(child);
  }
  return us;
}

constexpr int64_t kMostPrinted = 1 << 16;  ///< bytes: what a pipe holds

/// Bytes that a process has written to files and pipes; 0 if the system does not count them.
int64_t written_by(pid_t pid) {
  std::ifstream io(fmt::format("/proc/{}/io", pid));
  std::string name;
  for (int64_t bytes = 0; io >> name >> bytes;) {
    if (name == "wchar:") return bytes;
  }
  return 0;
}

/// Bytes of outputs that a launch may return.
int64_t out_bytes(const Runner::Request& r) {
  const AttentionParams& a = r.params.attention;
  return r.context.returned == nullptr
             ? 0
             : int64_t{a.total_q} * a.num_heads_q *
                   (a.head_dim_v * static_cast<int64_t>(dtype_size(a.dtype_out)) + 4);
}

Runner::Request request_of(RunnerCall call, std::size_t kernel, const OpParams* params,
                           const LaunchContext* context = nullptr) {
  Runner::Request r{call, static_cast<int32_t>(kernel)};
  if (params != nullptr) r.params = *params;
  if (context != nullptr) r.context = *context;
  return r;
}

/// The functions of kernel I, which a runner calls.
template <std::size_t I>
struct Hosted {
  static KernelStatus answered(RunnerCall call, const OpParams* p, const LaunchContext* c, KernelMessage* m) {
    const Runner::Reply reply = g_runner->call(request_of(call, I, p, c));
    *m = reply.message;
    return reply.status;
  }
  static KernelStatus supports(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
    return answered(RunnerCall::kSupports, p, c, m);
  }
  static Numerics numerics(const OpParams* p) {
    return g_runner->call(request_of(RunnerCall::kNumerics, I, p)).numerics;
  }
  static std::size_t workspace_bytes(const OpParams* p, const LaunchContext* c) {
    return g_runner->call(request_of(RunnerCall::kWorkspaceBytes, I, p, c)).workspace_bytes;
  }
  static KernelStatus plan(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
    return answered(RunnerCall::kPlan, p, c, m);
  }
  static KernelStatus launch(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
    return answered(RunnerCall::kLaunch, p, c, m);
  }
  static Tile tile(const OpParams* p) { return g_runner->call(request_of(RunnerCall::kTile, I, p)).tile; }
};

template <std::size_t... I>
KernelFunctions hosted(std::size_t at, std::index_sequence<I...>) {
  static constexpr KernelFunctions all[] = {{Hosted<I>::supports, Hosted<I>::numerics,
                                             Hosted<I>::workspace_bytes, Hosted<I>::plan, Hosted<I>::launch,
                                             Hosted<I>::tile}...};
  return all[at];
}

/// Environment of a runner: its own folder for temporary files, caches of compilers that it may write to, the threads of
/// a launch, and the policy of waiting threads that the user has; the judge's threads sleep.
std::vector<std::string> environment(const std::string& scratch, int threads) {
  std::vector<std::string> env;
  const char* policy = std::getenv(kUsersWaitPolicy);
  for (char** e = environ; *e != nullptr; ++e) {
    const std::string_view word(*e);
    if (!word.starts_with("TMPDIR=") && !(policy != nullptr && word.starts_with("OMP_WAIT_POLICY=")) &&
        !(threads > 0 && word.starts_with("OMP_NUM_THREADS=")))
      env.emplace_back(word);
  }
  if (threads > 0) env.push_back(fmt::format("OMP_NUM_THREADS={}", threads));
  if (policy != nullptr && *policy != '\0') env.push_back(fmt::format("OMP_WAIT_POLICY={}", policy));
  env.push_back("TMPDIR=" + scratch);
  const char* home = std::getenv("HOME");
  for (const auto& [name, folder] : kCaches) {
    std::error_code ec;
    const bool there = home != nullptr && std::filesystem::exists(std::string(home) + folder, ec);
    if (std::getenv(name) == nullptr && !there) env.push_back(fmt::format("{}={}{}", name, scratch, folder));
  }
  return env;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& w : words) out.push_back(w.data());
  out.push_back(nullptr);
  return out;
}

std::filesystem::path temporary() {
  std::error_code ec;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(ec);
  return ec ? "/tmp" : folder;
}

/// A descriptor that holds the lock of a folder of temporary files; -1: another process has it.
int lock_scratch(const std::filesystem::path& folder) {
  const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0 || flock(file, LOCK_EX | LOCK_NB) == 0) return file;
  close(file);
  return -1;
}

/// Removes the folders of judges that ended together with their supervisor.
void remove_left_scratch() {
  std::error_code ec;
  for (const auto& entry : std::filesystem::directory_iterator(temporary(), ec)) {
    // Nobody else's: users and tests have folders of similar names.
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kScratch) ||
        name.find_first_not_of("0123456789", kScratch.size()) != std::string::npos)
      continue;
    const int lock = lock_scratch(entry.path());
    if (lock < 0) continue;
    std::filesystem::remove_all(entry.path(), ec);
    close(lock);
  }
}

/// Sends what is to be mapped, with its file.
void send_with_file(int socket, const GpuPages& pages) {
  GpuPages sent = pages;
  iovec part{&sent, sizeof sent};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (pages.file >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(head), &pages.file, sizeof(int));
  }
  while (sendmsg(socket, &message, MSG_NOSIGNAL) < 0 && errno == EINTR) {
  }
}

/// In the child between fork and exec: only calls that are safe there.
[[noreturn]] void become_runner(pid_t parent, std::array<int, 3> files, char* const* argv, char* const* env) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent ended before prctl
  bool ok = true;
  for (int& f : files) f = fcntl(f, F_DUPFD, 10);
  for (int i = 0; i < 3; ++i) ok = dup2(files[static_cast<std::size_t>(i)], kRunnerSocket + i) >= 0 && ok;
#ifdef SYS_close_range
  syscall(SYS_close_range, static_cast<unsigned>(kRunnerOutputs) + 1, ~0U, 4U);  // CLOSE_RANGE_CLOEXEC
#endif
  if (ok) execve(argv[0], argv, env);
  constexpr char kText[] = "attnbench: cannot run a process for kernels; --in-process runs without\n";
  [[maybe_unused]] const auto n = write(STDERR_FILENO, kText, sizeof kText - 1);
  _exit(127);
}

}  // namespace

std::string runner_scratch(pid_t judge) {
  return (temporary() / fmt::format("{}{}", kScratch, judge)).string();
}

Runner::Runner(const std::vector<std::string>& argv, int64_t memory_bytes, int threads, int gpu)
    : memory_(memory_bytes) {
  scratch_ = runner_scratch(getpid());
  remove_left_scratch();
  mkdir(scratch_.c_str(), 0700);  // without it the kernel has no temporary files
  scratch_lock_ = lock_scratch(scratch_);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(fmt::format("cannot make a socket: {}", std::strerror(errno)), kExitFailure);
  socket_ = ends[0];
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);  // what a kernel leaves behind becomes a child of this process
  std::vector<std::string> words = argv, env = environment(scratch_, threads);
  const bool sealed = memory_.inputs.seal();
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0)
    become_runner(parent, {ends[1], memory_.inputs.file(), memory_.outputs.file()}, pointers(words).data(),
                  pointers(env).data());
  const int error = errno;
  close(ends[1]);
  if (pid_ < 0) throw Error(fmt::format("cannot start a process: {}", std::strerror(error)), kExitFailure);
  const timeval look{1, 0};  // how long a call waits before it looks whether the process is there
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &look, sizeof look);
  setpgid(pid_, pid_);  // the child does it, too: whoever comes first
  runs_ = true;
  g_runner = this;
  const RunnerHello hello{
      {memory_.inputs.base(), memory_.inputs.size()}, {memory_.outputs.base(), memory_.outputs.size()}, gpu};
  send(&hello, sizeof hello);
  uint64_t bytes = 0;
  receive(&bytes, sizeof bytes);
  std::string text(std::min(bytes, kLongestDescription), '\0');
  if (bytes <= kLongestDescription) receive(text.data(), text.size());
  const auto described = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (described.is_discarded()) throw Error(std::string(kForgedAnswer), kExitFailure);
  confinement_ = described.at("confinement").get<std::string>() + (sealed ? "" : ", no seals of memory");
  for (const nlohmann::json& kernel : described.at("kernels")) {
    if (kernels_.size() == kMostHosted)
      throw Error(fmt::format("more than {} kernels", kMostHosted), kExitFailure);
    kernels_.push_back(
        described_kernel(kernel, hosted(kernels_.size(), std::make_index_sequence<kMostHosted>())));
    if (kernel.at("python").get<bool>()) note_python_kernel(*kernels_.back());
    if (const auto file = kernel.at("plugin").get<std::string>(); !file.empty())
      plugin_of_[kernels_.back()] = file;
  }
  stop();
}

Runner::~Runner() {
  kill(-pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  end_leftovers();
  close(socket_);
  g_runner = nullptr;
  std::error_code ec;
  std::filesystem::remove_all(scratch_, ec);
  close(scratch_lock_);
}

void Runner::end_as_it_did(int status) const {
  kill(-pid_, SIGKILL);
  end_leftovers();
  std::error_code ec;
  std::filesystem::remove_all(scratch_, ec);
  if (WIFSIGNALED(status)) {
    if (WTERMSIG(status) == SIGKILL) std::signal(SIGTERM, SIG_DFL);
    std::raise(WTERMSIG(status));
    _exit(kExitFailure);
  }
  std::fflush(nullptr);
  _exit(WEXITSTATUS(status));
}

/// The time of the chosen clock, which the kernel cannot change.
double Runner::outer_us() const { return clock_ == TimeClock::kCpu ? cpu_us_of(pid_) : now_us(); }

void Runner::resume() {
  kill(-pid_, SIGCONT);
  runs_ = true;
}

void Runner::stop() {
  kill(-pid_, SIGSTOP);
  int status = 0;
  for (;;) {
    if (waitpid(pid_, &status, WUNTRACED) == pid_) {
      if (WIFSTOPPED(status)) break;
      end_as_it_did(status);
    }
    if (errno != EINTR) throw Error("the process of the kernel cannot be stopped", kExitFailure);
  }
  runs_ = false;
  char byte = 0;
  if (recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0) throw KernelError(std::string(kForgedAnswer));
}

void Runner::send(const void* data, std::size_t bytes) const {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::send(socket_, at, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno != EINTR) return;  // it has ended: receive() sees it
    at += std::max<ssize_t>(n, 0);
    bytes -= static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  }
}

void Runner::receive(void* data, std::size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    // A child that a kernel has made may keep the socket open, so the end of the process is looked at, too.
    const ssize_t n = recv(socket_, at, bytes, 0);
    if (n > 0) {
      at += n;
      bytes -= static_cast<std::size_t>(n);
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    int status = 0;
    if (waitpid(pid_, &status, n == 0 ? 0 : WNOHANG) == pid_) end_as_it_did(status);
    if (n == 0 || errno != EAGAIN) throw Error("the process of the kernel closed its socket", kExitFailure);
  }
}

Runner::Reply Runner::call(const Request& request) {
  if (!go_) return calls({&request, 1});
  go_->push_back(request);
  go_->back().alone = false;
  return {};
}

Runner::Reply Runner::calls(std::span<const Request> requests) {
  if (fault_) throw *fault_;
  double begin = outer_us();
  if (!runs_) resume();
  for (const Request& r : requests) send_request(r);
  Reply reply;
  const Request* last = nullptr;
  for (const Request& r : requests) {
    last = &r;
    receive(&reply, sizeof reply);
    if (r.call == RunnerCall::kLaunch && std::exchange(woken_, false)) {  // its threads are awake
      begin = outer_us();
      receive(&reply, sizeof reply);
    }
    if (r.call == RunnerCall::kLaunch) {
      const double ended = outer_us();
      receive(&reply, sizeof reply);  // returned outputs are where they belong
      const double copied = outer_us() - ended - kCopyUs - 1e-3 * kCopyNs * static_cast<double>(out_bytes(r));
      times_.outer_us += ended - begin + std::max(0.0, copied);
      receive(&reply, sizeof reply);
      begin = outer_us();
      times_.us += reply.us;
      if (reply.waited_s >= 0) times_.waited_s = std::max(times_.waited_s.value_or(0), reply.waited_s);
    }
    if (reply.how != Reply::How::kReturned || reply.status != KernelStatus::kOk) break;
  }
  return answered(reply, *last);
}

Runner::Reply Runner::answered(Reply reply, const Request& request) {
  stop();
  last_us_ = reply.us;
  reply.message.text[sizeof reply.message.text - 1] = '\0';
  reply.text.back() = '\0';
  switch (reply.how) {
    case Reply::How::kFault:
      throw_fault(reply, request);
    case Reply::How::kThrew:
      throw KernelError(reply.text.data());
    case Reply::How::kLost:
      throw DeviceError(reply.text.data(), true);
    case Reply::How::kReturned:
      break;
  }
  return reply;
}

void Runner::send_request(Request r) {
  const auto inputs = memory_.inputs.take_changes(), outputs = memory_.outputs.take_changes();
  r.input_changes = static_cast<int32_t>(inputs.size());
  r.output_changes = static_cast<int32_t>(outputs.size());
  const auto pages = gpu_changes_ ? gpu_changes_() : std::vector<GpuPages>();
  r.gpu_changes = static_cast<int32_t>(pages.size());
  send(&r, sizeof r);
  for (const auto* changes : {&inputs, &outputs})
    send(changes->data(), changes->size() * sizeof(SharedMemory::Change));
  for (const GpuPages& p : pages) {
    send_with_file(socket_, p);
    if (p.file >= 0) close(p.file);
  }
}

void Runner::throw_fault(const Reply& reply, const Request& r) {
  const SharedMemory::Place in_inputs = memory_.inputs.place_of(reply.address);
  const bool of_inputs = !in_inputs.words.empty();
  const SharedMemory::Place place = of_inputs ? in_inputs : memory_.outputs.place_of(reply.address);
  const bool to_input = of_inputs && place.inside;
  const char* how = to_input || reply.wrote == 1 ? "wrote to" : reply.wrote == 0 ? "read" : "touched";
  fault_.emplace(
      fmt::format("the kernel {} {}{} in {} of {}", how, place.words, to_input ? " (an input)" : "",
                  function_of(r.call), kernels_.at(static_cast<std::size_t>(r.kernel))->name),
      to_input);
  throw *fault_;
}

Go Runner::time_go(const Launches& launches) {
  const std::vector<Request> requests = noted(launches);
  times_ = {};
  const int64_t written = written_by(pid_);
  const double cpu = cpu_us_of(pid_), begin = now_us();
  const Reply reply = calls(requests);
  const double held = now_us() - begin;
  if (reply.status != KernelStatus::kOk) throw KernelError(reply.message.text);
  prints_ = written_by(pid_) - written > kMostPrinted;
  return {times_.outer_us, held, cpu_us_of(pid_) - cpu};
}

bool Runner::disturbed(int threads) const {
  if (prints_) return true;  // who reads that takes a core
  constexpr double kLookS = 0.1, kFreeCores = 0.5;
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return cpu_busy_threads(kLookS) + std::min(threads, cores) > cores + kFreeCores;
}

void Runner::begin(int threads, TimeClock clock) {
  times_ = {};
  clock_ = clock;
  Request wake = request_of(RunnerCall::kWake, 0, nullptr);
  wake.clock = clock;
  wake.context.num_threads = threads;
  const Reply reply = call(wake);
  times_.cores_us = reply.cores_us;
  times_.handover_us = reply.handover_us;
  woken_ = threads > 1;
}

void Runner::limit_memory(int64_t bytes) const {
  std::ifstream statm(fmt::format("/proc/{}/statm", pid_));
  int64_t pages[6] = {};
  for (int64_t& p : pages) statm >> p;
  rlimit limit{};
  if (!statm || prlimit(pid_, RLIMIT_DATA, nullptr, &limit) != 0) return;
  limit.rlim_cur = std::min(limit.rlim_max, static_cast<rlim_t>(pages[5] * sysconf(_SC_PAGESIZE) + bytes));
  prlimit(pid_, RLIMIT_DATA, &limit, nullptr);
}

void end_children_but(const std::set<pid_t>& kept) {
  // A process that ends leaves its own children, and cannot be reaped while another one traces it.
  bool found = true;
  for (int i = 0; i < 2000 && found; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    found = false;
    std::ifstream children(fmt::format("/proc/self/task/{}/children", getpid()));
    for (pid_t child = 0; children >> child;) {
      if (kept.contains(child)) continue;
      kill(child, SIGKILL);
      waitpid(child, nullptr, WNOHANG);
      found = true;
    }
  }
}

}  // namespace attnbench
