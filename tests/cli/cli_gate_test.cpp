// The gate's decisions that need no times: right or wrong, which baseline, what is missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "harness/device/sanitized.h"
#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kTwo = "name: two\nsweeps: [{name: s, batch: [q5, 2q7], heads: 4/2, head_dim: 16}]\n";
constexpr const char* kOne = "name: one\nsweeps: [{name: s, batch: [q5], heads: 4/2, head_dim: 16}]\n";

class CliGate : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = scratch_.write("two.yaml", kTwo);
    baseline_ = scratch_.path("base.json");
    unsetenv("GITHUB_ACTIONS");
    unsetenv("GITHUB_STEP_SUMMARY");
  }
  Outcome gate(const std::vector<std::string>& more, const std::string& config = "") {
    std::vector<std::string> args = {"gate", config.empty() ? config_ : config, "--device", "cpu",
                                     "--no-time"};
    if (std::find(more.begin(), more.end(), "--out") == more.end()) args.insert(args.end(), {"--out", "g"});
    args.insert(args.end(), more.begin(), more.end());
    return run_faulty(scratch_, args);
  }
  void make_baseline() {
    const Outcome o = gate({"--baseline", baseline_, "--kernel", "cpu", "--update-baseline"});
    ASSERT_EQ(o.exit_code, 0) << o.out << o.err;
    ASSERT_EQ(read_json(baseline_)["benchmarks"].size(), 2u);
  }
  Scratch scratch_;
  std::string config_, baseline_;
};

TEST_F(CliGate, ABaselineWithTimesWillDo) {
  const Outcome timed = run_faulty(scratch_, {"run", config_, "--device", "cpu", "--kernel", "cpu",
                                              "--max-samples", "10", "--no-ceilings", "--out", "timed"});
  ASSERT_EQ(timed.exit_code, 0) << timed.out << timed.err;
  ASSERT_GT(read_records(scratch_.dir() / "timed")[0]["time"]["median_us"], 0);
  const std::string base = scratch_.path("timed/results.json");
  const Outcome same = gate({"--baseline", base, "--kernel", "cpu"});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  const Outcome wrong = gate({"--baseline", base, "--kernel", "drop_last_key", "--match", "case"});
  EXPECT_EQ(wrong.exit_code, 1) << wrong.out << wrong.err;
  const Outcome fewer = gate({"--baseline", base, "--kernel", "cpu", "--filter", "2q7"});
  EXPECT_EQ(fewer.exit_code, 1) << fewer.out << fewer.err;
}

TEST_F(CliGate, RightResultsPassAndWrongOnesAreOne) {
  make_baseline();
  const Outcome same = gate({"--baseline", baseline_, "--kernel", "cpu"});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  EXPECT_THAT(same.out, AllOf(HasSubstr("\n2 right on both sides\n"), Not(HasSubstr("timed"))));
  EXPECT_THAT(same.out,
              AllOf(StartsWith("gate: output of 'attnbench run' for the new side (turn 1 of 1: all cases):\n"
                               "status "),
                    EndsWith("\ngate: no case incorrect or missing; exit code 0\n")));
  const Outcome wrong = gate({"--baseline", baseline_, "--kernel", "drop_last_key", "--match", "case"});
  EXPECT_EQ(wrong.exit_code, 1) << wrong.out << wrong.err;
  EXPECT_THAT(wrong.out, AllOf(HasSubstr("\n0 right on both sides, 2 incorrect\n"),
                               EndsWith("\ngate: 2 cases incorrect; exit code 1\n")));
  EXPECT_THAT(wrong.out, ContainsRegex("NEW: fail: O of .* > 6 \\[max_z, .*lse.*\\]\n"))
      << "as run says it, with the detectors";
  EXPECT_THAT(wrong.out, Not(HasSubstr("\n  NEW: fail"))) << "the clues stand once, in the output of run";
  EXPECT_THAT(wrong.out, AllOf(HasSubstr("incorrect"), HasSubstr("h4-2/d16/full/q5"), HasSubstr("2q7"),
                               HasSubstr("reproduce: attnbench run --case")));
  EXPECT_EQ(read_json(scratch_.dir() / "g" / "compare.json")["exit_code"], 1);
}

TEST_F(CliGate, QuietItPrintsTheComparisonAlone) {
  make_baseline();
  const Outcome wrong = gate({"--baseline", baseline_, "--kernel", "drop_last_key", "--match", "case", "-q"});
  EXPECT_EQ(wrong.exit_code, 1) << wrong.out << wrong.err;
  EXPECT_THAT(wrong.out,
              AllOf(StartsWith("verdict "), Not(HasSubstr("output of")), Not(HasSubstr("\nstatus "))));
  EXPECT_THAT(wrong.out, HasSubstr("looks like: ")) << "no table has shown the clues";
  EXPECT_EQ(wrong.err, "");
}

