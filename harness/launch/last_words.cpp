#include "harness/launch/last_words.h"

#include <re2/re2.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "harness/device/sanitized.h"

namespace attnbench {
namespace {

constexpr std::array<int, 5> kCrashes = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

/// A text that a handler reads. It is empty while it is written.
class Text {
 public:
  void set(std::string_view text) {
    end_.store(0, std::memory_order_release);
    std::copy_n(text.begin(), std::min(text.size(), bytes_.size()), bytes_.begin());
    std::replace_if(
        bytes_.begin(), bytes_.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
    end_.store(std::min(text.size(), bytes_.size()), std::memory_order_release);
  }
  std::string_view get() const { return {bytes_.data(), end_.load(std::memory_order_acquire)}; }

 private:
  std::array<char, 2048> bytes_{};
  std::atomic<std::size_t> end_{0};
};

Text g_in_hand, g_advice;
std::atomic<const char*> g_call{nullptr}, g_kernel{nullptr};
std::atomic<AfterLastWords> g_after{AfterLastWords::kExitCode};
std::atomic<bool> g_crashed{false}, g_exit_watched{false};
std::atomic<unsigned> g_hang_seconds{0}, g_hung_seconds{0};
std::atomic<int> g_exit_code{0};
constexpr unsigned kEndSeconds = 3;  ///< shorter than a supervisor waits for its workers' end
/// Stack of the signal handlers: after a stack overflow they cannot run on the thread's own.
alignas(16) std::array<char, 64 * 1024> g_stack;

void write_text(std::string_view text) {
  [[maybe_unused]] const auto n = write(STDERR_FILENO, text.data(), text.size());
}

void write_number(unsigned n) {
  std::array<char, 12> digits{};
  std::size_t at = digits.size();
  do digits[--at] = static_cast<char>('0' + n % 10);
  while ((n /= 10) > 0);
  write_text({digits.data() + at, digits.size() - at});
}

std::string_view signal_words(int signal) {
  return signal == SIGSEGV   ? "Segmentation fault"
         : signal == SIGBUS  ? "Bus error"
         : signal == SIGFPE  ? "Floating point exception"
         : signal == SIGILL  ? "Illegal instruction"
         : signal == SIGABRT ? "Aborted"
                             : "?";
}

void begin_last_words() {
  // Without a supervisor, stderr may end in an unfinished line of progress.
  if (g_after.load() == AfterLastWords::kExitCode) write_text("\n");
  write_text(kLastWordsBegin);
}

void write_in_hand() {
  const char* between = " in ";
  if (const char* call = g_call.load()) {
    write_text(between);
    write_text(call);
    write_text(" of ");
    write_text(g_kernel.load());
    between = ", ";
  }
  if (const std::string_view text = g_in_hand.get(); !text.empty()) {
    write_text(between);
    write_text(text);
  }
}

void write_advice() {
  if (const std::string_view advice = g_advice.get(); !advice.empty()) {
    write_text("; ");
    write_text(advice);
  }
  write_text("\n");
}

extern "C" void on_crash(int signal) {
  // If several threads crash, only one reports.
  while (g_crashed.exchange(true)) pause();
  begin_last_words();
  write_text("signal ");
  write_number(static_cast<unsigned>(signal));
  write_text(" (");
  write_text(signal_words(signal));
  write_text(")");
  write_in_hand();
  write_advice();
  if (g_after.load() == AfterLastWords::kExitCode) _exit(kCrashExitCode);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

extern "C" void on_exit_within_a_kernel() {
  if (g_call.load() == nullptr) return;
  begin_last_words();
  write_text("the process was ended by exit()");
  write_in_hand();
  write_advice();
  if (g_after.load() == AfterLastWords::kExitCode) _exit(kCrashExitCode);
}

extern "C" void on_alarm(int) {
  const unsigned seconds = g_hang_seconds.load();
  write_text("\nattnbench: note: ");
  write_number(g_hung_seconds.fetch_add(seconds) + seconds);
  write_text(" s and no end");
  write_in_hand();
  write_text("; Ctrl-C twice ends it");
  write_advice();
  alarm(seconds);
}

extern "C" void on_end(int) {
  write_text("attnbench: note: no end in the static destructors for ");
  write_number(kEndSeconds);
  write_text(" s; the process ends without them\n");
  _exit(g_exit_code.load());
}

extern "C" void on_where(int) {
  write_text("\n");
  write_text(kLastWordsBegin);
  write_text("no end");
  write_in_hand();
  write_text("\n");
}

void handle(int number, void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, nullptr);
}

}  // namespace

void tell_crashes(AfterLastWords after) {
  g_after = after;
  if (!kSanitized) {  // a sanitizer reports crashes itself
    stack_t stack{};
    stack.ss_sp = g_stack.data();
    stack.ss_size = g_stack.size();
    sigaltstack(&stack, nullptr);
    for (const int signal : kCrashes) handle(signal, on_crash, SA_ONSTACK);
  }
  if (!g_exit_watched.exchange(true)) std::atexit(on_exit_within_a_kernel);
}

void tell_no_crashes() {
  for (const int signal : kCrashes) std::signal(signal, SIG_DFL);
}

void set_in_hand(std::string_view text) {
  g_in_hand.set(text);
  g_hung_seconds = 0;
  if (g_hang_seconds.load() > 0) alarm(text.empty() ? 0 : g_hang_seconds.load());
}

void set_advice(std::string_view text) { g_advice.set(text); }

void tell_hangs(int seconds) {
  g_hang_seconds = static_cast<unsigned>(seconds);
  handle(SIGALRM, on_alarm, SA_RESTART);
}

void end_soon(int exit_code) {
  g_hang_seconds = 0;
  set_advice("");
  set_in_hand("the static destructors, as the program ends");
  g_exit_code = exit_code;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
  handle(SIGALRM, on_end, 0);
  alarm(kEndSeconds);
}

void write_stopped() {
  write_text("\nstopped at once");
  write_in_hand();
  write_advice();
}

void tell_where() { handle(kWhereSignal, on_where, SA_RESTART); }

std::string call_in_last_words(std::string_view printed) {
  const std::size_t at = printed.rfind(kLastWordsBegin);
  if (at == printed.npos || (at > 0 && printed[at - 1] != '\n')) return "";
  const std::string line(printed.substr(at, printed.find('\n', at) - at));
  // A kernel can print such a line too. What is taken from it are words, and nothing else.
  std::string found;
  static const RE2 call("( in [a-z_]{1,32} of [A-Za-z0-9_]{1,64})(?:,|$)");
  return RE2::PartialMatch(line, call, &found) ? found : "";
}

KernelCall::KernelCall(const char* call, const char* kernel) : call_(g_call), kernel_(g_kernel) {
  g_kernel.store(kernel, std::memory_order_relaxed);
  g_call.store(call, std::memory_order_relaxed);
}

KernelCall::~KernelCall() {
  g_call.store(call_, std::memory_order_relaxed);
  g_kernel.store(kernel_, std::memory_order_relaxed);
}

}  // namespace attnbench
