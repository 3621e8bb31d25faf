// A sweep that names a trace of requests, as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kTraceSweep = R"(name: t
defaults: {kv: paged, heads: 2, head_dim: 8}
sweeps:
  - batch: {serving: {trace: traces/my.csv, step: {spread: 4}, steps: 12, warmup: 2, max_sequences: 3, skip_bad: true}}
)";

/// A sweep in the folder `sub`, its trace in `sub/traces`. Line 3 of the trace is wrong.
std::string write_sweep(const Scratch& scratch, int first_prompt = 40) {
  std::filesystem::create_directories(scratch.dir() / "sub" / "traces");
  std::string text = "arrival,prompt,output,prefix\n0," + std::to_string(first_prompt) + ",6,1:16\n0,5,-5,\n";
  for (int i = 0; i < 9; ++i) text += "0.1,50,6,1:16\n";
  scratch.write("sub/traces/my.csv", text);
  return scratch.write("sub/t.yaml", kTraceSweep);
}

Outcome run_sweep(const Scratch& scratch, const std::string& sweep, const std::string& out) {
  return run_attnbench(scratch, {"run", sweep, "--device", "cpu", "--no-time", "--out", out});
}

TEST(CliServedTrace, WorkersRunItsStepsAndTheReproducingLineRepeatsOne) {
  const Scratch scratch;
  write_sweep(scratch);
  const Outcome o = run_sweep(scratch, "sub/t.yaml", "out");
  ASSERT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.err,
              HasSubstr("sub/t.yaml:4:12: note: 1 line skipped; the first: sub/traces/my.csv:3:5: error"));
  const auto records = read_records(scratch.dir() / "out");
  ASSERT_EQ(records.size(), 4u);
  for (const auto& record : records) {
    EXPECT_EQ(record["status"], "pass");
    EXPECT_EQ(record["params"]["served"]["trace"], "sub/traces/my.csv");
  }
  const auto repeat = [&](const std::string& out) {
    std::vector<std::string> words = shell_words(records[0]["repro"]);
    words.erase(words.begin());
    words.insert(words.end(), {"--out", out});
    const Outcome again = run_attnbench(scratch, words);
    EXPECT_EQ(again.exit_code, 0) << again.err;
    return read_records(scratch.dir() / out).at(0)["id"].get<std::string>();
  };
  std::string id = records[0]["id"];
  id.erase(id.find("x4-step"), 2);  // it is no part of a sample
  EXPECT_EQ(repeat("again"), id);
  write_sweep(scratch, 41);
  EXPECT_NE(repeat("changed"), id);
}

TEST(CliServedTrace, IdsAndShardsDoNotDependOnTheFolder) {
  const Scratch scratch;
  const std::string sweep = write_sweep(scratch);
  const auto list = [&](const std::string& from, const std::string& file) {
    const std::string line = "cd '" + from + "' && " + ATTNBENCH_PROGRAM + " list '" + file + "'";
    const Outcome o = Running(scratch, "/bin/sh", {"-c", line}).wait();
    EXPECT_EQ(o.exit_code, 0) << o.err;
    return o.out;
  };
  const std::string here = list(".", "sub/t.yaml");
  EXPECT_THAT(here, HasSubstr("/my-"));
  EXPECT_EQ(list("sub/traces", "../t.yaml"), here);
  EXPECT_EQ(list("/", sweep), here);
  for (const char* shard : {"1/2", "2/2"}) {
    const Outcome o = run_attnbench(scratch, {"run", "sub/t.yaml", "--device", "cpu", "--no-time", "--shard",
                                              shard, "--out", std::string("shard") + shard[0]});
    EXPECT_EQ(o.exit_code, 0) << o.err;
  }
  const Outcome merged = run_attnbench(scratch, {"merge", "shard1", "shard2", "--out", "merged"});
  EXPECT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_EQ(read_records(scratch.dir() / "merged").size(), 4u);
}

TEST(CliServedTrace, PathsOfACaseAndOfSetBeginAtTheCurrentFolder) {
  const Scratch scratch;
  const std::string sweep = write_sweep(scratch);
  const std::string server = "steps: 12, warmup: 2, max_sequences: 3, skip_bad: true, step: 3}}";
  EXPECT_EQ(run_attnbench(scratch,
                          {"list", "--case", "{batch: {serving: {trace: sub/traces/my.csv, " + server + "}"})
                .exit_code,
            0);
  EXPECT_EQ(
      run_attnbench(scratch, {"list", sweep, "--set", "batch={serving: {trace: sub/traces/my.csv, " + server})
          .exit_code,
      0);
  const Outcome missing =
      run_attnbench(scratch, {"list", sweep, "--set", "batch={serving: {trace: traces/my.csv, " + server});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("cannot read traces/my.csv: No such file"));
}

TEST(CliServedTrace, AMistakeInTheFileIsAnErrorOfTheCall) {
  const Scratch scratch;
  write_sweep(scratch);
  const Outcome bad = run_attnbench(
      scratch,
      {"list", "--case", "{batch: {serving: {trace: sub/traces/my.csv, steps: 12, warmup: 2, step: 3}}}"});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, AllOf(StartsWith("sub/traces/my.csv:3:5: error: output is negative"),
                             HasSubstr("named in --case:1:9")));
}

}  // namespace
}  // namespace attnbench::testing
