// Runs a plan in worker processes, one per device, and survives what kernels do to them. A crash, a hang or a
// lost device context becomes the status of the case that was running. A new worker then goes on.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/session/session.h"
#include "harness/session/worker_process.h"

namespace attnbench {

struct SupervisorOptions {
  /// argv of a worker that opens this plug-in alone; empty: none, for built-in kernels.
  std::function<std::vector<std::string>(const std::string& plugin)> worker_command;
  std::vector<std::string> devices;  ///< one worker at a time each: "cpu", "cuda:0"
  int threads = 0;                   ///< host threads of each worker; 0: all
  double timeout_s = 120;            ///< limit for one case, in seconds
  std::optional<Ceilings> known;     ///< ceilings of the first device; nullopt: it is measured
};

struct RunEvents {
  std::function<void(const WorkItem&, const std::string& repro)> begin;
  std::function<bool(Record)> end;                    ///< returns false to stop: no more work is handed out
  std::function<void(std::string_view text)> output;  ///< what workers and their kernels print
  std::function<bool()> stop;                         ///< returns true to stop: no more work is handed out
};

/// Whether the next case needs another process than the one that ran this case. An error may have left the
/// process or its device context damaged. On the host, a wrong kernel shares its memory with everything else.
/// Reading the hardware's counters changes the times of later launches in the same process (by 1 to 2 % on an
/// H100), even after the profiler is released.
bool needs_new_worker(const Record& record, DeviceKind device);

class Supervisor {
 public:
  Supervisor(SupervisorOptions options, const SessionOptions& session);
  ~Supervisor();

  /// Starts the workers and opens their devices. Throws DeviceError if one cannot be opened; its `lost` is
  /// true if the worker ended or hung without a reason.
  std::vector<DeviceInfo> open();

  /// Runs all items, or until an event says stop; items that have begun are finished. `end` gets each record
  /// when it is finished. With several workers, records come in any order.
  void run(const std::vector<WorkItem>& work, const RunEvents& events);

  /// Ceilings of the first device. Unless they are known, they are measured before the first case of a timed
  /// run; nullopt until then.
  std::optional<Ceilings> ceilings() const;
  /// Why no worker could go on although work was left; empty if that did not happen.
  const std::string& lost() const { return lost_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { kDown, kOpening, kIdle, kMeasuring, kRunning, kGivenUp };
  struct Slot {
    std::string device;
    State state = State::kDown;
    std::string plugin;  ///< that `process` opens; empty: none
    std::unique_ptr<WorkerProcess> process;
    std::map<std::string, std::unique_ptr<WorkerProcess>> parked;  ///< of other plug-ins: stopped
    std::string log;   ///< the end of what the worker printed during the current case
    std::string held;  ///< the part of it that waits for the record, which may hold it
    std::optional<DeviceInfo> info;
    std::optional<Message> ceilings;
    std::optional<WorkItem> work;
    Reached reached;               ///< of `work`
    std::optional<Record> so_far;  ///< of `work`: a wrong result whose cause is looked for
    Clock::time_point deadline, not_before;
    int served = 0;               ///< cases that this process has begun
    std::optional<Record> wrong;  ///< of `work`, which runs once more, alone in a new process
    int failed_starts = 0;
    std::string why_not;  ///< reason of the last failed start
    bool died = false;    ///< the worker ended or hung; false: it sent a reason
  };

  void start(Slot& slot);
  /// The plug-in of the next case's kernel.
  std::string next_plugin() const;
  /// Takes the worker of this plug-in, or starts one. The one before is stopped if there is more work for it.
  void change_worker(Slot& slot, const std::string& plugin);
  void give_work(Slot& slot);
  void send_work(Slot& slot);
  /// Whether the process may have given this wrong result because of an earlier case.
  bool may_keep_state(const Slot& slot, const Record& record) const;
  /// Whether the next case must wait for others to end: one that takes several GPUs runs alone, because it uses
  /// those of other workers.
  bool must_wait(const Slot& slot) const;
  void look_at(Slot& slot);
  void handle(Slot& slot, const Message& message);
  void take_log(Slot& slot);
  void show(const std::string& text) const;
  void finish(Slot& slot, Record record);
  void stop_worker(Slot& slot);
  /// `died`: the worker ended or hung without sending a reason.
  void start_failed(Slot& slot, const std::string& why, bool died);
  void worker_ended(Slot& slot);
  void timed_out(Slot& slot);
  /// The worker's pipe holds something that is no answer: kills it. The case in hand gets the reason.
  void not_an_answer(Slot& slot, const std::string& why);
  /// What a case that ran out of time has finished, and what helps: ": the first launch did not end, ...".
  std::string unfinished(const Reached& reached) const;
  /// What a case was doing besides its first launch when its worker ended; empty if nothing.
  std::string during(const Reached& reached) const;
  Record failed_record(const Slot& slot, Status status, const std::string& reason) const;
  void wait_for_news();
  bool more_work() const;

  SupervisorOptions options_;
  const SessionOptions& session_;
  std::vector<Slot> slots_;
  const RunEvents* events_ = nullptr;
  const std::vector<WorkItem>* work_ = nullptr;
  std::size_t next_ = 0;
  std::map<std::string, std::size_t> last_of_;  ///< the last place in work_, by plug-in
  bool stopped_ = false;
  int failed_ = 0;  ///< cases
  std::string lost_;
};

}  // namespace attnbench
