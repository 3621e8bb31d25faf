// A plug-in that crashes, hangs, prints, forks or forges in one of its functions: it costs its own case and
// nothing else, and the reason names the function.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include <cstdlib>
#include <string>

#include "harness/device/sanitized.h"
#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

const std::string kEnds = ATTNBENCH_PLUGIN_DIR "/ends.so";

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kFunctions[] = {"supports", "workspace_bytes", "plan", "launch", "numerics", "tile"};

/// Runs three cases in a worker, on a kernel that does `what` in the second (tests/plugins/ends.cpp).
struct Three {
  explicit Three(const std::string& what, const std::vector<std::string>& more = {"--no-time"}) {
    setenv("ATTNBENCH_TEST_END", what.c_str(), 1);
    const std::string sweep = scratch.write(
        "three.yaml", "name: t\nsweeps: [{batch: q5, heads: 2, head_dim: [8, 24, 16], mask: causal}]\n");
    std::vector<std::string> args = {"run", sweep,   "--device", "cpu",      "--kernel", "example",
                                     "-q",  "--out", "out",      "--plugin", kEnds};
    args.insert(args.end(), more.begin(), more.end());
    outcome = run_attnbench(scratch, args);
    unsetenv("ATTNBENCH_TEST_END");
    const auto records = read_records(scratch.dir() / "out");
    if (records.size() != 3) {
      ADD_FAILURE() << what << ": " << records.size() << " records\n" << outcome.err;
      return;
    }
    for (const int i : {0, 2}) EXPECT_EQ(records[static_cast<std::size_t>(i)]["status"], "pass") << what;
    second = records[1];
  }
  std::string status() const { return second.value("status", ""); }
  std::string reason() const { return second.value("reason", ""); }

  Scratch scratch;
  Outcome outcome;
  json second;
};

/// tile() is called only for a time.
std::vector<std::string> options_for(const std::string& function) {
  if (function != "tile") return {"--no-time"};
  return {"--max-samples", "10"};
}

TEST(CliBadPlugin, ACrashInAnyFunctionIsTheErrorOfItsCase) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer tells, in its own words";
  for (const std::string function : kFunctions) {
    const Three run(function + " segv", options_for(function));
    EXPECT_EQ(run.outcome.exit_code, 5);
    EXPECT_EQ(run.status(), "error");
    EXPECT_THAT(run.reason(),
                HasSubstr("the worker process was killed by signal 11 (Segmentation fault) in " + function +
                          " of example"));
    EXPECT_THAT(run.second.value("log", ""), HasSubstr("case attention/packed/bf16/h2-2/d24/causal/q5"));
  }
}

TEST(CliBadPlugin, OnlyACrashFromTheFirstLaunchOnHintsAtTheBlockTable) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer tells, in its own words";
  const auto reason = [](const std::string& function) {
    return Three(function + " segv", {"--no-time", "--set", "kv=paged"}).reason();
  };
  for (const std::string function : {"supports", "workspace_bytes", "plan"}) {
    EXPECT_THAT(reason(function), AllOf(HasSubstr(" in " + function +
                                                  " of example; it was in set-up: nothing "
                                                  "had been launched"),
                                        Not(HasSubstr("block_table"))));
  }
  EXPECT_THAT(reason("launch"),
              AllOf(HasSubstr("if it reads block_table where it should not"), Not(HasSubstr("set-up"))));
}

TEST(CliBadPlugin, AHangInAnyFunctionIsTheTimeoutOfItsCase) {
  for (const std::string function : kFunctions) {
    auto options = options_for(function);
    options.insert(options.end(), {"--timeout", kSanitized ? "20" : "4", "--no-ceilings"});
    const Three run(function + " hang", options);
    EXPECT_EQ(run.outcome.exit_code, 5);
    EXPECT_EQ(run.status(), "timeout");
    EXPECT_THAT(run.reason(), HasSubstr("its worker process was killed in " + function + " of example"));
    EXPECT_THAT(run.second.value("log", ""), HasSubstr("case attention/packed/bf16/h2-2/d24/causal/q5"));
  }
}

TEST(CliBadPlugin, ExitInAFunctionIsNamedToo) {
  const Three run("plan exit");
  EXPECT_EQ(run.status(), "error");
  EXPECT_THAT(run.reason(), HasSubstr("the worker process ended with exit code 0 in plan of example"));
}

