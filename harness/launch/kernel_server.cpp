// The runner's side: calls the functions of kernels for a judge.
#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <omp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "harness/device/core_waits.h"
#include "harness/device/cpu_ceilings.h"
#include "harness/error.h"
#include "harness/launch/confine.h"
#include "harness/launch/description.h"
#include "harness/launch/gpu_jobs.h"
#include "harness/launch/guarded_call.h"
#include "harness/launch/launcher.h"
#include "harness/launch/python.h"
#include "harness/launch/runner_messages.h"
#include "harness/values/returned.h"

namespace attnbench {
namespace {

std::string g_confinement;
int g_socket = kRunnerSocket;
std::optional<GpuJobs> g_gpu;
constexpr int kHigh = 200;
constexpr char kNotThere[] =
    "; a kernel can only read its inputs, and the memory beside a tensor is not there";

bool read_all_of(void* data, std::size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = recv(g_socket, at, bytes, 0);
    if (n == 0 || (n < 0 && errno != EINTR)) return false;
    at += std::max<ssize_t>(n, 0);
    bytes -= static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  }
  return true;
}

void write_all(const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = send(g_socket, at, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno != EINTR) _exit(kExitFailure);
    at += std::max<ssize_t>(n, 0);
    bytes -= static_cast<std::size_t>(std::max<ssize_t>(n, 0));
  }
}

RunnerHello g_memory;
Runner::Reply g_fault{.how = Runner::Reply::How::kFault};
std::atomic<int> g_answers{0};  ///< that the judge still waits for
struct sigaction g_earlier {};

/// 1: the access that failed was a write, 0: a read; -1: the machine does not say.
int32_t wrote([[maybe_unused]] const void* context) {
#ifdef __x86_64__
  constexpr int64_t kWrite = 2;  // in the error code of a page fault
  return (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWrite) != 0 ? 1 : 0;
#else
  return -1;
#endif
}

/// A write to an input, or an access to memory that the kernel must not see, becomes the answer to the call. The process
/// then waits for its end.
extern "C" void on_fault(int, siginfo_t* info, void* context) {
  const auto holds = [info](const RunnerHello::Map& map) {
    const char* base = static_cast<const char*>(map.base);
    return info->si_addr >= base && info->si_addr < base + map.size;
  };
  const bool raised = info->si_code <= 0;  // by kill() or raise(): it has no address
  if (raised || (!holds(g_memory.inputs) && !holds(g_memory.outputs))) {
    sigaction(SIGSEGV, &g_earlier, nullptr);
    if (raised) raise(SIGSEGV);
    return;  // a fault comes again
  }
  if (int n = g_answers.exchange(0); n > 0) {
    g_fault.address = info->si_addr;
    g_fault.wrote = wrote(context);
    for (; n > 0; --n) write_all(&g_fault, sizeof g_fault);
  }
  for (;;) pause();
}

/// Lets this process touch what the judge says, and no more.
bool read_changes(int32_t count, const RunnerHello::Map& map, Access access) {
  SharedMemory::Change change;
  for (int32_t i = 0; i < count; ++i) {
    if (!read_all_of(&change, sizeof change)) return false;
    SharedMemory::apply(change, map.base, access);
  }
  return true;
}

bool read_gpu_pages(int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    GpuPages pages{};
    iovec part{&pages, sizeof pages};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (recvmsg(g_socket, &message, MSG_WAITALL | MSG_CMSG_CLOEXEC) != sizeof pages) return false;
    const cmsghdr* head = CMSG_FIRSTHDR(&message);
    pages.file = -1;
    if (head != nullptr) std::memcpy(&pages.file, CMSG_DATA(head), sizeof(int));
    apply(pages);
  }
  return true;
}

bool read_request(Runner::Request& r) {
  return read_all_of(&r, sizeof r) && read_changes(r.input_changes, g_memory.inputs, Access::kReads) &&
         read_changes(r.output_changes, g_memory.outputs, Access::kWrites) && read_gpu_pages(r.gpu_changes);
}

bool has_job(RunnerCall call) { return call >= RunnerCall::kTime && call <= RunnerCall::kGo; }

/// The judge's answers and this process's memory of a launch.
class Server {
 public:
  explicit Server(std::vector<const Kernel*> kernels) : kernels_(std::move(kernels)) {}

