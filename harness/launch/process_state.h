// What a kernel's functions must leave as they found it: state of the thread and the process that the reference,
// the harness and later kernels share.
#pragma once

#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <string>

namespace attnbench {

/// The floating-point control registers of a thread: rounding mode, flush to zero, traps. Without the sticky flags.
struct FloatControl {
  uint64_t vector = 0;  ///< MXCSR, FPCR
  uint64_t x87 = 0;     ///< control word of long double

  static FloatControl now();
  void restore() const;
  bool operator==(const FloatControl&) const = default;
};

/// The state when this was made. Whatever happens, the destructor gives the thread its floating-point control back.
class StateBefore {
 public:
  /// kFloat: only the thread's floating-point control, which takes nanoseconds: for timed launches. kThread: and the
  /// state of the process. kTeam: and the floating-point control of the OpenMP threads, which harness and kernels share.
  enum class Scope { kFloat, kThread, kTeam };

  explicit StateBefore(Scope scope);
  ~StateBefore() { float_.restore(); }
  StateBefore(const StateBefore&) = delete;
  StateBefore& operator=(const StateBefore&) = delete;

  /// Restores what has changed, and names it: "the rounding mode (downward), umask"; empty if nothing has.
  std::string restored() const;

 private:
  static constexpr std::array kLimits = {RLIMIT_AS, RLIMIT_DATA, RLIMIT_NOFILE, RLIMIT_FSIZE, RLIMIT_STACK};

  Scope scope_;
  FloatControl float_ = FloatControl::now();
  mode_t umask_ = 0;
  int team_ = 0;
  std::string locale_, folder_;
  sigset_t signals_{};
  std::array<rlimit, kLimits.size()> limits_{};
};

}  // namespace attnbench
