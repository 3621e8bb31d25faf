// The last message of this process if a kernel ends it, by a signal or by exit(). It names the case that was
// being run.
//
// Signal handlers allocate nothing and lock nothing: the texts are stored in advance.
#pragma once

#include <csignal>
#include <string>
#include <string_view>

namespace attnbench {

/// How the process ends after its last message.
enum class AfterLastWords {
  kExitCode,  ///< with kCrashExitCode: no other process supervises this one
  kSignal,    ///< as it would without the message: a supervisor reports how
};
inline constexpr int kCrashExitCode = 5;

/// How the last message of a process begins.
inline constexpr std::string_view kLastWordsBegin = "attnbench: error: ";

/// From now on, a crash, or an exit() during a call into a kernel, is reported on stderr. Does nothing in a
/// program with a sanitizer, which reports more.
void tell_crashes(AfterLastWords after);
/// Undoes tell_crashes for crashes, in a child process whose end the parent reports.
void tell_no_crashes();

/// Sets what is being done, such as "case attention/...", for the last message. The text is copied; it is cut
/// if it is too long.
void set_in_hand(std::string_view text);
/// Sets the end of the last message: which results are kept, and what to do.
void set_advice(std::string_view text);
/// Reports on stderr, after every `seconds` seconds that set_in_hand's text has not changed, that it is still
/// being done; 0: never. For a process that no supervisor stops after a timeout.
void tell_hangs(int seconds);

/// The process is about to end with this exit code. If static destructors, such as those of a plug-in, hang,
/// it ends after some seconds with a note; SIGINT, SIGTERM and SIGHUP end it at once.
void end_soon(int exit_code);

/// Reports on stderr what was being done when the process is stopped, and the advice. For a signal handler.
void write_stopped();

/// Makes this process report on stderr, when it gets kWhereSignal, what it is doing: for a supervisor that is
/// about to kill it.
inline constexpr int kWhereSignal = SIGUSR1;
void tell_where();
/// The call into a kernel in the last message of a process, from what it has printed: " in plan of mine"; empty
/// if there is no such message or no call in it.
std::string call_in_last_words(std::string_view printed);

/// While it lives, the last message names this call into a kernel. The texts must outlive it.
class KernelCall {
 public:
  KernelCall(const char* call, const char* kernel);
  ~KernelCall();
  KernelCall(const KernelCall&) = delete;
  KernelCall& operator=(const KernelCall&) = delete;

 private:
  const char *call_, *kernel_;  ///< of the enclosing call
};

}  // namespace attnbench