  /// What follows a request of the GPU. Returns false if the socket has closed.
  bool read_job(const Runner::Request& r) {
    job_ = {};
    launches_.clear();
    if (!has_job(r.call)) return true;
    if (!read_all_of(&job_, sizeof job_)) return false;
    launches_.resize(static_cast<std::size_t>(job_.launches + job_.prepare));
    return read_all_of(launches_.data(), launches_.size() * sizeof(Runner::Request));
  }

  void answer(Runner::Request& r) {
    Runner::Reply reply;
    if (r.call == RunnerCall::kWake) {
      clock_ = r.clock;
      wake(r.context.num_threads, reply);
      return write_all(&reply, sizeof reply);
    }
    const Kernel& kernel = *kernels_.at(static_cast<std::size_t>(r.kernel));
    const auto caught = [&](const auto& step) {
      const auto say = [&](Runner::Reply::How how, const std::string& what) {
        reply.how = how;
        const bool address = what.find("cudaErrorIllegalAddress") != what.npos;
        std::snprintf(reply.text.data(), reply.text.size(), "%s%s", what.c_str(), address ? kNotThere : "");
      };
      try {
        step();
      } catch (const DeviceError& e) {
        say(e.lost ? Runner::Reply::How::kLost : Runner::Reply::How::kThrew, e.what());
      } catch (const std::exception& e) {
        say(Runner::Reply::How::kThrew, e.what());
      }
      --g_answers;
      write_all(&reply, sizeof reply);
    };
    g_answers = r.call == RunnerCall::kLaunch ? 3 + (waits_ && threads_ > 1 ? 1 : 0) : 1;
    if (g_gpu) r.context.stream = g_gpu->stream();
    if (r.call > RunnerCall::kTile) return caught([&] { g_gpu->answer(r, job_, launches_, reply); });
    if (r.call != RunnerCall::kLaunch) return caught([&] { ask(kernel, r, reply); });
    // Several answers: what comes before and after the launch is no part of its time.
    ReturnedOutputs returned{};
    if (r.context.returned != nullptr) r.context.returned = &returned;
    if (!before_ && r.alone && !g_gpu) before_.emplace(StateBefore::Scope::kTeam);
    // Threads that were stopped take their time to wake up.
    if (waits_ && threads_ > 1) caught([&] { hand_over(threads_); });
    if (waits_) waits_->start();
    caught([&] {
      reply.us = us_of(clock_, [&] {
        reply.status = guarded(
            kernel, "launch", [&] { return kernel.launch(&r.params, &r.context, &reply.message); },
            StateBefore::Scope::kFloat);
      });
    });
    reply.waited_s = (waits_ ? waits_->longest() : std::nullopt).value_or(-1);
    waits_.reset();
    const bool launched = reply.how == Runner::Reply::How::kReturned && reply.status == KernelStatus::kOk;
    caught([&] {
      if (launched)
        for (const ReturnedTensor& t : returned_tensors(r.params.attention, returned))
          g_gpu ? g_gpu->device().take_returned(t) : take_returned_host(t);
      if (g_gpu) g_gpu->device().synchronize();
    });
    caught([&] {
      if (launched && before_) expect_restored(*before_, kernel, "launch");
    });
    before_.reset();
  }

  /// One of several that are enqueued on a GPU.
  void launch(Runner::Request& r, ReturnedOutputs& returned) {
    const Kernel& kernel = *kernels_.at(static_cast<std::size_t>(r.kernel));
    if (r.context.returned != nullptr) r.context.returned = &returned;
    r.context.stream = g_gpu->stream();
    expect_ok(kernel, "launch", [&](KernelMessage* m) { return kernel.launch(&r.params, &r.context, m); });
  }

 private:
  void wake(int threads, Runner::Reply& reply) {
    if (threads < 1) return;
    before_.emplace(StateBefore::Scope::kTeam);
    waits_.emplace();
    threads_ = threads;
    reply.cores_us = us_of(clock_, [&] { turn_cores(threads); });
    if (threads > 1) reply.handover_us = us_of(clock_, [&] { hand_over(threads); });
  }

