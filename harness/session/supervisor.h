// Runs a plan in worker processes, one per device, and outlives what kernels do to them: a crash, a hang or a
// lost device context becomes the status of the one case that was in hand, and a new worker goes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/session/session.h"
#include "harness/session/worker_process.h"

namespace attnbench {

struct SupervisorOptions {
  std::vector<std::string> worker_command;  ///< argv of a worker
  std::vector<std::string> devices;         ///< one worker for each: "cpu", "cuda:0"
  int threads = 0;                          ///< host threads of each worker; 0: all
  double timeout_s = 120;                   ///< of one case
};

struct RunEvents {
  std::function<void(const WorkItem&, const std::string& repro)> begin;
  std::function<bool(Record)> end;                    ///< false: hand out no more work
  std::function<void(std::string_view text)> output;  ///< what workers and their kernels print
  std::function<bool()> stop;                         ///< true: hand out no more work
};

/// Whether the next case must not run in the process that ran this one. What went wrong may have left the
/// process or its device context damaged; on the host a wrong kernel shares its memory with everything else.
/// Where the hardware's counters were read, later launches of the process take other times (1 to 2 % seen on
/// an H100), however the profiler is let go.
bool needs_new_worker(const Record& record, DeviceKind device);

class Supervisor {
 public:
  Supervisor(SupervisorOptions options, const SessionOptions& session);
  ~Supervisor();

  /// Starts the workers and opens their devices. Throws DeviceError where one cannot be opened; `lost` where
  /// its worker ended without saying so.
  std::vector<DeviceInfo> open();

  /// Runs all of it, or until an event says stop; `end` gets each record as it is finished, in any order
  /// where there are several workers. What has begun is finished.
  void run(const std::vector<WorkItem>& work, const RunEvents& events);

  /// Ceilings of the first device, when they have been measured: before the first case of a timed run.
  std::optional<Ceilings> ceilings() const;
  /// Why no worker could go on although work was left; empty where that did not happen.
  const std::string& lost() const { return lost_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { kDown, kOpening, kIdle, kMeasuring, kRunning, kGivenUp };
  struct Slot {
    std::string device;
    State state = State::kDown;
    std::unique_ptr<WorkerProcess> process;
    LineBuffer lines;
    std::string log;  ///< the end of what it printed during the case in hand
    std::optional<DeviceInfo> info;
    std::optional<Message> ceilings;
    std::optional<WorkItem> work;
    Clock::time_point deadline, not_before;
    int failed_starts = 0;
    std::string why_not;  ///< the last failed start
    bool died = false;    ///< it was no refusal, but the end of the worker
  };

  void start(Slot& slot);
  void give_work(Slot& slot);
  void look_at(Slot& slot);
  void handle(Slot& slot, const Message& message);
  void take_log(Slot& slot);
  void finish(Slot& slot, Record record);
  void stop_worker(Slot& slot);
  /// `died`: no answer but its end.
  void start_failed(Slot& slot, const std::string& why, bool died);
  void worker_ended(Slot& slot);
  void timed_out(Slot& slot);
  Record failed_record(const Slot& slot, Status status, const std::string& reason) const;
  void wait_for_news();
  bool more_work() const;

  SupervisorOptions options_;
  const SessionOptions& session_;
  std::vector<Slot> slots_;
  const RunEvents* events_ = nullptr;
  const std::vector<WorkItem>* work_ = nullptr;
  std::size_t next_ = 0;
  bool stopped_ = false;
  std::string lost_;
};

}  // namespace attnbench
