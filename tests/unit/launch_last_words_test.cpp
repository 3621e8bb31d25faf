// What a process prints when a kernel ends or stops it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "harness/device/sanitized.h"
#include "harness/launch/last_words.h"

namespace attnbench {
namespace {

using testing::ExitedWithCode;
using testing::KilledBySignal;

void prepare(AfterLastWords after) {
  tell_crashes(after);
  set_in_hand("case a\nb");
  set_advice("the journal is kept");
}

TEST(LastWordsDeathTest, NameTheCallTheCaseAndTheMend) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer tells";
  const KernelCall outer("launch", "decorated");
  const auto crash = [](int signal, AfterLastWords after) {
    prepare(after);
    const KernelCall inner("plan", "mine");
    std::raise(signal);
  };
  EXPECT_EXIT(
      crash(SIGSEGV, AfterLastWords::kExitCode), ExitedWithCode(kCrashExitCode),
      "\nattnbench: error: signal 11 .Segmentation fault. in plan of mine, case a b; the journal is kept\n");
  EXPECT_EXIT(crash(SIGFPE, AfterLastWords::kExitCode), ExitedWithCode(kCrashExitCode), "signal 8 .Floating");
  EXPECT_EXIT(crash(SIGABRT, AfterLastWords::kSignal), KilledBySignal(SIGABRT), "signal 6 .Aborted. in plan");
  EXPECT_EXIT(
      {
        prepare(AfterLastWords::kExitCode);
        { const KernelCall over("plan", "mine"); }
        std::raise(SIGBUS);
      },
      ExitedWithCode(kCrashExitCode), "in launch of decorated, case a b");
  EXPECT_EXIT(
      {
        prepare(AfterLastWords::kExitCode);
        tell_no_crashes();
        std::raise(SIGILL);
      },
      KilledBySignal(SIGILL), "^$");
}

TEST(LastWordsDeathTest, AnExitIsAnErrorOnlyWithinAKernel) {
  if (kSanitized) GTEST_SKIP() << "not told with a sanitizer";
  const auto leave = [](bool within) {
    prepare(AfterLastWords::kExitCode);
    if (!within) std::exit(0);
    const KernelCall in_hand("supports", "mine");
    std::exit(0);
  };
  EXPECT_EXIT(leave(false), ExitedWithCode(0), "^$");
  EXPECT_EXIT(leave(true), ExitedWithCode(kCrashExitCode), "ended by exit.. in supports of mine, case a b");
}

TEST(LastWordsDeathTest, ALongTextIsCut) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer tells";
  EXPECT_EXIT(
      {
        prepare(AfterLastWords::kExitCode);
        set_in_hand(std::string(100000, 'x'));
        std::raise(SIGSEGV);
      },
      ExitedWithCode(kCrashExitCode), "in x{2048}; the journal");
}

TEST(LastWordsDeathTest, AHangIsToldOf) {
  EXPECT_EXIT(
      {
        tell_hangs(1);
        set_in_hand("case a");
        const KernelCall in_hand("launch", "mine");
        for (int i = 0; i < 2; ++i) pause();
        _exit(0);
      },
      ExitedWithCode(0), "note: 1 s and no end in launch of mine, case a; Ctrl-C.*note: 2 s and no end");
}

}  // namespace
}  // namespace attnbench
