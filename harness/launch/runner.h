// The process in which kernels run. Its parent, the judge, calls their functions through a socket; the
// process is stopped at all other times. So it can neither work ahead nor see how tensors are filled and read.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/device/kernel_host.h"
#include "harness/launch/guarded_call.h"
#include "harness/launch/plugin.h"

namespace attnbench {

struct GpuJob;
enum class RunnerCall : int32_t;

/// The socket and the files of KernelMemory when a runner starts.
inline constexpr int kRunnerSocket = 3, kRunnerInputs = 4, kRunnerOutputs = 5;

/// In the environment of a judge: the user's OMP_WAIT_POLICY. The judge's own threads sleep when they wait.
inline constexpr char kUsersWaitPolicy[] = "ATTNBENCH_USERS_WAIT_POLICY";

/// Where compilers that run in a launch keep their results: the variable that names the folder, and the folder below
/// $HOME without it.
inline constexpr std::pair<const char*, const char*> kCaches[] = {
    {"XDG_CACHE_HOME", "/.cache"},
    {"TRITON_CACHE_DIR", "/.triton"},
    {"CUDA_CACHE_PATH", "/.nv"},
    {"NUMBA_CACHE_DIR", "/.numba"},
    {"TORCHINDUCTOR_CACHE_DIR", "/.torchinductor"}};

/// Kills and reaps all children of this process but these: what a kernel leaves behind becomes a child of the process
/// above that is next in line (PR_SET_CHILD_SUBREAPER).
void end_children_but(const std::set<pid_t>& kept);

/// The judge's handle of a runner. There is one in a process.
class Runner final : public GpuHost {
 public:
  /// Starts the program `argv`, whose OpenMP gets `threads` (0: the user's number), and waits until it has described its
  /// kernels for the CPU, or for cuda:N of `gpu`. Throws Error if the system refuses. If the runner ends, now or in a call, this process ends as it did: the
  /// supervisor reports it.
  Runner(const std::vector<std::string>& argv, int64_t memory_bytes, int threads, int gpu = -1);
  ~Runner() override;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  /// The kernels that it has. A call of one of their functions goes to the runner.
  const std::vector<const Kernel*>& kernels() const { return kernels_; }
  /// The files of those that come from plug-ins.
  const std::map<const Kernel*, std::string>& plugin_of() const { return plugin_of_; }
  /// How it is confined: "landlock, seccomp", and what the system lacks.
  const std::string& confinement() const { return confinement_; }

  /// Before a case: what the runner may allocate, in bytes, beyond what it has.
  void limit_memory(int64_t bytes) const;
  /// After a case: kills processes that a kernel has orphaned.
  void end_leftovers() const { end_children_but({pid_}); }

  KernelMemory& memory() override { return memory_; }
  double last_us() const override { return last_us_; }
  void begin(int threads, TimeClock clock) override;
  HostedTimes end() override { return times_; }
  Go time_go(const Launches& launches) override;
  bool disturbed(int threads) const override;
  void share(std::function<std::vector<GpuPages>()> changes) override { gpu_changes_ = std::move(changes); }
  Sample time_launch(const Launches& launches, CacheMode cache, const LaunchWatch* watch) override;
  CounterReading count_launch(const Launches& launches, const Launches& prepare, CacheMode cache) override;
  std::function<void()> capture_graph(const Launches& launches) override;
  void pass_on() override;
  Go time_go(const Launches& launches, const GpuHold& hold) override;

  struct Request;
  struct Reply;
  /// Throws KernelError with what the kernel threw.
  Reply call(const Request& request);

 private:
  /// One after the other, without a stop. Returns the last answer, which is the first that is not kOk.
  Reply calls(std::span<const Request> requests);
  std::vector<Request> noted(const Launches& launches);
  /// On a GPU: what is done with launches.
  Reply do_job(RunnerCall what, GpuJob job, const Launches& launches, const Launches& prepare = {},
               const std::function<void()>& when_sent = {});
  /// Stops the process. Throws what the reply says.
  Reply answered(Reply reply, const Request& request);
  double outer_us() const;
  void resume();
  void stop();
  void send_request(Request request);
  [[noreturn]] void throw_fault(const Reply& reply, const Request& request);
  void send(const void* data, std::size_t bytes) const;
  void receive(void* data, std::size_t bytes);
  [[noreturn]] void end_as_it_did(int status) const;

  KernelMemory memory_;
  pid_t pid_ = -1;
  int socket_ = -1;
  bool runs_ = false;
  std::optional<MemoryFault> fault_;  ///< the process ends with the case, and launches nothing until then
  bool prints_ = false;               ///< in the last go
  bool woken_ = false;                ///< several threads, for the next launch, which is timed
  TimeClock clock_ = TimeClock::kWall;
  std::string scratch_, confinement_;
  int scratch_lock_ = -1;  ///< for as long as this process lives
  std::vector<const Kernel*> kernels_;
  std::map<const Kernel*, std::string> plugin_of_;
  double last_us_ = 0;
  std::optional<std::vector<Request>> go_;  ///< launches that are noted, not done
  std::function<std::vector<GpuPages>()> gpu_changes_;
  HostedTimes times_;
};

/// The folder for temporary files of the runner of a judge.
std::string runner_scratch(pid_t judge);

/// In the runner, before plug-ins are opened: maps the memory, closes its files, and gives up what a kernel does not need.
void confine_runner();

/// The runner's side: answers the judge until the socket closes, and returns the exit code of the process.
/// `plugin_of`: file of a kernel; empty: it is built in.
int serve_kernels(KernelTable table, const std::function<std::string(const Kernel&)>& plugin_of);

}  // namespace attnbench