  static void ask(const Kernel& kernel, const Runner::Request& r, Runner::Reply& reply) {
    const OpParams* p = &r.params;
    const LaunchContext* c = &r.context;
    KernelMessage* m = &reply.message;
    switch (r.call) {
      case RunnerCall::kSupports:
        reply.status = guarded(kernel, "supports", [&] { return kernel.supports(p, c, m); });
        break;
      case RunnerCall::kNumerics:
        reply.numerics = guarded(kernel, "numerics", [&] { return kernel.numerics(p); });
        break;
      case RunnerCall::kWorkspaceBytes:
        if (kernel.workspace_bytes)
          reply.workspace_bytes =
              guarded(kernel, "workspace_bytes", [&] { return kernel.workspace_bytes(p, c); });
        break;
      case RunnerCall::kPlan:
        if (!kernel.plan) break;
        reply.us = us_of(TimeClock::kWall, [&] {
          reply.status = guarded(
              kernel, "plan", [&] { return kernel.plan(p, c, m); },
              g_gpu ? StateBefore::Scope::kThread : StateBefore::Scope::kTeam);
        });
        break;
      case RunnerCall::kTile:
        if (kernel.tile) reply.tile = guarded(kernel, "tile", [&] { return kernel.tile(p); });
        break;
      default:
        break;
    }
  }

  std::vector<const Kernel*> kernels_;
  std::optional<StateBefore> before_;   ///< the next launch
  std::optional<CoreWaits> waits_;      ///< in the next launch, which is timed
  TimeClock clock_ = TimeClock::kWall;  ///< of timed launches
  int threads_ = 1;                     ///< that are awake for it
  GpuJob job_;
  std::vector<Runner::Request> launches_;  ///< of the job
};

}  // namespace

void confine_runner() {
  RunnerHello hello{};
  if (!read_all_of(&hello, sizeof hello)) _exit(kExitFailure);
  if (!SharedMemory::map(kRunnerInputs, hello.inputs.base, hello.inputs.size, Access::kReads) ||
      !SharedMemory::map(kRunnerOutputs, hello.outputs.base, hello.outputs.size, Access::kWrites)) {
    constexpr char kText[] =
        "attnbench: the process of the kernel has no room where tensors lie; --in-process runs without\n";
    [[maybe_unused]] const auto n = write(STDERR_FILENO, kText, sizeof kText - 1);
    _exit(kExitFailure);
  }
  g_memory = hello;
  close(kRunnerInputs);
  close(kRunnerOutputs);
  if (hello.gpu >= 0) {
    try {
      g_gpu.emplace(hello.gpu);
    } catch (const Error& e) {
      [[maybe_unused]] const std::string text = e.message() + "\n";
      [[maybe_unused]] const auto n = write(STDERR_FILENO, text.data(), text.size());
      _exit(kExitFailure);
    }
  }
  g_confinement = confine(working_folders());
}

int serve_kernels(KernelTable table, const std::function<std::string(const Kernel&)>& plugin_of) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) std::signal(signal, SIG_IGN);
  tell_crashes(AfterLastWords::kSignal);  // that a kernel called exit()
  tell_no_crashes();                      // the judge reports the rest
  // Away from the numbers at which a kernel may look for files, and closed in processes that it starts.
  if (const int high = fcntl(kRunnerSocket, F_DUPFD_CLOEXEC, kHigh); high >= 0) {
    close(kRunnerSocket);
    g_socket = high;
  }
  fcntl(g_socket, F_SETFD, FD_CLOEXEC);
  pthread_atfork(nullptr, nullptr, [] { close(g_socket); });
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
  struct sigaction fault {};
  fault.sa_sigaction = on_fault;
  fault.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &fault, &g_earlier);
  std::vector<const Kernel*> kernels;
  nlohmann::json described = nlohmann::json::array();
  for (const Kernel* k : table) {
    if (k->device != (g_gpu ? DeviceKind::kCuda : DeviceKind::kCpu)) continue;
    kernels.push_back(k);
    described.push_back(description_of(*k));
    described.back()["python"] = is_python_kernel(*k);
    described.back()["plugin"] = plugin_of(*k);
  }
  const std::string text = nlohmann::json{{"kernels", described}, {"confinement", g_confinement}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
  const uint64_t bytes = text.size();
  write_all(&bytes, sizeof bytes);
  write_all(text.data(), text.size());
  Server server(std::move(kernels));
  if (g_gpu)
    g_gpu->launches_by([&](Runner::Request& r, ReturnedOutputs& returned) { server.launch(r, returned); });
  for (Runner::Request r; read_request(r) && server.read_job(r);) server.answer(r);
  return 0;
}

}  // namespace attnbench
