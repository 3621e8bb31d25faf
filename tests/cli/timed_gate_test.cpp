// The gate with times. The differences are so large that no load of the machine hides them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTwo = "name: two\nsweeps: [{name: s, batch: [q5, 2q7], heads: 4/2, head_dim: 16}]\n";

class CliTimedGate : public ::testing::Test {
 protected:
  Outcome gate(const std::vector<std::string>& more, const char* clock = "wall") {
    std::vector<std::string> args = {"gate",
                                     scratch_.write("two.yaml", kTwo),
                                     "--device",
                                     "cpu",
                                     "--max-samples",
                                     "10",
                                     "--no-ceilings",
                                     "--clock",
                                     clock};
    args.insert(args.end(), more.begin(), more.end());
    return run_faulty(scratch_, args);
  }
  Scratch scratch_;
};

TEST_F(CliTimedGate, ASlowKernelIsThreeAndNamesTheCases) {
  // The slow kernel sleeps for 300 ms and the other one takes some time too. So equal runs are alike even on
  // a busy machine.
  const Outcome o =
      gate({"--set", "heads=8/2", "--set", "head_dim=128", "--set", "batch=q512", "--check", "off",
            "--kernel", "slow", "--against-kernel", "cpu", "--reruns", "6", "--out", "g"});
  EXPECT_EQ(o.exit_code, 3) << o.out << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("slower"), HasSubstr("attention/packed/bf16/h8-2/d128/full/q512"),
                           HasSubstr("1 slower, 0 inconclusive"),
                           ::testing::EndsWith("\ngate: 1 case slower; exit code 3\n")));
  const json row = read_json(scratch_.dir() / "g" / "compare.json")["rows"][0];
  EXPECT_GT(row["ratio"].get<double>(), 1.5);
}

/// Beside as much other work as the machine has cores, by a gate that chooses the clock itself.
TEST_F(CliTimedGate, OnABusyMachineCpuTimeDecides) {
  const Busy busy(std::thread::hardware_concurrency());
  const std::vector<std::string> args = {"--set",
                                         "heads=8/2",
                                         "--set",
                                         "head_dim=64",
                                         "--set",
                                         "batch=q256",
                                         "--check",
                                         "off",
                                         "--kernel",
                                         "slow_250_percent",
                                         "--against-kernel",
                                         "slow_0_percent",
                                         "--out",
                                         "g"};
  const Outcome o = gate(args, "auto");
  EXPECT_EQ(o.exit_code, 3) << o.out << o.err;
  EXPECT_THAT(o.err,
              HasSubstr("so times are CPU time of one thread (--clock cpu); --clock wall takes wall time\n"));
  EXPECT_THAT(o.out, HasSubstr("the means of the quickest fifth of the samples"));
  const json row = read_json(scratch_.dir() / "g" / "compare.json")["rows"][0];
  EXPECT_NEAR(row["ratio"].get<double>(), 3.5, 0.8) << "by wall time it is anything";
  for (const char* turn : {"1-base", "2-new", "3-new", "4-base"}) {
    const json results = read_json(scratch_.dir() / "g" / turn / "results.json");
    EXPECT_EQ(results["context"]["attnbench"]["device"]["threads"], 1);
    EXPECT_EQ(results["benchmarks"][0]["attnbench"]["time"]["clock"], "cpu") << turn;
  }
  // A gate that goes on keeps the clock, though the machine may be quiet by then.
  std::vector<std::string> again(args.begin(), args.end() - 2);
  again.insert(again.end(), {"--resume", "g"});
  EXPECT_EQ(gate(again, "auto").exit_code, 3);
}

TEST_F(CliTimedGate, AnOlderBuildWithoutThatOptionIsGatedByWallTime) {
  const Busy busy(std::thread::hardware_concurrency());
  const std::string older =
      scratch_.write("older", "#!/bin/sh\n[ \"$2\" = --help ] && exit 0\nexec " ATTNBENCH_FAULTY " \"$@\"\n");
  std::filesystem::permissions(older, std::filesystem::perms::owner_all);
  const Outcome o =
      gate({"--check", "off", "--kernel", "cpu", "--against", older, "--reruns", "0", "--out", "g"}, "auto");
  EXPECT_THAT(o.exit_code, ::testing::AnyOf(0, 4)) << o.out << o.err;
  EXPECT_THAT(o.err, Not(HasSubstr("--clock")));
  for (const json& r : read_records(scratch_.dir() / "g" / "1-base"))
    EXPECT_FALSE(r["time"].contains("clock"));
}

