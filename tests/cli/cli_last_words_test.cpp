// A plug-in that ends or stops the process of `run --in-process` or `selftest`. The message names the call,
// case and fault, and earlier results are kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "harness/device/sanitized.h"
#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

const std::string kPlugin = std::string(ATTNBENCH_PLUGIN_DIR) + "/ends.so";
constexpr const char* kThree =
    "name: three\nsweeps: [{batch: q5, heads: 2, head_dim: [8, 24, 16], mask: causal}]\n";

/// Makes the plug-in end its process, for as long as this object lives (tests/plugins/ends.cpp).
struct Ends {
  explicit Ends(const std::string& how, const char* heads = nullptr) {
    setenv("ATTNBENCH_TEST_END", how.c_str(), 1);
    if (heads != nullptr) setenv("ATTNBENCH_TEST_HEADS", heads, 1);
  }
  ~Ends() {
    unsetenv("ATTNBENCH_TEST_END");
    unsetenv("ATTNBENCH_TEST_HEADS");
  }
};

std::vector<std::string> in_process(const Scratch& scratch) {
  return {"run",         scratch.write("three.yaml", kThree),
          "--device",    "cpu",
          "--plugin",    kPlugin,
          "--kernel",    "example",
          "--out",       "out",
          "--no-time",   "-v",
          "--in-process"};
}

TEST(CliLastWords, InProcessTheCallTheCaseAndTheMendAreNamed) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer tells, in its own words";
  for (const char* call : {"supports", "workspace_bytes", "plan", "launch", "numerics"}) {
    for (const auto& [way, words] :
         {std::pair("segv", "signal 11 (Segmentation fault)"), std::pair("abort", "signal 6 (Aborted)"),
          std::pair("overflow", "signal 11 (Segmentation fault)"),
          std::pair("exit", "the process was ended by exit()")}) {
      const Scratch scratch;
      const Ends ends(std::string(call) + " " + way);
      const Outcome o = run_attnbench(scratch, in_process(scratch));
      EXPECT_EQ(o.exit_code, 5) << call << " " << way << o.err;
      EXPECT_THAT(o.err,
                  HasSubstr(std::string("attnbench: error: ") + words + " in " + call +
                            " of example, case attention/packed/bf16/h2-2/d24/causal/q5, kernel example of " +
                            kPlugin +
                            "; finished cases are in out/journal.jsonl; --resume out continues; "
                            "without --in-process each case is isolated\n"));
      const std::string journal = read_text(scratch.dir() / "out" / "journal.jsonl");
      EXPECT_EQ(std::count(journal.begin(), journal.end(), '\n'), 1) << journal;
    }
  }
}

TEST(CliLastWords, WhatAKernelThrowsIsTheErrorOfItsCase) {
  for (const char* call : {"supports", "workspace_bytes", "plan", "launch", "numerics"}) {
    const Scratch scratch;
    const Ends ends(std::string(call) + " throw");
    EXPECT_EQ(run_attnbench(scratch, in_process(scratch)).exit_code, 5);
    const auto records = read_records(scratch.dir() / "out");
    ASSERT_EQ(records.size(), 3u) << call;
    EXPECT_EQ(records[1]["status"], "error") << call;
    EXPECT_EQ(records[1]["reason"],
              std::string("example: ") + call + " threw something that is no std::exception");
    EXPECT_EQ(records[2]["status"], "pass") << call;
  }
}

TEST(CliLastWords, AWorkersAreInTheRecord) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer tells, in its own words";
  const Scratch scratch;
  const Ends ends("plan segv");
  auto args = in_process(scratch);
  args.pop_back();
  EXPECT_EQ(run_attnbench(scratch, args).exit_code, 5);
  const auto records = read_records(scratch.dir() / "out");
  ASSERT_EQ(records.size(), 3u);
  EXPECT_THAT(records[1]["reason"].get<std::string>(), HasSubstr("was killed by signal 11"));
  EXPECT_THAT(records[1]["log"].get<std::string>(),
              HasSubstr("signal 11 (Segmentation fault) in plan of example"));
  EXPECT_EQ(records[2]["status"], "pass");
}