TEST(CliBadPlugin, WhatItPrintsIsNoAnswer) {
  for (const std::string function : {"supports", "launch"}) {
    const Three run(function + " print");
    EXPECT_EQ(run.outcome.exit_code, 0) << run.outcome.err.substr(0, 2000);
    EXPECT_EQ(run.status(), "pass");
  }
}

TEST(CliBadPlugin, AChildThatGoesOnIsNoSecondWorker) {
  for (const std::string function : {"supports", "launch", "numerics"}) {
    const Three run(function + " fork");
    EXPECT_EQ(run.outcome.exit_code, 0) << run.outcome.err << run.reason();
    EXPECT_EQ(run.status(), "pass");
  }
}

TEST(CliBadPlugin, AProgramThatItStartsHasNoPipeOfTheWorker) {
  const Three run("launch leak");
  EXPECT_EQ(run.status(), "pass");
  EXPECT_THAT(run.outcome.err, AllOf(HasSubstr("pipe 1\n"), HasSubstr("pipe 2\n")));
  for (int fd = 3; fd < 1024; ++fd)
    EXPECT_THAT(run.outcome.err, Not(HasSubstr("pipe " + std::to_string(fd) + "\n")));
}

TEST(CliBadPlugin, ThePipesAreNotAmongTheUsualDescriptors) {
  const Three run("launch forge");
  EXPECT_EQ(run.outcome.exit_code, 0) << run.outcome.err;
  EXPECT_EQ(run.status(), "pass");
}

TEST(CliBadPlugin, AForgedAnswerIsTheErrorOfItsCase) {
  for (const std::string function : {"supports", "launch", "numerics"}) {
    const Three run(function + " forge_all");
    EXPECT_EQ(run.outcome.exit_code, 5) << run.outcome.err;
    EXPECT_EQ(run.status(), "error");
    EXPECT_EQ(run.reason(), "the kernel's process sent what is no answer: a kernel wrote to its socket");
  }
}

TEST(CliBadPlugin, OneThatForgesAllTheTimeEndsTheRun) {
  setenv("ATTNBENCH_TEST_END", "loading forge_always", 1);
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"run", "--case", "{batch: q5}", "--device", "cpu", "--no-time",
                                            "-q", "--kernel", "example", "--out", "out", "--plugin", kEnds});
  unsetenv("ATTNBENCH_TEST_END");
  EXPECT_EQ(o.exit_code, 5) << o.out << o.err;
  EXPECT_THAT(o.out + o.err, HasSubstr("the kernel's process sent what is no answer"));
}

// Folders of judges that were killed go, also if their process number is in use again; what others have stays.
TEST(CliRunner, RemovesTheFoldersOfDeadRunnersAndNoOthers) {
  const Scratch scratch;
  for (const char* name : {"attnbench-results", "attnbench-runner-mine", "attnbench-runner-1"})
    std::filesystem::create_directories(scratch.dir() / "tmp" / name / "kept");
  setenv("TMPDIR", (scratch.dir() / "tmp").c_str(), 1);
  const Outcome o = run_attnbench(
      scratch, {"run", "--case", "{batch: q5}", "--device", "cpu", "--no-time", "-q", "--out", "out"});
  unsetenv("TMPDIR");
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  std::set<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.dir() / "tmp"))
    left.insert(entry.path().filename());
  EXPECT_EQ(left, (std::set<std::string>{"attnbench-results", "attnbench-runner-mine"}));
}

TEST(CliBadPlugin, AForgedAnswerIsTheErrorOfAStepOfSelftest) {
  setenv("ATTNBENCH_TEST_END", "launch forge_all", 1);
  setenv("ATTNBENCH_TEST_HEADS", "8", 1);
  const Scratch scratch;
  const Outcome o =
      run_attnbench(scratch, {"selftest", "--device", "cpu", "--plugin", kEnds, "--kernel", "example",
                              "--seeds", "1", "--filter", "^mask/causal", "--out", "out"});
  unsetenv("ATTNBENCH_TEST_END");
  unsetenv("ATTNBENCH_TEST_HEADS");
  EXPECT_EQ(o.exit_code, 5) << o.err;
  EXPECT_THAT(o.out, HasSubstr("the worker's pipe got a line that is not the worker's"));
}

}  // namespace
}  // namespace attnbench::testing
