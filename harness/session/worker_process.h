// The supervisor's handle of a worker: a child process that runs this same program, with a pipe each way and
// one for what it prints. It dies with the handle, and with the process that holds the handle.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "harness/session/messages.h"

namespace attnbench {

class WorkerProcess {
 public:
  /// Starts /proc/self/exe with these arguments (argv[0] included). Throws Error where the
  /// system refuses.
  explicit WorkerProcess(const std::vector<std::string>& argv);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  int out() const { return out_; }  ///< for poll
  int log() const { return log_; }

  /// False where the process is gone.
  bool send(const Message& message) const { return send_line(in_, message); }
  /// Takes what has arrived on out() into `lines`; false once the process has closed it.
  bool receive(LineBuffer& lines) const;
  /// Takes what it has printed since the last call.
  std::string printed() const;

  /// True once the process has ended; does not wait.
  bool ended();
  /// Kills it, if need be, and says how it ended: "was killed by signal 11 (Segmentation fault)",
  /// "ended with exit code 3". Waits `grace_s` for an end of its own first.
  std::string end(double grace_s);
  /// Closes its input, which asks it to end.
  void close_input();

 private:
  bool wait_for_end(double seconds);

  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, log_ = -1;
  bool reaped_ = false;
  int status_ = 0;
};

}  // namespace attnbench