TEST(CliLastWords, ACrashAsTheProgramEndsComesAfterTheReport) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer tells, in its own words";
  const Scratch scratch;
  const Ends ends("closing segv");
  const Outcome o = run_attnbench(scratch, in_process(scratch));
  EXPECT_EQ(o.exit_code, 5);
  EXPECT_THAT(o.err,
              HasSubstr("signal 11 (Segmentation fault) in the static destructors, as the program ends"));
  EXPECT_THAT(o.out, HasSubstr("report: out/results.json"));
}

TEST(CliLastWords, AHangIsNamedByTheSignalThatEndsIt) {
  const Scratch scratch;
  const Ends ends("launch hang");
  Running run(scratch, ATTNBENCH_PROGRAM, in_process(scratch));
  ASSERT_TRUE(run.wait_for_stderr("[2/3]", 60));
  run.signal(SIGINT);
  ASSERT_TRUE(run.wait_for_stderr("once more stops at once", 60));
  run.signal(SIGINT);
  const Outcome o = run.wait();
  EXPECT_EQ(o.exit_code, 130);
  EXPECT_THAT(o.err,
              ContainsRegex("stopped at once in (launch of example, )?case [^ ]*/d24/causal/q5, kernel "
                            "example of .*; finished cases are in out/journal.jsonl; --resume out"));
}

Outcome selftest(const Scratch& scratch, std::vector<std::string> more) {
  std::vector<std::string> args = {"selftest",
                                   "--device",
                                   "cpu",
                                   "--plugin",
                                   kPlugin,
                                   "--kernel",
                                   "example",
                                   "--seeds",
                                   "1",
                                   "--filter",
                                   "^(mask/causal|heads/)",
                                   "--out",
                                   "out"};
  args.insert(args.end(), more.begin(), more.end());
  return run_attnbench(scratch, args);
}

json faults_of(const Scratch& scratch) {
  return read_json(scratch.dir() / "out" / "selftest.json")["faults"];
}

TEST(CliLastWords, SelftestOutlivesItsKernel) {
  const Scratch scratch;
  const Outcome well = selftest(scratch, {});
  ASSERT_EQ(well.exit_code, 0) << well.out << well.err;
  const json expected = faults_of(scratch);
  const Outcome same = selftest(scratch, {"--in-process"});
  EXPECT_EQ(same.exit_code, 0);
  EXPECT_EQ(same.out, well.out);
  EXPECT_EQ(faults_of(scratch), expected) << "a worker finds what one process finds";

  const Ends ends("launch segv", "6");
  const Outcome o = selftest(scratch, {});
  EXPECT_EQ(o.exit_code, 5) << o.out << o.err;
  int errors = 0, caught = 0;
  const json faults = faults_of(scratch);
  ASSERT_EQ(faults.size(), expected.size());
  for (const json& f : faults) {
    caught += f["outcome"] == "caught";
    if (f["outcome"] != "error") continue;
    ++errors;
    EXPECT_THAT(f["reason"].get<std::string>(),
                HasSubstr(kSanitized ? "exit code" : "was killed by signal 11"));
    EXPECT_THAT(f["case"].get<std::string>(), HasSubstr("/h6-2/"));
    EXPECT_THAT(o.out, HasSubstr("error: " + f["class"].get<std::string>() + "/" +
                                 f["name"].get<std::string>() + " on example, case "));
  }
  EXPECT_GT(errors, 0);
  EXPECT_GT(caught, 3) << "the others go on";
}

TEST(CliLastWords, SelftestInProcessNamesTheFault) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer tells, in its own words";
  const Scratch scratch;
  const Ends ends("launch segv", "8");
  const Outcome o = selftest(scratch, {"--in-process"});
  EXPECT_EQ(o.exit_code, 5);
  EXPECT_THAT(o.err, ContainsRegex(
                         "signal 11 .Segmentation fault. in launch of example, selftest clean .* "
                         "on example, case attention/.*; without --in-process it is the error of one step"));
}

