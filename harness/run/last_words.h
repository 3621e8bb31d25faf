// What this process says when a kernel ends it, by a signal or by exit(): which of a thousand cases it was.
//
// Nothing is allocated and nothing is locked where a signal is handled: the texts lie ready.
#pragma once

#include <string_view>

namespace attnbench {

/// What the process does behind its last words.
enum class AfterLastWords {
  kExitCode,  ///< ends with kCrashExitCode: no other process looks after this one
  kSignal,    ///< ends as it would have without them: a supervisor tells how
};
inline constexpr int kCrashExitCode = 5;

/// From now on a crash is told on stderr, and an exit() while a kernel is called. Nothing in a program with a
/// sanitizer, which tells more.
void tell_crashes(AfterLastWords after);
/// Undoes it, in a child whose end somebody else tells.
void tell_no_crashes();

/// What is in hand, as in "case attention/...": part of the last words. Copied; what is too long is cut.
void set_in_hand(std::string_view text);
/// What the last words end with: what is kept, and the mend.
void set_advice(std::string_view text);
/// Says on stderr, after each time that so many seconds have passed over what is in hand, that it is still
/// there; 0: never. For a process that nobody stops after a timeout.
void tell_hangs(int seconds);

/// Says on stderr where the process is stopped, and the advice. For a signal handler.
void write_stopped();

/// Names the call into a kernel while it lives. The texts must outlive it.
class KernelCall {
 public:
  KernelCall(const char* call, const char* kernel);
  ~KernelCall();
  KernelCall(const KernelCall&) = delete;
  KernelCall& operator=(const KernelCall&) = delete;

 private:
  const char *call_, *kernel_;  ///< of the call round this one
};

}  // namespace attnbench
