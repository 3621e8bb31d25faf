// The process in which kernels of the CPU run: what it cannot do to its judge, and what it leaves behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "harness/device/sanitized.h"
#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

struct Ran {
  Outcome outcome;
  json context;
  std::vector<json> records;
};

/// Runs the plug-in (tests/plugins/ends.cpp), which does `how`, on a case that it acts on and on one that it does not.
Ran run_while(const Scratch& scratch, const std::string& how, const std::vector<std::string>& more = {}) {
  setenv("ATTNBENCH_TEST_END", how.c_str(), 1);
  setenv("ATTNBENCH_TEST_PID", "/dev/shm/attnbench_runner_test", 1);
  const std::string plugin = std::string(ATTNBENCH_PLUGIN_DIR) + "/ends.so";
  Ran ran;
  std::vector<std::string> args = {"run",
                                   "--device",
                                   "cpu",
                                   "--plugin",
                                   plugin,
                                   "--kernel",
                                   "example",
                                   "--no-time",
                                   "-q",
                                   "--check",
                                   "sampled,invariants",
                                   "--out",
                                   "out",
                                   "--case",
                                   "{batch: q5s300, heads: 2, head_dim: 24}",
                                   "--case",
                                   "{batch: q5s300, heads: 2, head_dim: 16}"};
  args.insert(args.end(), more.begin(), more.end());
  ran.outcome = run_attnbench(scratch, args);
  unsetenv("ATTNBENCH_TEST_END");
  if (ran.outcome.exit_code == 5) return ran;  // one process, which has ended
  ran.records = read_records(scratch.dir() / "out");
  ran.context = read_json(scratch.dir() / "out" / "results.json")["context"]["attnbench"];
  return ran;
}

std::string confinement_of(const Ran& ran) { return ran.context["device"].value("confinement", ""); }

TEST(CliRunner, AWriteToAnInputIsSeenAndNamed) {
  const Scratch scratch;
  const Ran ran = run_while(scratch, "launch store");
  ASSERT_EQ(ran.records.size(), 2u);
  EXPECT_EQ(ran.records[0]["status"], "fail");
  EXPECT_THAT(
      ran.records[0].value("reason", ""),
      MatchesRegex("the kernel (wrote to|touched) byte 0 of row 0 of q \\(an input\\) in launch of example"));
  EXPECT_EQ(ran.records[0]["check"]["failed_by"], json{"input_digest"});
  EXPECT_EQ(ran.records[1]["status"], "pass");
}

TEST(CliRunner, MemoryBesideATensorIsNotThere) {
  const auto expect_fault = [](const std::string& how, const std::string& words) {
    const Scratch scratch;
    const Ran ran = run_while(scratch, "launch " + how);
    ASSERT_EQ(ran.records.size(), 2u);
    EXPECT_EQ(ran.records[0]["status"], "fail") << how;
    EXPECT_THAT(ran.records[0].value("reason", ""), MatchesRegex(words));
    EXPECT_EQ(ran.records[0]["check"]["failed_by"], json{"guard"});
    EXPECT_EQ(ran.records[1]["status"], "pass") << "and the rest of the run goes on";
  };
  expect_fault("past",
               "the kernel (read|touched) byte 0 of row 300 of k \\(it has 300 rows\\) in launch of example");
  expect_fault("lengths",
               "the kernel (read|touched) byte 8 of cu_seqlens_k \\(it has 8 bytes\\) in launch of example");
  expect_fault(
      "beyond",
      "the kernel (wrote to|touched) byte 0 of row 5 of out \\(it has 5 rows\\) in launch of example");
  expect_fault(
      "before",
      "the kernel (read|touched) 1 byte before the start of k in launch of example, during invariant .*");
}

TEST(CliRunner, AFaultOfALaunchThatLooksForACauseIsTold) {
  const Scratch scratch;
  const Ran ran = run_while(scratch, "launch later", {"--check", "sampled"});
  ASSERT_EQ(ran.records.size(), 2u);
  const std::string clues = ran.records[0]["check"]["clues"].dump();
  EXPECT_THAT(clues, ContainsRegex("launch[a-z ]* failed: the kernel (read|touched) byte 0 of row 300 of k"));
  EXPECT_EQ(ran.records[0]["check"]["failed_by"][0], "poison");
  EXPECT_EQ(ran.records[1]["status"], "pass");
}

TEST(CliRunner, InOneProcessADebuggerStopsThere) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer tells, in its own words";
  const Scratch scratch;
  const Outcome o = run_while(scratch, "launch past", {"--in-process"}).outcome;
  EXPECT_EQ(o.exit_code, 5);
  EXPECT_THAT(o.err, HasSubstr("signal 11 (Segmentation fault) in launch of example, case attention"));
  EXPECT_EQ(run_while(scratch, "launch no", {"--in-process"}).outcome.exit_code, 0);
}

TEST(CliRunner, ItWritesNoFilesOfTheUser) {
  const Scratch scratch;
  const Ran ran = run_while(scratch, "launch write");
  EXPECT_EQ(ran.context["device"]["trust"], "runner");
  if (confinement_of(ran).find("no landlock") != std::string::npos)
    GTEST_SKIP() << "the system has no Landlock";
  EXPECT_THAT(ran.outcome.err + ran.outcome.out, HasSubstr("refused"));
  EXPECT_FALSE(std::filesystem::exists(scratch.path("written_by_a_kernel")));
}

TEST(CliRunner, ItStaysWhereItIsStopped) {
  const Scratch scratch;
  const Ran ran = run_while(scratch, "launch free");
  if (confinement_of(ran).find("no seccomp") != std::string::npos)
    GTEST_SKIP() << "the system has no seccomp";
  EXPECT_THAT(ran.outcome.err + ran.outcome.out, HasSubstr("it is held"));
  const Outcome here = run_while(scratch, "launch free", {"--in-process"}).outcome;
  EXPECT_THAT(here.err + here.out, HasSubstr("it is free"));
}

TEST(CliRunner, NothingThatItStartsOutlivesTheRun) {
  const Scratch scratch;
  unlink("/dev/shm/attnbench_runner_test");
  const Ran ran = run_while(scratch, "launch daemon");
  for (const json& r : ran.records) EXPECT_EQ(r["status"], "pass") << r;
  pid_t pid = 0;
  std::ifstream("/dev/shm/attnbench_runner_test") >> pid;
  ASSERT_GT(pid, 0);
  EXPECT_NE(kill(pid, 0), 0) << pid;
  unlink("/dev/shm/attnbench_runner_test");
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::temp_directory_path()))
    EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("attnbench-" + std::to_string(pid))));
}

}  // namespace
}  // namespace attnbench::testing
