// Gates that are killed or interrupted: what they report, and how they go on with --resume.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

/// Each case takes a third of a second on the kernel `slow`.
constexpr const char* kFour =
    "name: four\nsweeps: [{batch: q5, heads: 2, head_dim: 8, gap_tokens: [0, 1, 2, 3]}]\n";

std::ptrdiff_t lines(const fs::path& file) {
  const std::string text = read_text(file);
  return std::count(text.begin(), text.end(), '\n');
}

class CliGateResume : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("GITHUB_ACTIONS");
    unsetenv("GITHUB_STEP_SUMMARY");
  }
  std::vector<std::string> args(const std::vector<std::string>& more) const {
    std::vector<std::string> a = {"gate",      config_,    "--device",         "cpu",
                                  "--kernel",  "slow",     "--against-kernel", "slow",
                                  "--no-time", "--format", "md,junit"};
    a.insert(a.end(), more.begin(), more.end());
    return a;
  }
  Outcome gate(const std::vector<std::string>& more) { return run_faulty(scratch_, args(more)); }
  /// Stops a gate once the run in that folder has finished a case.
  Outcome stop_in(const std::string& run, int signal) {
    Running running(scratch_, ATTNBENCH_FAULTY, args({"--out", "g"}));
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (lines(dir_ / run / "journal.jsonl") == 0 && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    running.signal(signal);
    return running.wait();
  }
  void expect_whole(const Outcome& o) {
    EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
    for (const char* run : {"1-base", "2-new", "3-new", "4-base"}) {
      EXPECT_EQ(lines(dir_ / run / "journal.jsonl"), 4) << run << ": a case was lost or repeated";
      EXPECT_EQ(read_json(dir_ / run / "results.json")["context"]["attnbench"]["complete"], true) << run;
    }
    const json compare = read_json(dir_ / "compare.json");
    EXPECT_EQ(compare["interrupted"], false);
    EXPECT_EQ(compare["rows"].size(), 4u);
    EXPECT_THAT(o.out, HasSubstr("\n4 right on both sides\n"));
  }

  Scratch scratch_;
  std::string config_ = scratch_.write("four.yaml", kFour);
  fs::path dir_ = scratch_.dir() / "g";
};

TEST_F(CliGateResume, KilledInTheThirdRunItRepeatsNothing) {
  EXPECT_EQ(stop_in("3-new", SIGKILL).exit_code, 128 + SIGKILL);
  const std::string first = read_text(dir_ / "1-base" / "journal.jsonl"),
                    second = read_text(dir_ / "2-new" / "journal.jsonl"),
                    third = read_text(dir_ / "3-new" / "journal.jsonl");
  ASSERT_FALSE(third.empty());
  const Outcome o = gate({"--resume", "g"});
  expect_whole(o);
  EXPECT_EQ(read_text(dir_ / "1-base" / "journal.jsonl"), first);
  EXPECT_EQ(read_text(dir_ / "2-new" / "journal.jsonl"), second);
  EXPECT_TRUE(read_text(dir_ / "3-new" / "journal.jsonl").starts_with(third));
  EXPECT_THAT(o.err, AllOf(HasSubstr("gate: g: 2 turns finished"),
                           HasSubstr("1-base: 4 of 4 runs are finished"), Not(HasSubstr("gate: turn 2")),
                           HasSubstr("gate: turn 3 of 4, new"), HasSubstr("gate: turn 4 of 4, base")));
  // Finished, it only compares again.
  const Outcome again = gate({"--resume", "g"});
  expect_whole(again);
  EXPECT_THAT(again.err, Not(HasSubstr("gate: turn ")));
  // Another gate in the folder takes nothing of it.
  const Outcome anew = gate({"--out", "g"});
  EXPECT_THAT(anew.err, AllOf(HasSubstr("gate: turn 1 of 4, base"), HasSubstr("gate: turn 4 of 4, base")));
  expect_whole(anew);
}