/// Both turns of the new side crash in every case; the second needs no second copy of the output.
TEST_F(CliGate, TheOutputOfACrashIsShownOnceForEachSide) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer ends the process with an exit code";
  const Outcome base = gate({"--kernel", "cpu", "--against-kernel", "segfaults", "--set", "head_dim=24"});
  EXPECT_EQ(base.exit_code, 0) << base.out << base.err;
  EXPECT_THAT(base.out, ContainsRegex("base side .turn 1 of 4: .* failed with exit code 5; it printed:\n"));
  EXPECT_THAT(base.out,
              ContainsRegex("\ngate: the base side .turn 4 of 4. failed with exit code 5, as before; its "
                            "output is in g/4-base.txt\n"));
  std::vector<std::string> sides = {"--kernel", "segfaults", "--against-kernel",
                                    "cpu",      "--set",     "head_dim=24"};
  const Outcome loud = gate(sides);
  EXPECT_EQ(loud.exit_code, 5) << loud.out << loud.err;
  EXPECT_THAT(loud.out, ContainsRegex("new side .turn 2 of 4: .* failed with exit code 5; it printed:\n"));
  sides.emplace_back("-q");
  const Outcome o = gate(sides);
  EXPECT_EQ(o.exit_code, 5) << o.out << o.err;
  EXPECT_THAT(o.out,
              AllOf(StartsWith("verdict "), HasSubstr("killed by signal"), Not(HasSubstr("it printed"))));
}

TEST_F(CliGate, DuplicatesAreSaidOnce) {
  const std::string file =
      scratch_.write("twice.yaml", "name: t\nsweeps: [{batch: [2q7, q7_q7], heads: 2, head_dim: 8}]\n");
  const Outcome o = gate({"--against", ATTNBENCH_PROGRAM, "--kernel", "cpu"}, file);
  const std::string text = "1 duplicate case dropped: attention/packed/bf16/h2-2/d8/full/2q7\n";
  const std::size_t first = o.err.find(text);
  ASSERT_NE(first, std::string::npos) << o.err;
  EXPECT_EQ(o.err.find(text, first + 1), std::string::npos) << o.err;
}

TEST_F(CliGate, ReportsOfAnEarlierGateAreKeptAside) {
  make_baseline();
  ASSERT_EQ(gate({"--baseline", baseline_, "--kernel", "cpu", "--format", "md"}).exit_code, 0);
  const std::filesystem::path dir = scratch_.dir() / "g";
  const std::string first_json = read_text(dir / "compare.json"), first_md = read_text(dir / "compare.md");
  const std::string first_turn = read_text(dir / "1-new" / "results.json");
  const Outcome o = gate({"--baseline", baseline_, "--kernel", "drop_last_key", "--match", "case"});
  // The turns of the baseline are in turns.previous.
  EXPECT_TRUE(std::filesystem::exists(dir / "turns.2.previous" / "gate.jsonl"));
  EXPECT_EQ(read_text(dir / "turns.2.previous" / "1-new" / "results.json"), first_turn);
  EXPECT_NE(read_text(dir / "1-new" / "results.json"), first_turn);
  EXPECT_THAT(o.err, HasSubstr("note: g held an earlier gate; it is kept as "
                               "compare.previous.json, compare.previous.md, turns.2.previous/\n"));
  EXPECT_FALSE(std::filesystem::exists(dir / "compare.md")) << "that of the first gate beside new files";
  EXPECT_EQ(read_text(dir / "compare.previous.json"), first_json);
  EXPECT_EQ(read_text(dir / "compare.previous.md"), first_md);
  EXPECT_EQ(read_json(dir / "compare.json")["exit_code"], 1);
}

