// Ctrl-C in the middle of a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using ::testing::HasSubstr;

/// Twenty cases that take 0.3 s each on the kernel `slow`.
constexpr const char* kLong =
    "name: long\nsweeps: [{batch: q5, heads: 2, head_dim: 8, gap_tokens: "
    "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]}]\n";

class CliStop : public ::testing::TestWithParam<int> {};

TEST_P(CliStop, LeavesAValidPartialReport) {
  const Scratch scratch;
  const std::string file = scratch.write("long.yaml", kLong);
  Running run(scratch, ATTNBENCH_FAULTY,
              {"run", file, "--device", "cpu", "--kernel", "slow", "--no-time", "-v", "--out", "out",
               "--format", "json,csv,junit"});
  ASSERT_TRUE(run.wait_for_stderr("[3/20]", 60));
  run.signal(GetParam());
  const Outcome o = run.wait();
  EXPECT_NE(o.exit_code, 0);
  EXPECT_THAT(o.err, HasSubstr("stopping after the case in hand (at most 120 s); once more stops at once\n"));
  EXPECT_THAT(o.err, HasSubstr("interrupted"));
  const auto results = read_json(scratch.dir() / "out" / "results.json");
  EXPECT_EQ(results["context"]["attnbench"]["complete"], false);
  EXPECT_EQ(results["context"]["attnbench"]["planned"], 20);
  const std::size_t done = results["benchmarks"].size();
  EXPECT_GE(done, 2u);
  EXPECT_LT(done, 20u);
  for (const auto& entry : results["benchmarks"]) EXPECT_EQ(entry["attnbench"]["status"], "pass");
  EXPECT_TRUE(std::filesystem::exists(scratch.dir() / "out" / "junit.xml"));
  const std::string journal = read_text(scratch.dir() / "out" / "journal.jsonl");
  EXPECT_EQ(static_cast<std::size_t>(std::count(journal.begin(), journal.end(), '\n')), done);
}

INSTANTIATE_TEST_SUITE_P(, CliStop, ::testing::Values(SIGINT, SIGTERM, SIGHUP), [](const auto& p) {
  return p.param == SIGINT ? "CtrlC" : p.param == SIGTERM ? "Terminate" : "HangUp";
});

TEST(CliStopInTheLastCase, LeavesNothingToResume) {
  const Scratch scratch;
  Running run(scratch, ATTNBENCH_FAULTY,
              {"run", "--case", "{batch: q5, heads: 2, head_dim: 8}", "--device", "cpu", "--kernel", "slow",
               "--no-time", "-v", "--timeout", "60", "--out", "out"});
  ASSERT_TRUE(run.wait_for_stderr("[1/1]", 60));
  run.signal(SIGINT);
  const Outcome o = run.wait();
  EXPECT_EQ(o.exit_code, 130);
  EXPECT_THAT(o.err, HasSubstr("(at most 60 s)"));
  EXPECT_THAT(o.err, HasSubstr("interrupted in the last run: all runs are in the reports"));
  EXPECT_THAT(o.err, ::testing::Not(HasSubstr("to go on")));
  EXPECT_EQ(read_json(scratch.dir() / "out" / "results.json")["context"]["attnbench"]["complete"], true);
}

TEST(CliNohup, GoesOnWithoutItsTerminal) {
  const Scratch scratch;
  const std::string file = scratch.write(
      "four.yaml", "name: four\nsweeps: [{batch: q5, heads: 2, head_dim: 8, gap_tokens: [0, 1, 2, 3]}]\n");
  const auto before = std::signal(SIGHUP, SIG_IGN);  // as nohup does
  Running run(scratch, ATTNBENCH_FAULTY,
              {"run", file, "--device", "cpu", "--kernel", "slow", "--no-time", "-v", "--out", "out"});
  std::signal(SIGHUP, before);
  ASSERT_TRUE(run.wait_for_stderr("[2/4]", 60));
  run.signal(SIGHUP);
  EXPECT_EQ(run.wait().exit_code, 0);
}

TEST(CliKilled, ReportAndJournalStayReadable) {
  const Scratch scratch;
  const std::string file = scratch.write("long.yaml", kLong);
  Running run(scratch, ATTNBENCH_FAULTY,
              {"run", file, "--device", "cpu", "--kernel", "slow", "--no-time", "-v", "--out", "out"});
  ASSERT_TRUE(run.wait_for_stderr("[3/20]", 60));
  run.signal(SIGKILL);
  EXPECT_EQ(run.wait().exit_code, 128 + SIGKILL);
  EXPECT_EQ(read_json(scratch.dir() / "out" / "results.json")["context"]["attnbench"]["complete"], false);
  std::istringstream journal(read_text(scratch.dir() / "out" / "journal.jsonl"));
  int whole = 0;
  for (std::string line; std::getline(journal, line); ++whole) {
    EXPECT_FALSE(nlohmann::json::parse(line, nullptr, false).is_discarded());
  }
  EXPECT_GE(whole, 2);
}

}  // namespace
}  // namespace attnbench::testing
