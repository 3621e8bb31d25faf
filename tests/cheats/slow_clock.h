// Clocks of this process that a cheat can stop. For libraries other than the caller's.
#pragma once

#include <sys/syscall.h>

#include <atomic>
#include <cstdint>
#include <ctime>
#include <mutex>

#include "tests/cheats/got.h"

namespace attnbench::cheats {

inline std::atomic<int64_t> hidden_ns = 0;

inline int64_t real_ns(clockid_t clock) {
  timespec t{};
  syscall(SYS_clock_gettime, clock, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

inline int slow_clock_gettime(clockid_t clock, timespec* t) {
  const int64_t ns = real_ns(clock) - hidden_ns;
  *t = {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
  return 0;
}

inline int64_t slow_steady_now() { return real_ns(CLOCK_MONOTONIC) - hidden_ns; }

inline void replace_clocks() {
  static std::once_flag once;
  std::call_once(once, [] {
    replace_function("clock_gettime", reinterpret_cast<void*>(slow_clock_gettime));
    replace_function("_ZNSt6chrono3_V212steady_clock3nowEv", reinterpret_cast<void*>(slow_steady_now));
  });
}

}  // namespace attnbench::cheats