TEST_F(CliGate, WhatItReadsMayLieInNoTurnThatItMoves) {
  make_baseline();
  const Outcome o = gate({"--baseline", "g/1-new/results.json", "--kernel", "cpu"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("g/1-new/results.json lies in a turn of the gate in --out g"));
  EXPECT_TRUE(std::filesystem::exists(scratch_.dir() / "g" / "1-new" / "results.json"));
  EXPECT_FALSE(std::filesystem::exists(scratch_.dir() / "g" / "turns.previous"));
}

TEST_F(CliGate, ItsFolderAndItsReportAreNoResults) {
  make_baseline();
  ASSERT_EQ(gate({"--baseline", baseline_, "--kernel", "cpu"}).exit_code, 0);
  const std::vector<std::string> compare = {"compare"}, report = {"report", "--format", "svg"};
  for (const std::vector<std::string>& command : {compare, report}) {
    const auto with = [&](const std::string& path) {
      std::vector<std::string> args = command;
      args.insert(args.end(), {baseline_, path});
      return run_attnbench(scratch_, args);
    };
    const Outcome folder = with("g");
    EXPECT_EQ(folder.exit_code, 2);
    EXPECT_THAT(folder.err, HasSubstr("g: error: the folder of a gate, which holds several runs: give one of "
                                      "them: g/1-new"));
    const Outcome file = with("g/compare.json");
    EXPECT_EQ(file.exit_code, 2);
    EXPECT_THAT(file.err, HasSubstr("g/compare.json: error: the outcome of a comparison, not results: give"));
  }
}

TEST_F(CliGate, AWrongResultNeverBecomesABaseline) {
  make_baseline();
  const std::string before = read_text(baseline_);
  const Outcome o = gate({"--baseline", baseline_, "--kernel", "drop_last_key", "--update-baseline"});
  EXPECT_EQ(o.exit_code, 1) << o.out << o.err;
  EXPECT_THAT(o.err, HasSubstr("is not changed"));
  EXPECT_THAT(o.out, HasSubstr("; exit code 1\n"));
  EXPECT_EQ(read_text(baseline_), before);
}

TEST_F(CliGate, AnotherMachinesBaselineIsTwoBeforeAnythingRuns) {
  make_baseline();
  json j = read_json(baseline_);
  j["context"]["attnbench"]["device"]["model"] = "NVIDIA H200";
  const std::string other = scratch_.write("other.json", j.dump());
  const Outcome o = run_faulty(
      scratch_, {"gate", config_, "--device", "cpu", "--kernel", "cpu", "--out", "h", "--baseline", other});
  EXPECT_EQ(o.exit_code, 2) << o.out << o.err;
  EXPECT_THAT(o.err, AllOf(HasSubstr("device: 'NVIDIA H200' in BASE"), HasSubstr("not taken alike"),
                           HasSubstr("--allow-mismatch"), Not(HasSubstr("nothing matched"))));
  EXPECT_TRUE(read_records(scratch_.dir() / "h" / "0-new").empty()) << "only the device was asked for";
  EXPECT_FALSE(std::filesystem::exists(scratch_.dir() / "h" / "1-new"));
  EXPECT_EQ(gate({"--baseline", other, "--kernel", "cpu"}).exit_code, 0)
      << "right or wrong is the same everywhere";
}

TEST_F(CliGate, ACaseThatIsGoneOrNewIsAFailureUnlessAllowed) {
  make_baseline();
  const std::string one = scratch_.write("one.yaml", kOne);
  Outcome o = gate({"--baseline", baseline_, "--kernel", "cpu"}, one);
  EXPECT_EQ(o.exit_code, 1) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("missing in new"));
  o = gate({"--baseline", baseline_, "--kernel", "cpu", "--allow-missing"}, one);
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_THAT(o.out,
              EndsWith("\ngate: no case incorrect, 1 case of one side alone, as allowed; exit code 0\n"));
  EXPECT_EQ(gate({"--baseline", baseline_, "--kernel", "cpu", "--allow-new"}, one).exit_code, 1);
  const std::string small = scratch_.path("small.json");
  ASSERT_EQ(gate({"--baseline", small, "--kernel", "cpu", "--update-baseline"}, one).exit_code, 0);
  const std::string deeper = scratch_.path("a/b/small.json");
  EXPECT_EQ(gate({"--baseline", deeper, "--kernel", "cpu", "--update-baseline"}, one).exit_code, 0);
  o = gate({"--baseline", small, "--kernel", "cpu"});
  EXPECT_EQ(o.exit_code, 1) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("missing in base"));
  EXPECT_EQ(gate({"--baseline", small, "--kernel", "cpu", "--allow-new"}).exit_code, 0);
}