TEST_F(CliTimedGate, UndecidedCasesAreRunAgainAndThenFour) {
  const std::string base = scratch_.path("base.json");
  ASSERT_EQ(gate({"--kernel", "cpu", "--baseline", base, "--update-baseline", "--runs", "1", "--out", "b"})
                .exit_code,
            0);
  // In the baseline, one case becomes undecidable and the other one a thousand seconds long.
  json j = read_json(base);
  for (json& entry : j["benchmarks"]) {
    json& time = entry["attnbench"]["time"];
    const bool wild = entry["attnbench"]["params"]["batch"] == "q5";
    const double us = wild ? time["median_us"].get<double>() : 1e9;
    for (std::size_t i = 0; i < time["samples_us"].size(); ++i) {
      time["samples_us"][i] = wild ? us * (i % 2 ? 1e6 : 1e-6) : us * (1 + 1e-4 * static_cast<double>(i % 5));
    }
    time["median_us"] = us;
  }
  const Outcome o = gate({"--kernel", "cpu", "--baseline", scratch_.write("wild.json", j.dump()), "--reruns",
                          "2", "--rerun-whole", "0", "--out", "g"});
  EXPECT_EQ(o.exit_code, 4) << o.out << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr(" inconclusive"), Not(HasSubstr(" 0 inconclusive")),
                           HasSubstr("more rounds were run for 2 cases"),
                           HasSubstr("a stored baseline has no further samples")));
  // Turn 1 runs all cases. Turn 2 repeats the undecided case and the faster one, because one run is not
  // enough to call it faster. Turn 3 repeats the case that is still undecided. On a
  // busy machine the faster one may be undecided too (GatePolicy.UndecidedCasesRunAgainUntilTheyAreDecided
  // has fixed times).
  EXPECT_EQ(read_records(scratch_.dir() / "g" / "1-new").size(), 2u);
  EXPECT_EQ(read_records(scratch_.dir() / "g" / "2-new").size(), 2u);
  const auto records = read_records(scratch_.dir() / "g" / "3-new");
  EXPECT_TRUE(std::any_of(records.begin(), records.end(), [](const json& r) {
    return r["params"]["batch"] == "q5";
  })) << records.size();
  EXPECT_FALSE(std::filesystem::exists(scratch_.dir() / "g" / "4-new"));
  EXPECT_THAT(o.err, AllOf(HasSubstr("gate: round 1 of 2, "), HasSubstr(" so far, at most "),
                           ContainsRegex(" more: 2 cases undecided\ngate:   [12] cases?: "),
                           HasSubstr("gate: turn 2 of 2, new: round 1 of 2\n")));
  // Without a round, and with so many that most would decide nothing.
  const std::vector<std::string> wild = {
      "--kernel", "cpu", "--baseline", scratch_.path("wild.json"), "--allow-missing", "--filter", "/q5$"};
  const auto again = [&](std::vector<std::string> more) {
    more.insert(more.begin(), wild.begin(), wild.end());
    return gate(more);
  };
  const Outcome late = again({"--max-time", "0", "--out", "l"});
  EXPECT_EQ(late.exit_code, 4) << late.out << late.err;
  EXPECT_THAT(late.out, AllOf(HasSubstr("the limit of --max-time, 0 s, was reached (a round takes about "),
                              HasSubstr("undecided after 0 of 4 rounds: 1 case")));
  EXPECT_FALSE(std::filesystem::exists(scratch_.dir() / "l" / "2-new"));
  const Outcome hopeless = again({"--reruns", "12", "--out", "h"});
  EXPECT_EQ(hopeless.exit_code, 4) << hopeless.out << hopeless.err;
  EXPECT_THAT(hopeless.out, HasSubstr("more rounds would not decide them"));
  EXPECT_FALSE(std::filesystem::exists(scratch_.dir() / "h" / "13-new"));
  EXPECT_THAT(read_json(scratch_.dir() / "h" / "compare.json")["stopped"].get<std::string>(),
              HasSubstr("more rounds would not decide them"));
}

TEST_F(CliTimedGate, ABaselineVerifiedOtherwiseIsTwo) {
  const std::string base = scratch_.path("base.json");
  ASSERT_EQ(gate({"--kernel", "cpu", "--baseline", base, "--update-baseline", "--runs", "1", "--check", "off",
                  "--out", "b"})
                .exit_code,
            0);
  const Outcome o = gate({"--kernel", "cpu", "--baseline", base, "--reruns", "0", "--out", "g"});
  EXPECT_EQ(o.exit_code, 2) << o.out << o.err;
  EXPECT_THAT(o.err, AllOf(HasSubstr("check: 'off' in BASE, '"), HasSubstr("(--check)")));
  EXPECT_EQ(
      gate({"--kernel", "drop_last_key", "--match", "case", "--baseline", base, "--out", "g"}).exit_code, 1)
      << "a wrong result is one all the same";
  EXPECT_NE(gate({"--kernel", "cpu", "--baseline", base, "--reruns", "0", "--check", "off", "--out", "g"})
                .exit_code,
            2);
}

