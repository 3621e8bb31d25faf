#include "harness/launch/process_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <clocale>
#include <filesystem>
#include <vector>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace attnbench {
namespace {

#if defined(__x86_64__)
constexpr uint64_t kSticky = 0x3f, kFlush = 0x8040, kTraps = 0x1f80;  ///< bits of MXCSR
constexpr int kModeShift = 13;
constexpr const char* kModes[] = {"to nearest", "downward", "upward", "towards zero"};
#elif defined(__aarch64__)
constexpr uint64_t kSticky = 0, kFlush = 1u << 24, kTraps = 0x9f00;  ///< bits of FPCR
constexpr int kModeShift = 22;
constexpr const char* kModes[] = {"to nearest", "upward", "downward", "towards zero"};
#else
#error "the floating-point control of this processor is not known here"
#endif

/// "the rounding mode (downward), flush to zero".
void name_changes(const FloatControl& before, const FloatControl& now, const std::string& where,
                  std::vector<std::string>& changed) {
  const uint64_t other = before.vector ^ now.vector;
  const auto add = [&](const std::string& what) { changed.push_back(what + where); };
  if ((other & ~(kFlush | kTraps)) != 0) {
    add(fmt::format("the rounding mode (now {})", kModes[now.vector >> kModeShift & 3]));
  }
  if ((other & kFlush) != 0) add("flush to zero");
  if ((other & kTraps) != 0) add("floating-point traps");
  if (other == 0 && before.x87 != now.x87) add("the x87 control word");
}

std::string folder_now() {
  std::error_code ec;
  return std::filesystem::current_path(ec).string();
}

mode_t umask_now() {
  const mode_t mask = umask(077);
  umask(mask);
  return mask;
}

}  // namespace

FloatControl FloatControl::now() {
  FloatControl c;
#if defined(__x86_64__)
  uint16_t word = 0;
  asm volatile("fnstcw %0" : "=m"(word));
  c = {_mm_getcsr() & ~kSticky, word};
#elif defined(__aarch64__)
  asm volatile("mrs %0, fpcr" : "=r"(c.vector));
#endif
  return c;
}

void FloatControl::restore() const {
  if (*this == now()) return;
#if defined(__x86_64__)
  const auto word = static_cast<uint16_t>(x87);
  asm volatile("fnclex\n\tfldcw %0" ::"m"(word));
  _mm_setcsr(static_cast<unsigned>(vector));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" ::"r"(vector));
#endif
}

StateBefore::StateBefore(Scope scope) : scope_(scope) {
  if (scope == Scope::kFloat) return;
  umask_ = umask_now();
  team_ = omp_get_max_threads();
  locale_ = std::setlocale(LC_ALL, nullptr);
  folder_ = folder_now();
  pthread_sigmask(SIG_SETMASK, nullptr, &signals_);
  for (std::size_t i = 0; i < kLimits.size(); ++i) getrlimit(kLimits[i], &limits_[i]);
}

std::string StateBefore::restored() const {
  std::vector<std::string> changed;
  if (const FloatControl now = FloatControl::now(); now != float_) {
    name_changes(float_, now, "", changed);
    float_.restore();
  }
  if (scope_ == Scope::kFloat) return fmt::format("{}", fmt::join(changed, ", "));
  const auto look = [&](bool differs, const char* what, const auto& restore) {
    if (!differs) return;
    changed.emplace_back(what);
    restore();
  };
  look(umask_now() != umask_, "umask", [&] { umask(umask_); });
  if (omp_get_max_threads() != team_)
    omp_set_num_threads(team_);  // libraries do so: no verdict depends on it
  look(locale_ != std::setlocale(LC_ALL, nullptr), "the locale",
       [&] { std::setlocale(LC_ALL, locale_.c_str()); });
  look(folder_now() != folder_, "the working folder", [&] {
    std::error_code ec;
    std::filesystem::current_path(folder_, ec);
  });
  sigset_t signals;
  pthread_sigmask(SIG_SETMASK, nullptr, &signals);
  bool blocked = false;
  for (int s = 1; s < SIGRTMIN; ++s)
    blocked = blocked || sigismember(&signals, s) != sigismember(&signals_, s);
  look(blocked, "the mask of signals", [&] { pthread_sigmask(SIG_SETMASK, &signals_, nullptr); });
  bool lower = false;
  for (std::size_t i = 0; i < kLimits.size(); ++i) {
    rlimit now{};
    getrlimit(kLimits[i], &now);
    if (now.rlim_cur >= limits_[i].rlim_cur) continue;  // a library may open more files
    lower = true;
    now.rlim_cur = std::min(limits_[i].rlim_cur, now.rlim_max);
    setrlimit(kLimits[i], &now);
  }
  look(lower, "a limit of the process (setrlimit)", [] {});
  if (scope_ == Scope::kTeam) {
    std::atomic<bool> found = false;
    FloatControl other;
#pragma omp parallel num_threads(team_)
    if (const FloatControl now = FloatControl::now(); now != float_) {
      if (!found.exchange(true)) other = now;
      float_.restore();
    }
    if (found) name_changes(float_, other, " of OpenMP threads", changed);
  }
  return fmt::format("{}", fmt::join(changed, ", "));
}

}  // namespace attnbench