TEST(CliLastWords, SelftestGivesUpAKernelThatHangs) {
  const Scratch scratch;
  const Ends ends("launch hang", "8");
  const Outcome o = selftest(scratch, {"--timeout", kSanitized ? "5" : "1"});
  EXPECT_EQ(o.exit_code, 5);
  EXPECT_THAT(o.err, HasSubstr("not begun, since 3 steps gave no result"));
  const json result = read_json(scratch.dir() / "out" / "selftest.json");
  EXPECT_EQ(result["clean"]["alarms"].size(), 3u);
  EXPECT_THAT(result["unfinished"].get<std::string>(), HasSubstr("steps were done"));
}

TEST(CliLastWords, AWorkerThatEndsAsItStartsIsFive) {
  for (const char* command : {"run --case '{batch: q5}' --no-time", "selftest"}) {
    const Scratch scratch;
    // Too few files for the pipes of a worker.
    const std::string line = "cd " + scratch.dir().string() + " && exec 2>err; ulimit -n 12; " +
                             ATTNBENCH_PROGRAM + " " + command + " --device cpu -q --out out";
    const int status = std::system(line.c_str());
    EXPECT_EQ(WEXITSTATUS(status), 5) << command;
    EXPECT_THAT(read_text(scratch.dir() / "err"),
                HasSubstr("attnbench: device error: the worker process ended with"));
  }
}

TEST(CliLastWords, ProfileNamesTheKernelThatFails) {
  const auto profile = [](const Scratch& scratch, const char* kernel) {
    return run_faulty(scratch, {"profile", "--case", "{batch: q5, heads: 2, head_dim: 24}", "--device", "cpu",
                                "--kernel", kernel});
  };
  const Scratch scratch;
  Outcome o = profile(scratch, "throws_status");
  EXPECT_EQ(o.exit_code, 5);
  EXPECT_THAT(o.err, HasSubstr("throws_status: launch failed: the stream fell over"));
  if (kSanitized) return;
  o = profile(scratch, "segfaults");
  EXPECT_EQ(o.exit_code, 5);
  EXPECT_THAT(o.err, HasSubstr("signal 11 (Segmentation fault) in launch of segfaults, case attention/"));
}

TEST(CliLastWords, SensitivityOfAWrongKernelKeepsItsReport) {
  const Scratch scratch;
  Outcome o = run_faulty(scratch, {"selftest", "--device", "cpu", "--sensitivity", "--contexts", "512", "-q",
                                   "--kernel", "drop_last_key", "--out", "out"});
  EXPECT_EQ(o.exit_code, 1) << o.err;
  EXPECT_THAT(o.err, HasSubstr("the kernel itself fails"));
  EXPECT_EQ(read_json(scratch.dir() / "out" / "sensitivity.json")["sensitivity"].size(), 0u);
}

TEST(CliLastWords, SensitivityKeepsWhatItMeasuredBeforeACrash) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer tells, in its own words";
  const Scratch scratch;
  const Ends ends("launch segv", "8 after 400");
  const Outcome o =
      run_attnbench(scratch, {"selftest", "--device", "cpu", "--sensitivity", "--contexts", "512,1024,2048",
                              "-q", "--plugin", kPlugin, "--kernel", "example", "--out", "out"});
  EXPECT_EQ(o.exit_code, 5) << o.err;
  EXPECT_THAT(o.err,
              ContainsRegex("in launch of example, selftest --sensitivity, case .*; the rows before it are "
                            "in out/sensitivity.json"));
  EXPECT_GE(read_json(scratch.dir() / "out" / "sensitivity.json")["sensitivity"].size(), 1u);
}

TEST(CliLastWords, AnInterruptedSelftestKeepsWhatItFound) {
  const Scratch scratch;
  Running run(scratch, ATTNBENCH_PROGRAM, {"selftest", "--device", "cpu", "--out", "out"});
  ASSERT_TRUE(run.wait_for_stderr("caught", kSanitized ? 600 : 60));
  run.signal(SIGTERM);
  const Outcome o = run.wait();
  EXPECT_EQ(o.exit_code, 130);
  EXPECT_THAT(o.err, ContainsRegex("interrupted; [0-9]+ of [0-9]+ steps were done"));
  EXPECT_GE(faults_of(scratch).size(), 1u);
}

}  // namespace
}  // namespace attnbench::testing
