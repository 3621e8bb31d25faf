// Children that open a plug-in: their answer, and how they end.
#include "harness/launch/opening_child.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "harness/launch/description.h"
#include "harness/launch/plugin.h"
#include "tests/unit/temp_folder.h"

namespace attnbench {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct Opened {
  std::string answer, error, printed;
};

/// `printed`: what this process wrote to stderr.
Opened open_by(const std::function<void(int)>& open, double limit_s = 60) {
  Opened o;
  testing::internal::CaptureStderr();
  try {
    o.answer = answer_of_child({"/mine.so", "its tests", limit_s, open});
  } catch (const LoadCrash& e) {
    o.error = e.what();
  }
  o.printed = testing::internal::GetCapturedStderr();
  return o;
}

/// Whether the process goes on; one that nobody reaps has ended.
bool lives(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string word, state;
  return in >> word >> word >> state && state != "Z" && state != "X";
}

/// Waits for a file with a number, and returns it.
pid_t pid_in(const std::filesystem::path& file) {
  for (int i = 0; i < 6000; ++i) {
    std::string text;
    if (std::getline(std::ifstream(file), text)) return std::stoi(text);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return -1;
}

bool ends_soon(pid_t pid) {
  for (int i = 0; i < 3000 && lives(pid); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return !lives(pid);
}

[[noreturn]] void hang() {
  for (;;) pause();
}

TEST(RunOpeningChild, ALongAnswerArrivesWhole) {
  const std::string text(1 << 20, 'x');
  EXPECT_EQ(open_by([&](int fd) { write_answer(fd, text); }).answer, text);
}

TEST(RunOpeningChild, OneThatEndsWithoutAnAnswerIsACrash) {
  EXPECT_EQ(open_by([](int) { _exit(0); }).error,
            "opening it, which runs its tests, ended the process with exit code 0");
  EXPECT_EQ(open_by([](int) { std::raise(SIGKILL); }).error,
            "opening it, which runs its tests, ended the process by signal 9 (Killed)");
  EXPECT_THAT(open_by([](int) { throw std::runtime_error("x"); }).error,
              HasSubstr("by signal 6 (Aborted); what it printed"));
}

TEST(RunOpeningChild, AHangEndsAtTheLimitWithAllThatItStarted) {
  const test::TempFolder folder;
  const auto file = folder.path() / "pid";
  const Opened o = open_by(
      [&](int) {
        if (fork() == 0) std::ofstream(file) << getpid() << std::endl;
        hang();
      },
      0.5);
  EXPECT_EQ(
      o.error,
      "opening it, which runs its tests, did not end within 0.5 s; mend what hangs there, or wait longer by "
      "--timeout S");
  EXPECT_TRUE(ends_soon(pid_in(file)));
}

TEST(RunOpeningChild, AHelperThatKeepsThePipeIsNotWaitedFor) {
  const test::TempFolder folder;
  const auto file = folder.path() / "pid";
  const Opened o = open_by([&](int fd) {
    if (fork() == 0) {
      std::ofstream(file) << getpid() << std::endl;
      hang();
    }
    pid_in(file);
    write_answer(fd, "well");
  });
  EXPECT_EQ(o.answer, "well");
  EXPECT_TRUE(ends_soon(pid_in(file)));
}

TEST(RunOpeningChild, AfterTwoSecondsItSaysWhatItWaitsFor) {
  const Opened o = open_by([](int) { hang(); }, 2.5);
  EXPECT_EQ(o.printed, "still opening /mine.so (limit 2.5 s) ...\n");
}

TEST(RunOpeningChild, WhatItPrintsIsCut) {
  const Opened o = open_by([](int fd) {
    const std::string line(1000, 'x');
    write_answer(STDERR_FILENO, "begin\n");
    for (int i = 0; i < 1000; ++i) write_answer(STDERR_FILENO, line);
    write_answer(STDERR_FILENO, "\nlast line");
    write_answer(STDOUT_FILENO, "not shown");
    write_answer(fd, "well");
  });
  EXPECT_EQ(o.answer, "well");
  EXPECT_LT(o.printed.size(), 20'000u);
  EXPECT_THAT(o.printed, AllOf(StartsWith("begin\nxxx"), HasSubstr(" bytes are left out ..."),
                               HasSubstr("\nlast line\n"), Not(HasSubstr("not shown"))));
}

/// Ends a process in which a child opens something, by a signal. Both must end.
TEST(RunOpeningChild, ItEndsWithThisProcess) {
  for (const int signal : {SIGINT, SIGTERM, SIGKILL}) {
    const test::TempFolder folder;
    const auto file = folder.path() / "pid";
    const pid_t parent = fork();
    if (parent == 0) {
      answer_of_child({"/mine.so", "its tests", 60, [&](int) {
                         std::ofstream(file) << getpid() << std::endl;
                         hang();
                       }});
      _exit(0);
    }
    const pid_t child = pid_in(file);
    kill(parent, signal);
    int status = 0;
    waitpid(parent, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status)) << status;
    EXPECT_EQ(WTERMSIG(status), signal);
    EXPECT_TRUE(ends_soon(child)) << signal;
  }
}

TEST(RunOpeningChild, ADescriptionHasAllThatIsListedAndItsCallbacksThrow) {
  Kernel k{
      .abi_version = kKernelAbiVersion,
      .flags = kDeterministic,
      .name = "mine",
      .summary = "caf\xe9",  // not UTF-8
      .shapes = "any",
      .op = Op::kKvAppend,
      .device = DeviceKind::kCuda,
      .min_compute_capability = 90,
      .features = kPagedKv,
      .supports = [](const OpParams*, const LaunchContext*, KernelMessage*) { return KernelStatus::kOk; },
      .numerics = [](const OpParams*) { return Numerics{}; },
      .instances = "a b"};
  k.launch = k.supports;
  const LoadedPlugin plugin{"/mine.so", "0123", {&k}, {}, true};
  const LoadedPlugin told = described_by_child(
      {"/mine.so", "its tests", 60, [&](int fd) { write_answer(fd, description_of(plugin)); }});
  EXPECT_EQ(told.path, "/mine.so");
  EXPECT_EQ(told.digest, "0123");
  EXPECT_TRUE(told.flushed);
  ASSERT_EQ(told.kernels.size(), 1u);
  const Kernel& t = *told.kernels[0];
  EXPECT_STREQ(t.name, "mine");
  EXPECT_STREQ(t.summary, "caf\xef\xbf\xbd");
  EXPECT_STREQ(t.shapes, "any");
  EXPECT_STREQ(t.instances, "a b");
  EXPECT_EQ(t.flags, kDeterministic);
  EXPECT_EQ(t.op, Op::kKvAppend);
  EXPECT_EQ(t.device, DeviceKind::kCuda);
  EXPECT_EQ(t.min_compute_capability, 90);
  EXPECT_EQ(t.features, kPagedKv);
  EXPECT_THROW(t.supports(nullptr, nullptr, nullptr), std::logic_error);
  EXPECT_THROW(t.launch(nullptr, nullptr, nullptr), std::logic_error);
  EXPECT_THROW(t.numerics(nullptr), std::logic_error);
}

TEST(RunOpeningChild, ADescriptionOfPythonHasVersions) {
  const char* text = R"({"digest": "0123", "versions": {"python": "3.11", "numpy": "2.0"}, "kernels": []})";
  const LoadedPlugin told =
      described_by_child({"/mine.py", "its tests", 60, [&](int fd) { write_answer(fd, text); }});
  using Versions = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(told.versions, (Versions{{"numpy", "2.0"}, {"python", "3.11"}}));
}

TEST(RunOpeningChild, AnErrorInPlaceOfADescriptionIsThrown) {
  const auto error_of = [](const std::string& answer) -> std::string {
    try {
      described_by_child({"/mine.so", "its tests", 60, [&](int fd) { write_answer(fd, answer); }});
    } catch (const PluginAbsent& e) {
      return std::string(e.what()) + ", absent: " + e.why();
    } catch (const PluginError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error_of(description_of(PluginError("no"))), "no");
  EXPECT_EQ(error_of(R"({"error": "no x", "absent": "install x"})"), "no x, absent: install x");
  EXPECT_THAT(error_of("{\"record\""), StartsWith("its description cannot be read: "));
  EXPECT_THAT(error_of(R"({"kernels": [{"name": "mine"}]})"), StartsWith("its description cannot be read: "));
}

}  // namespace
}  // namespace attnbench