TEST_F(CliGateResume, AnInterruptedGateReportsWhatItHas) {
  Outcome o = stop_in("3-new", SIGINT);
  EXPECT_EQ(o.exit_code, 130) << o.out << o.err;
  const std::string said = "gate: interrupted at turn 3 of 4; finished: 2 turns. To go on: ";
  ASSERT_THAT(o.err, HasSubstr(said));
  EXPECT_EQ(o.err.find("interrupted"), o.err.rfind("interrupted")) << "said once: " << o.err;
  EXPECT_EQ(o.err.find("--resume"), o.err.rfind("--resume")) << o.err;
  const std::size_t at = o.err.find(said) + said.size();
  const std::string way_on = o.err.substr(at, o.err.find('\n', at) - at);
  EXPECT_THAT(o.out,
              HasSubstr("interrupted: this compares the turns that had finished, 1 of new, 1 of base"));
  EXPECT_THAT(o.out, HasSubstr("\ngate: interrupted; exit code 130\n"));
  const json compare = read_json(dir_ / "compare.json");
  EXPECT_EQ(compare["interrupted"], true);
  EXPECT_EQ(compare["exit_code"], 130);
  EXPECT_EQ(compare["rows"].size(), 4u);
  EXPECT_THAT(read_text(dir_ / "compare.md"), HasSubstr("interrupted: this compares"));
  EXPECT_THAT(read_text(dir_ / "compare.junit.xml"), HasSubstr("type=\"interrupted\""));
  // Exactly what was printed goes on.
  o = Running(scratch_, "/bin/sh", {"-c", way_on}).wait();
  expect_whole(o);
  EXPECT_THAT(o.err, HasSubstr("gate: g: 2 turns finished"));
  EXPECT_THAT(read_text(dir_ / "compare.junit.xml"), Not(HasSubstr("interrupted")));
}

TEST_F(CliGateResume, InterruptedBeforeThereIsAnythingToCompare) {
  for (const int signal : {SIGTERM, SIGHUP}) {
    fs::remove_all(dir_);
    EXPECT_EQ(stop_in("1-base", signal).exit_code, 130);
    const json compare = read_json(dir_ / "compare.json");
    EXPECT_EQ(compare["interrupted"], true);
    EXPECT_TRUE(compare["rows"].empty()) << "what has not run is not missing";
  }
  expect_whole(gate({"--resume", "g"}));
}

TEST_F(CliGateResume, WhatIsNotCompleteGoesOnWhateverEndedIt) {
  ASSERT_EQ(stop_in("3-new", SIGINT).exit_code, 130);
  // As after a full disk, or a system that went down in the middle of a line.
  std::string journal = read_text(dir_ / "gate.jsonl");
  scratch_.write("g/gate.jsonl", journal.substr(0, journal.size() - 7));
  fs::remove(dir_ / "3-new" / "results.json");
  expect_whole(gate({"--resume", "g"}));
}

TEST_F(CliGateResume, AnotherGateIsRefusedInWords) {
  ASSERT_EQ(stop_in("3-new", SIGINT).exit_code, 130);
  const std::string journal = read_text(dir_ / "gate.jsonl");
  const auto says = [&](const std::vector<std::string>& more, const std::string& text) {
    const Outcome o = gate(more);
    EXPECT_EQ(o.exit_code, 2) << o.out;
    EXPECT_THAT(o.err, HasSubstr(text));
    EXPECT_EQ(read_text(dir_ / "gate.jsonl"), journal) << "the journal was touched";
  };
  says({"--resume", "g", "--check", "full"}, "arguments: '--no-time' there, '--check full --no-time' here");
  says({"--resume", "g", "--seed", "7"},
       "cases: 4 runs planned here as there, but others, seed 1 there and 7 here)");
  says({"--resume", "g", "--filter", "gap1"},
       "cases: 4 runs planned there, 1 here, and 3 of its 4 finished runs not here, such as ");
  says(
      {"--resume", "g", "--min-effect", "5"},
      "--resume g: the folder holds another run (--min-effect: '2' there, '5' here); give the same configuration, "
      "options and program, or a new --out");
  says({"--resume", "g", "--out", "h"}, "drop --out");
  says({"--resume", "nowhere"}, "--resume nowhere: there is no such folder");
  says({"--resume", "g/1-base"}, "g/1-base: holds no gate.jsonl");
  scratch_.write("g/gate.jsonl", "no JSON\n");
  EXPECT_THAT(gate({"--resume", "g"}).err, HasSubstr("gate.jsonl:1: error: not the journal of a gate"));
}

TEST_F(CliGateResume, HelpNamesTheLimitAndTheWayOn) {
  const Outcome o = run_faulty(scratch_, {"gate", "--help"});
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_THAT(o.out, AllOf(HasSubstr("--max-time S"), HasSubstr("seconds of wall time"),
                           HasSubstr("--resume DIR"), HasSubstr("130 interrupted")));
  const Outcome both = gate({"--max-time", "5", "--calibrate", "--noise", "n.json"});
  EXPECT_EQ(both.exit_code, 2);
  EXPECT_THAT(both.err, HasSubstr("--max-time limits reruns, and --calibrate makes none"));
}

}  // namespace
}  // namespace attnbench::testing
