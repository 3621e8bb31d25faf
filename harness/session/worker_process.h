// The supervisor's handle of a worker: a child process that runs the same program. It has a pipe for input,
// one for answers and one for what it prints. It is killed when the handle is destroyed or the parent process
// ends.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/session/messages.h"

namespace attnbench {

/// What an error says of a line that is no answer, or one too many.
inline constexpr std::string_view kForgedLine =
    "the worker's pipe got a line that is not the worker's: a kernel wrote to it, or changed what the worker "
    "wrote";

class WorkerProcess {
 public:
  /// Starts the program argv[0] with these arguments. Throws Error if the system refuses.
  explicit WorkerProcess(const std::vector<std::string>& argv);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  int out() const { return out_; }  ///< for poll
  int log() const { return log_; }

  /// Sends a request. Returns false if the process has ended.
  bool send(const Message& request);
  /// Reads what has arrived on out(). Returns false once the process has closed it.
  bool receive();
  /// The next whole line that was received; nullopt: none. It is an object, unless the worker did not write it.
  std::optional<Message> next_answer();
  /// Whether something was received that next_answer() has not returned.
  bool has_more() const { return !lines_.rest().empty(); }
  /// Returns what the process has printed since the last call.
  std::string printed() const;

  /// Asks the process to print what it is doing (last_words.h), and waits a moment for it to do so.
  void ask_where() const;

  /// Stops all threads of the process until resume(): what it left running must not disturb others.
  void pause() const;
  void resume() const;
  /// Returns true once the process has ended; does not wait.
  bool ended();
  /// Waits `grace_s` seconds for the process to end, then kills it. Returns how it ended: "was killed by
  /// signal 11 (Segmentation fault)", "ended with exit code 3".
  std::string end(double grace_s);
  /// Closes the process's input, which asks it to end.
  void close_input();

 private:
  bool wait_for_end(double seconds);

  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, log_ = -1;
  LineBuffer lines_;
  bool reaped_ = false;
  int status_ = 0;
};

}  // namespace attnbench