TEST_F(CliTimedGate, ABaselineIsOfSeveralRuns) {
  const std::string base = scratch_.path("base.json");
  const auto make = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"--kernel",          "cpu",   "--baseline", base,
                                     "--update-baseline", "--out", "b"};
    args.insert(args.end(), more.begin(), more.end());
    return gate(args);
  };
  Outcome o = make({"--runs", "3"});
  ASSERT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("now holds 3 runs of each case"));
  std::vector<double> samples;
  for (const char* run : {"1-new", "2-new", "3-new"}) {
    const json records = read_records(scratch_.dir() / "b" / run);
    for (const json& us : records[0]["time"]["samples_us"]) samples.push_back(us);
  }
  const json time = read_json(base)["benchmarks"][0]["attnbench"]["time"];
  EXPECT_EQ(time["runs"], 3);
  EXPECT_EQ(time["samples_us"].get<std::vector<double>>(), samples);
  std::sort(samples.begin(), samples.end());
  EXPECT_DOUBLE_EQ(time["median_us"].get<double>(),
                   (samples[(samples.size() - 1) / 2] + samples[samples.size() / 2]) / 2);
  o = make({"--runs", "2", "--min-effect", "0.01"});
  EXPECT_THAT(o.err, HasSubstr(" the runs of this baseline scatter by up to ")) << "all runs do";
  o = make({"--runs", "1"});
  ASSERT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("now holds 1 run of each case"));
  EXPECT_FALSE(read_json(base)["benchmarks"][0]["attnbench"]["time"].contains("runs"));
}

TEST_F(CliTimedGate, CalibrationOnABusyMachineIsSaidSo) {
  if (!std::filesystem::exists("/proc/stat") || std::getenv("MADE_UP_ROOT") != nullptr)
    GTEST_SKIP() << "no /proc/stat, which says how busy a machine is, or another machine's";
  std::atomic<bool> end = false;
  std::vector<std::thread> others;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    others.emplace_back([&end] {
      while (!end) continue;
    });
  const std::vector<std::string> files = {"--kernel", "cpu", "--baseline", scratch_.path("base.json"),
                                          "--out",    "c"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), files.begin(), files.end());
    return gate(more);
  };
  const Outcome noise = with({"--calibrate", "--pairs", "2"});
  const Outcome base = with({"--update-baseline", "--runs", "1"});
  end = true;
  for (std::thread& t : others) t.join();
  EXPECT_EQ(noise.exit_code, 0) << noise.err;
  const std::string busy = "note: the machine is busy: other processes keep ";
  EXPECT_THAT(noise.err, AllOf(HasSubstr(busy), HasSubstr("the noise that is stored will be too wide")));
  EXPECT_THAT(base.err, AllOf(HasSubstr(busy), HasSubstr("the times of the baseline will be too long")));
  const Outcome runs = with({"--calibrate", "--runs", "3"});
  EXPECT_EQ(runs.exit_code, 2);
  EXPECT_THAT(runs.err, HasSubstr("--calibrate makes two for each of --pairs: drop --runs"));
}

TEST_F(CliTimedGate, CalibrationIsStoredAndUsed) {
  const std::string base = scratch_.path("base.json"), noise = scratch_.path("base.noise.json");
  Outcome o = gate({"--kernel", "cpu", "--baseline", base, "--calibrate", "--pairs", "2", "--update-baseline",
                    "--out", "c"});
  ASSERT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("2 cases, 4 turns"), HasSubstr("base.noise.json")));
  json j = read_json(noise);
  ASSERT_EQ(j["noise"].size(), 2u);
  EXPECT_EQ(j["pairs"], 2);
  EXPECT_EQ(read_json(base)["benchmarks"][0]["attnbench"]["time"]["runs"], 4) << "all of them";
  // If runs differ by a factor of 20, nothing can be called slower.
  for (auto& [name, n] : j["noise"].items()) n["sigma"] = 3.0;
  scratch_.write("base.noise.json", j.dump());
  o = gate({"--kernel", "cpu", "--baseline", base, "--reruns", "0", "--out", "g"});
  EXPECT_EQ(o.exit_code, 4) << o.out << o.err;
  j["device"]["model"] = "another";
  scratch_.write("base.noise.json", j.dump());
  o = gate({"--kernel", "cpu", "--baseline", base, "--reruns", "0", "--out", "g"});
  EXPECT_EQ(o.exit_code, 2) << o.out << o.err;
  EXPECT_THAT(o.err, HasSubstr("calibrated elsewhere"));
}

}  // namespace
}  // namespace attnbench::testing