TEST_F(CliGate, MistakesSayWhatToDo) {
  const auto expect = [&](const std::vector<std::string>& args, const char* text) {
    const Outcome o = gate(args);
    EXPECT_EQ(o.exit_code, 2) << o.out << o.err;
    EXPECT_THAT(o.err, HasSubstr(text));
  };
  expect({"--baseline", "none.json"}, "--update-baseline makes one");
  expect({}, "nothing to compare with");
  expect({"--baseline", "a", "--against", "b"}, "give one of");
  expect({"--against-kernel", "cpu"}, "the one kernel that --kernel names");
  expect({"--against", scratch_.path("no_such_program")}, "no_such_program: No such file or directory");
  expect({"--baseline", "/dev/null/base.json", "--update-baseline"},
         "/dev/null: error: cannot make the folder");
  expect({"--update-baseline", "--against", "x"}, "--update-baseline needs --baseline");
  expect({"--calibrate"}, "name the file to write");
  expect({"--baseline", scratch_.write("bad.json", "{")}, "not JSON");
  make_baseline();
  expect({"--baseline", baseline_, "--kernel", "no_such"}, "no such kernel");
  expect({"--baseline", baseline_, "--min-effect-of", "q5"}, "REGEX=PERCENT");
  expect({"--baseline", baseline_, "--min-effect-of", "q5=x"}, "REGEX=PERCENT");
  expect({"--baseline", baseline_, "--min-effect-of", "(=5"}, "not a regular expression");
  expect({"--baseline", baseline_, "--min-effect-of", "pagd=5", "--out", "early"},
         "'pagd=5' matches no case");
  EXPECT_FALSE(std::filesystem::exists(scratch_.dir() / "early")) << "that is seen before anything runs";
}

TEST_F(CliGate, ChosenAndFilteredCasesAlone) {
  const std::string small = scratch_.path("small.json");
  for (const bool by_filter : {true, false}) {
    const std::vector<std::string> which =
        by_filter ? std::vector<std::string>{"--filter", "q5$"}
                  : std::vector<std::string>{"--case", "attention/packed/bf16/h4-2/d16/full/q5"};
    std::vector<std::string> args = {"--baseline", small, "--kernel", "cpu", "--update-baseline"};
    args.insert(args.end(), which.begin(), which.end());
    ASSERT_EQ(gate(args).exit_code, 0);
    ASSERT_EQ(read_json(small)["benchmarks"].size(), 1u);
    // With times, so that the gate first runs an empty --filter of its own to ask for the device.
    std::vector<std::string> timed = {
        "gate",       config_, "--device", "cpu", "--kernel",      "cpu",           "--out", "t",
        "--baseline", small,   "--reruns", "1",   "--no-ceilings", "--max-samples", "10"};
    timed.insert(timed.end(), which.begin(), which.end());
    const Outcome o = run_faulty(scratch_, timed);
    EXPECT_THAT(o.out, HasSubstr("q5")) << o.err;
    EXPECT_NE(o.exit_code, 2) << o.err;
  }
}

TEST_F(CliGate, AnotherBuildRunsInTurns) {
  const Outcome o = gate({"--against", ATTNBENCH_PROGRAM, "--kernel", "cpu"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  for (const char* run : {"1-base", "2-new", "3-new", "4-base"}) {
    EXPECT_TRUE(std::filesystem::exists(scratch_.dir() / "g" / run / "results.json")) << run;
  }
  const Outcome wrong = gate({"--kernel", "drop_last_key", "--against-kernel", "cpu", "--out", "w"});
  EXPECT_EQ(wrong.exit_code, 1) << wrong.out << wrong.err;
  EXPECT_THAT(wrong.out, AllOf(HasSubstr("2 incorrect"), HasSubstr("cpu -> drop_last_key")));
  EXPECT_THAT(wrong.err, HasSubstr("settles the exit code: no more turns\n"));
  EXPECT_TRUE(std::filesystem::exists(scratch_.dir() / "w" / "2-new"));
  EXPECT_FALSE(std::filesystem::exists(scratch_.dir() / "w" / "3-new"));
}

TEST_F(CliGate, AnnotationsAndStepSummaryUnderGithubActions) {
  make_baseline();
  const std::string summary = scratch_.write("summary.md", "before\n");
  setenv("GITHUB_ACTIONS", "true", 1);
  setenv("GITHUB_STEP_SUMMARY", summary.c_str(), 1);
  const Outcome o = gate({"--baseline", baseline_, "--kernel", "drop_last_key", "--match", "case"});
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_THAT(o.out,
              AllOf(HasSubstr("\n::error title=attnbench%3A attention/packed"), HasSubstr("::notice ")));
  EXPECT_THAT(read_text(summary),
              AllOf(HasSubstr("before\n### attnbench gate: exit code 1"), HasSubstr("| incorrect |")));
  unsetenv("GITHUB_ACTIONS");
  unsetenv("GITHUB_STEP_SUMMARY");
  EXPECT_THAT(gate({"--baseline", baseline_, "--kernel", "cpu"}).out, Not(HasSubstr("::notice")));
}

}  // namespace
}  // namespace attnbench::testing
