// Plug-ins that end, hang or print as they are opened, or hang as they are closed. The supervisor opens none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "harness/device/sanitized.h"
#include "tests/cli/program.h"
#include "tests/cli/python.h"

namespace attnbench::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kEnds = ATTNBENCH_PLUGIN_DIR "/ends.so";
constexpr const char* kOpenedCase = "{batch: q5, heads: 2, head_dim: 8}";
constexpr const char* kOtherExitCode = "ThreadSanitizer makes code 66 of an exit within dlopen";

/// Runs with the plug-in that does `what` (tests/plugins/ends.cpp).
Outcome run_ending(const Scratch& scratch, const std::string& what, std::vector<std::string> args) {
  setenv("ATTNBENCH_TEST_END", what.c_str(), 1);
  args.insert(args.end(), {"--plugin", kEnds});
  Outcome o = run_attnbench(scratch, args);
  unsetenv("ATTNBENCH_TEST_END");
  return o;
}

std::vector<std::string> run_words(std::vector<std::string> more) {
  std::vector<std::string> args = {"run",     "--case",    kOpenedCase, "--device", "cpu", "--kernel",
                                   "example", "--no-time", "-q",        "--out",    "out"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

/// Every command that takes plug-ins.
std::vector<std::vector<std::string>> commands() {
  return {run_words({}),
          run_words({"--in-process"}),
          {"gate", "--case", kOpenedCase, "--device", "cpu", "--against-plugin", kEnds, "--no-time", "--out",
           "g"},
          {"selftest", "--device", "cpu"},
          {"selftest", "--device", "cpu", "--sensitivity"},
          {"kernels"},
          {"list", "--case", kOpenedCase, "--kernel", "example"},
          {"fuzz", "--device", "cpu", "--cases", "1"},
          {"profile", "--case", kOpenedCase, "--device", "cpu"}};
}

TEST(CliOpening, AnExitWithCodeZeroIsAnErrorOfEveryCommand) {
  if (kThreadSanitized) GTEST_SKIP() << kOtherExitCode;
  for (const auto& command : commands()) {
    const Scratch scratch;
    const Outcome o = run_ending(scratch, "opening leave", command);
    EXPECT_EQ(o.exit_code, 5) << command[0] << o.err;
    EXPECT_EQ(o.err,
              "attnbench " + command[0] + ": error: --plugin " + kEnds +
                  ": opening it, which runs its static initialisers, ended the process with exit code 0\n");
  }
}

TEST(CliOpening, TheSupervisorOpensNone) {
  const Scratch scratch;
  EXPECT_EQ(run_ending(scratch, "commanding leave", run_words({})).exit_code, 0);
  EXPECT_EQ(read_records(scratch.dir() / "out").at(0)["status"], "pass");
  EXPECT_THAT(run_ending(scratch, "commanding leave", {"kernels"}).out, HasSubstr("\nattention "));
  EXPECT_EQ(run_ending(scratch, "commanding leave",
                       {"selftest", "--device", "cpu", "--kernel", "example", "--seeds", "1", "--filter",
                        "^mask/causal", "-q", "--out", "s"})
                .exit_code,
            0);
  EXPECT_TRUE(std::filesystem::exists(scratch.dir() / "s" / "selftest.json"));
}

TEST(CliOpening, ACommandThatCallsKernelsIsAChildWhoseEndIsTold) {
  if (kThreadSanitized) GTEST_SKIP() << kOtherExitCode;
  for (const auto& command : std::vector<std::vector<std::string>>{
           {"list", "--case", kOpenedCase, "--kernel", "example"},
           {"selftest", "--device", "cpu", "--sensitivity", "--kernel", "example", "--contexts", "512"}}) {
    const Scratch scratch;
    const Outcome o = run_ending(scratch, "commanding leave", command);
    EXPECT_EQ(o.exit_code, 5) << command[0] << o.out << o.err;
    EXPECT_THAT(
        o.err,
        HasSubstr(
            "error: the child that runs this command ended with exit code 0 before it was done; it opens --plugin " +
            kEnds + " when it starts\n"));
  }
}

TEST(CliOpening, AWorkerThatItEndsNamesIt) {
  if (kThreadSanitized) GTEST_SKIP() << kOtherExitCode;
  for (const auto& command :
       {run_words({}), std::vector<std::string>{"selftest", "--device", "cpu", "--kernel", "example"}}) {
    const Scratch scratch;
    const Outcome o = run_ending(scratch, "loading leave", command);
    EXPECT_EQ(o.exit_code, 5) << o.err;
    EXPECT_THAT(o.err, HasSubstr("the worker process ended with exit code 0; it opens --plugin " + kEnds +
                                 " when it starts"));
  }
}

TEST(CliOpening, AHangEndsAtTheTimeout) {
  for (const auto& command : commands()) {
    std::vector<std::string> args = command;
    args.insert(args.end(), {"--timeout", "0.5"});
    const Scratch scratch;
    const Outcome o = run_ending(scratch, "opening hang", args);
    EXPECT_EQ(o.exit_code, 5) << command[0];
    EXPECT_EQ(
        o.err,
        "attnbench " + command[0] + ": error: --plugin " + kEnds +
            ": opening it, which runs its static initialisers, did not end within 0.5 s; mend what hangs "
            "there, or wait longer by --timeout S\n");
  }
}

TEST(CliOpening, ASignalEndsTheProgramAndAllThatItOpens) {
  const Scratch scratch;
  const char* pid = "/dev/shm/attnbench_opening_pid";  // what is opened writes in few folders
  setenv("ATTNBENCH_TEST_END", "opening orphan", 1);
  setenv("ATTNBENCH_TEST_PID", pid, 1);
  Running run(scratch, ATTNBENCH_PROGRAM, {"kernels", "--plugin", kEnds});
  unsetenv("ATTNBENCH_TEST_END");
  unsetenv("ATTNBENCH_TEST_PID");
  EXPECT_TRUE(run.wait_for_stderr("still opening " + kEnds + " (limit 60 s) ...\n", 60));
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait().exit_code, 128 + SIGTERM);
  const std::string text = read_text(pid);
  std::filesystem::remove(pid);
  const std::string stat = "/proc/" + text.substr(0, text.find('\n')) + "/stat";
  const auto lives = [&] { return read_text(stat).find(") S ") != std::string::npos; };
  for (int i = 0; i < 3000 && lives(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_FALSE(text.empty());
  EXPECT_FALSE(lives());
}

TEST(CliOpening, WhatItPrintsIsCutAndHasNoEscapes) {
  const Scratch scratch;
  Outcome o = run_ending(scratch, "opening print", {"kernels"});
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_LT(o.err.size(), 100'000u);
  EXPECT_THAT(o.err, HasSubstr(" bytes are left out ..."));
  o = run_ending(scratch, "opening steer", {"kernels"});
  EXPECT_THAT(o.err, AllOf(HasSubstr("A\\x1b[2J"), Not(HasSubstr("\033"))));
}

TEST(CliOpening, StaticDestructorsThatHangHoldNoFinishedRun) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--in-process"}}) {
    const Scratch scratch;
    const Outcome o = run_ending(scratch, "closing hang", run_words(more));
    EXPECT_EQ(o.exit_code, 0) << o.err;
    EXPECT_THAT(o.out, AllOf(HasSubstr("1 passed"), HasSubstr("report: out/results.json")));
    EXPECT_EQ(read_records(scratch.dir() / "out").size(), 1u);
    if (!more.empty()) {
      EXPECT_THAT(o.err, HasSubstr("note: no end in the static destructors for 3 s; the process ends"));
    }
  }
}

TEST(CliOpening, OneSignalEndsAHangOfStaticDestructors) {
  const Scratch scratch;
  setenv("ATTNBENCH_TEST_END", "closing hang", 1);
  Running run(scratch, ATTNBENCH_PROGRAM, run_words({"--in-process", "--plugin", kEnds}));
  unsetenv("ATTNBENCH_TEST_END");
  EXPECT_TRUE(run.wait_for_stderr("closing\n", 60));
  run.signal(SIGTERM);
  const Outcome o = run.wait();
  EXPECT_EQ(o.exit_code, 128 + SIGTERM) << o.err;
  EXPECT_THAT(o.out, HasSubstr("report: out/results.json"));
}

using CliOpeningPython = PythonTest;

TEST_F(CliOpeningPython, AHangEndsAtTheTimeout) {
  const std::string file = scratch.write("slow.py", "import time\ntime.sleep(1000)\n");
  for (const std::string command : {"run", "list"}) {
    const Outcome o =
        run_attnbench(scratch, {command, "--case", kPythonCase, "--plugin", file, "--timeout", "2.5"});
    EXPECT_EQ(o.exit_code, 5);
    EXPECT_THAT(
        o.err,
        AllOf(
            HasSubstr("still opening " + file + " (limit 2.5 s) ...\n"), HasSubstr("attnbench " + command),
            HasSubstr(": error: --plugin " + file), HasSubstr(": opening it, which runs its top level in /"),
            HasSubstr(", did not end within 2.5 s; mend what hangs there, or wait longer by --timeout S\n")));
  }
}

TEST_F(CliOpeningPython, TheDescriptionHasTheComputeCapability) {
  const std::string file = scratch.write("hopper.py",
                                         "import attnbench as ab\n"
                                         "@ab.attention('packed bf16', min_compute_capability=90)\n"
                                         "def mine(c):\n"
                                         "    \"\"\"does \x1b[2J nothing\"\"\"\n");
  EXPECT_THAT(run_attnbench(scratch, {"kernels", "--plugin", file}).out,
              HasSubstr("mine (attention, cuda sm_90+): does \\x1b[2J nothing\n"));
}

}  // namespace
}  // namespace attnbench::testing
