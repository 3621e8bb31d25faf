// The parts of a gate: pooled runs, noise between runs, clocks, and the formats of a comparison.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "harness/compare/compare.h"
#include "harness/compare/gate_policy.h"
#include "harness/compare/join_runs.h"
#include "harness/compare/noise.h"
#include "tests/unit/compare_fixtures.h"

namespace attnbench {
namespace {

using test::kHostile;
using test::one;
using test::sampled;
using test::set_of;
using test::with_status;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Record at_clock(double us, double mhz, uint64_t seed) {
  Record r = sampled("a", us, 0.002, 40, seed);
  r.time->clocks.sm_mhz = mhz;
  return r;
}

TEST(CompareGate, ASlowerClockIsNoSlowerKernel) {
  // 6 % fewer MHz, 6 % more time: the same cycles.
  const CompareRow row = one(at_clock(100, 1980, 1), at_clock(106, 1868, 2));
  EXPECT_EQ(row.change, Change::kInconclusive);
  EXPECT_THAT(row.note, AllOf(HasSubstr("slower in time, "), HasSubstr("1980 MHz in BASE, 1868 in NEW")));
  EXPECT_EQ(one(at_clock(100, 1980, 1), at_clock(106, 1975, 2)).change, Change::kSlower) << "within 1 %";
  EXPECT_EQ(one(at_clock(100, 1980, 1), at_clock(120, 1868, 2)).change, Change::kSlower) << "in cycles too";
  EXPECT_EQ(one(at_clock(100, 1868, 1), at_clock(94, 1980, 2)).change, Change::kInconclusive)
      << "nor is a faster clock a faster kernel";
  EXPECT_EQ(one(at_clock(100, 1980, 1), at_clock(100, 1868, 2)).change, Change::kSame)
      << "bound by memory: fewer cycles are no gain";
  Record unknown = at_clock(106, 1868, 2);
  unknown.time->clocks.sm_mhz.reset();
  EXPECT_EQ(one(at_clock(100, 1980, 1), unknown).change, Change::kSlower);
}

TEST(CompareGate, ThrottledCasesAreMarkedNotDropped) {
  Record fresh = sampled("a", 110, 0.002, 40, 2);
  fresh.time->clocks.throttle = {"sw_power_cap"};
  const CompareRow row = one(sampled("a", 100, 0.002, 40, 1), fresh);
  EXPECT_EQ(row.change, Change::kSlower);
  EXPECT_EQ(row.note, "throttled in NEW");
}

TEST(CompareGate, TwoSpeedsAreSaid) {
  Record fresh = sampled("a", 100, 0.002, 40, 2);
  for (std::size_t i = 0; i < 30; ++i) fresh.time->samples_us[i] *= 1.1;
  const Record base = sampled("a", 100, 0.002, 40, 1);
  EXPECT_THAT(one(base, fresh).note,
              AllOf(HasSubstr("two speeds in NEW: "), HasSubstr(" us in 25 % of the samples, ")));
  fresh.time->runs = 2;
  EXPECT_THAT(one(base, fresh).note, Not(HasSubstr("two speeds")))
      << "of pooled runs each may have its own speed";
}

TEST(CompareGate, NoiseBetweenRunsWidensTheInterval) {
  const Record base = sampled("a", 100, 0.002, 40, 1), fresh = sampled("a", 104, 0.002, 40, 2);
  ASSERT_EQ(one(base, fresh).change, Change::kSlower);
  CompareOptions options;
  options.noise_of["a/k"] = {0.03, 10};
  const CompareRow noisy = one(base, fresh, options);
  EXPECT_EQ(noisy.change, Change::kInconclusive);
  // 4 %, widened by a factor of exp(t * 0.03 * sqrt(2)) with t = 2.262 for 9 degrees of freedom.
  EXPECT_NEAR(*noisy.lo, *noisy.ratio * std::exp(-2.262 * 0.03 * std::sqrt(2.0)), 0.001);
  EXPECT_GT(*noisy.p, 0.1);
  options.noise_of["a/k"] = {0.003, 10};
  EXPECT_EQ(one(base, fresh, options).change, Change::kSlower);
  options.noise_of = {{"b/k", {0.5, 10}}};
  EXPECT_EQ(one(base, fresh, options).change, Change::kSlower) << "another case's noise";
  // With more runs on a side, the noise widens the interval less.
  RatioTest few{1.04, 1.039, 1.041, 0.001}, many = few;
  widen_by_noise(few, {0.03, 10}, 1, 1, 0.02);
  widen_by_noise(many, {0.03, 10}, 4, 4, 0.02);
  EXPECT_NEAR(std::log(many.hi / many.lo), std::log(few.hi / few.lo) / 2, 1e-9);
  RatioTest wide{1.0, 0.5, 2.0, 1};
  widen_by_noise(wide, {0.001, 10}, 1, 1, 0.02);
  EXPECT_EQ(wide.lo, 0.5) << "never narrower";
}

/// Runs differ by more than their samples show, as on a machine whose clock or memory layout changes between
/// runs.
TEST(CompareGate, CalibrationKeepsFalseAlarmsDown) {
  constexpr int kPairs = 300;
  constexpr double kBetweenRuns = 0.02;
  std::mt19937_64 rng(11);
  std::normal_distribution<double> shift(0, kBetweenRuns);
  CompareOptions calibrated;
  calibrated.noise_of["a/k"] = {kBetweenRuns, 10};
  int plain = 0, kept = 0, caught = 0;
  for (int i = 0; i < kPairs; ++i) {
    const Record base = sampled("a", 100 * std::exp(shift(rng)), 0.005, 30, 3 * i);
    const double us = 100 * std::exp(shift(rng));
    const Record equal = sampled("a", us, 0.005, 30, 3 * i + 1);
    plain += one(base, equal).change == Change::kSlower;
    kept += one(base, equal, calibrated).change == Change::kSlower;
    caught += one(base, sampled("a", 1.2 * us, 0.005, 30, 3 * i + 2), calibrated).change == Change::kSlower;
  }
  std::printf(
      "equal runs called slower: %d of %d without a calibration, %d with; of 20 %% slower ones %d caught\n",
      plain, kPairs, kept, caught);
  EXPECT_GT(plain, kPairs / 10) << "the test would prove nothing";
  EXPECT_LE(kept, kPairs / 100);
  EXPECT_GE(caught, kPairs * 99 / 100);
}

TEST(CompareGate, RunsThatDisagreeDecideNothing) {
  const auto new_side = [](std::vector<double> us) {
    ResultSet set = set_of({sampled("a", us[0], 0.002, 40, 2)});
    for (std::size_t i = 1; i < us.size(); ++i)
      pool_runs(set, set_of({sampled("a", us[i], 0.002, 40, 2 + i)}));
    return set;
  };
  const Record base = sampled("a", 100, 0.002, 40, 1);
  const auto verdict = [&](std::vector<double> us) {
    return compare_results(set_of({base}), new_side(std::move(us)), {}).rows.at(0);
  };
  EXPECT_EQ(verdict({106}).change, Change::kSlower) << "one run, as compare has it";
  EXPECT_EQ(verdict({106, 106}).change, Change::kSlower);
  EXPECT_EQ(verdict({94, 94, 94}).change, Change::kFaster);
  const CompareRow once = verdict({110, 100});
  EXPECT_EQ(once.change, Change::kInconclusive);
  EXPECT_EQ(
      once.note,
      "equal runs scatter by 6.7 % (standard deviation), more than the 2 % looked for; 1 run of BASE and 2 runs "
      "of NEW");
  const auto why = why_undecided({{&once}});
  EXPECT_THAT(
      why, testing::ElementsAre("1 case: equal runs scatter by 6.7 % (standard deviation), more than the 2 % "
                                "looked for (a)"))
      << "the reason of the note";
  EXPECT_EQ(verdict({100, 90}).change, Change::kInconclusive);
  EXPECT_EQ(verdict({110, 100, 100, 100}).change, Change::kInconclusive) << "nor does a vote settle it";
  // For both directions, a rerun settles the verdict.
  for (const double us : {106.0, 94.0}) {
    const ResultSet fresh = new_side({us});
    EXPECT_EQ(undecided_cases(compare_results(set_of({base}), fresh, {}), fresh).count("a"), 1u) << us;
    const ResultSet twice = new_side({us, us});
    EXPECT_TRUE(undecided_cases(compare_results(set_of({base}), twice, {}), twice).empty()) << us;
  }
}

TEST(CompareGate, WhatEqualRunsDoNotTellIsInconclusiveAndSaid) {
  CompareOptions options;
  options.noise_of["a/k"] = {0.01, 10};  // 2.262 * 1 % * sqrt(2): 3.2 % either way
  const CompareRow row = one(sampled("a", 100, 0.002, 40, 1), sampled("a", 100.5, 0.002, 40, 2), options);
  EXPECT_EQ(row.change, Change::kInconclusive) << "5 % slower would look the same";
  EXPECT_EQ(row.note, "the change is known to +/- 3.3 % only, and 2 % is looked for; 1 run a side");
  options.noise_of["a/k"] = {0.003, 10};
  EXPECT_EQ(one(sampled("a", 100, 0.002, 40, 1), sampled("a", 100.5, 0.002, 40, 2), options).change,
            Change::kSame);
}

TEST(CompareGate, TheCalibrationOfEitherKernelCounts) {
  CompareOptions options;
  options.match = Match::kId;
  const Record old = sampled("a", 100, 0.002, 40, 1, "old"), fresh = sampled("a", 104, 0.002, 40, 2, "fresh");
  EXPECT_EQ(one(old, fresh, options).change, Change::kSlower);
  for (const char* calibrated : {"a/old", "a/fresh"}) {
    options.noise_of = {{calibrated, {0.03, 10}}};
    EXPECT_EQ(one(old, fresh, options).change, Change::kInconclusive) << calibrated;
  }
  options.noise_of = {{"a/another", {0.03, 10}}};
  EXPECT_EQ(one(old, fresh, options).change, Change::kSlower);
}

TEST(CompareGate, TwoTicksOfTheTimerAreNoDifference) {
  const auto all = [](double us) {
    Record r = sampled("a", us, 1e-9, 40, 1);
    return r;
  };
  const CompareRow tick = one(all(1.216), all(1.248));
  EXPECT_EQ(tick.change, Change::kSame) << "2.6 %, one tick";
  EXPECT_EQ(tick.note, "same within 5.3 %: two ticks of the timer");
  EXPECT_EQ(one(all(1.216), all(1.312)).change, Change::kSlower) << "three";
  EXPECT_EQ(one(all(5), all(5.15)).change, Change::kSlower) << "2 % are more than two ticks";
  Record base = all(1.216), fresh = all(1.248);
  base.device = fresh.device = "cpu";
  EXPECT_EQ(one(base, fresh).change, Change::kSlower) << "another timer";
}

/// Samples of a short kernel as seen on an H100: steps of 0.17 us, ticks of 0.032 us, every fourth sample 0.8
/// us later, and a shift per run. The first case has two states, 8 % apart, one per run, like a case of
/// configs/ci.yaml.
ResultSet stepped_run(int cases, double slower, double between_runs, std::mt19937_64& rng) {
  std::normal_distribution<double> shift(0, between_runs), tick(0, 0.02);
  std::discrete_distribution<int> step({14, 45, 32, 9});
  std::vector<Record> out;
  for (int c = 0; c < cases; ++c) {
    Record r = sampled("c" + std::to_string(c), 1, 0, 1, 1);
    r.time->samples_us.clear();
    const double state = c == 0 && rng() % 2 == 0 ? 1.08 : 1;
    const double scale = (1 + slower) * state * std::exp(shift(rng));
    for (int i = 0; i < 300; ++i) {
      const double us = (4.75 + 0.4 * c + 0.17 * step(rng) + tick(rng) + (i % 4 == 3 ? 0.8 : 0)) * scale;
      r.time->samples_us.push_back(kEventTickUs * std::round(us / kEventTickUs));
    }
    const MedianInterval m = median_interval(r.time->samples_us);
    r.time->median_us = m.median;
    r.time->lo_us = m.lo;
    r.time->hi_us = m.hi;
    out.push_back(std::move(r));
  }
  return set_of(std::move(out));
}

TEST(CompareGate, TimesInStepsAreDecided) {
  constexpr int kGates = 8, kCases = 5, kRounds = 3, kBaseRuns = 8;
  constexpr double kBetweenRuns = 0.003;
  std::mt19937_64 rng(17);
  for (const double slower : {0.0, 0.02, 0.03, 0.05, 0.1}) {
    int exit_code[7] = {}, named = 0, same = 0, undecided = 0;
    for (int gate = 0; gate < kGates; ++gate) {
      ResultSet base = stepped_run(kCases, 0, kBetweenRuns, rng);
      ResultSet fresh = stepped_run(kCases, slower, kBetweenRuns, rng);
      for (int i = 1; i < kBaseRuns; ++i) pool_runs(base, stepped_run(kCases, 0, kBetweenRuns, rng));
      CompareResult r = compare_results(base, fresh, {});
      for (int round = 0; round < kRounds; ++round) {
        const std::set<std::string> ids = undecided_cases(r, fresh);
        if (ids.empty()) break;
        pool_runs(fresh, stepped_run(kCases, slower, kBetweenRuns, rng));
        r = compare_results(base, fresh, {});
      }
      ++exit_code[compare_exit_code(r, {})];
      named += static_cast<int>(r.count(Change::kSlower));
      same += static_cast<int>(r.count(Change::kSame));
      undecided += static_cast<int>(r.count(Change::kInconclusive));
    }
    std::printf("%2.0f %% slower: of %d gates %d same, %d slower (%d of %d cases), %d inconclusive\n",
                100 * slower, kGates, exit_code[0], exit_code[3], named, kGates * kCases, exit_code[4]);
    if (slower == 0) {
      EXPECT_EQ(exit_code[3], 0);
      EXPECT_EQ(undecided, kGates) << "8 % between two states hide 5 %";
      EXPECT_GT(exit_code[4], 0) << "where it may be slower";
      EXPECT_EQ(same, kGates * (kCases - 1));
    }
    if (slower >= 0.05) {
      EXPECT_EQ(exit_code[3], kGates);
      EXPECT_GE(named, kGates * (kCases - 1)) << "all but the one with two states";
      EXPECT_EQ(same, 0);
    }
    if (slower == 0.03) {
      EXPECT_EQ(same, 0) << "never waved through";
    }
  }
}

TEST(CompareGate, RunsTellTheirOwnNoise) {
  const RunNoise n = noise_of_runs(std::vector<double>{98, 100, 102}, std::vector<double>{118, 120, 122});
  EXPECT_EQ(n.runs, 5) << "four degrees of freedom";
  EXPECT_NEAR(n.sigma, std::sqrt((2 * 0.02 * 0.02 + 2 * std::pow(2.0 / 120, 2)) / 4), 1e-4);
  EXPECT_EQ(noise_of_runs(std::vector<double>{98}, std::vector<double>{118, 120, 122}).runs, 3);
  EXPECT_EQ(noise_of_runs(std::vector<double>{98}, std::vector<double>{118}).runs, 0);
  EXPECT_EQ(noise_of_runs(std::vector<double>{98, 100, 102}, {}).runs, 3);
  // A noisy base makes a difference of the size of its noise uncertain.
  ResultSet base = set_of({sampled("a", 100, 0.002, 40, 1)});
  for (const double us : {106.0, 101.0, 107.0}) pool_runs(base, set_of({sampled("a", us, 0.002, 40, 7)}));
  const ResultSet fresh = set_of({sampled("a", 110, 0.002, 40, 2)});
  EXPECT_EQ(compare_results(base, fresh, {}).rows.at(0).change, Change::kInconclusive);
}

TEST(CompareGate, ARunWithoutItsNeighbourTellsItsNoiseToo) {
  // As an interrupted gate leaves it: equal kernels, whose runs differ by 5 %.
  const auto runs = [](std::initializer_list<double> us) {
    ResultSet set = set_of({sampled("a", *us.begin(), 0.001, 20, 1)});
    uint64_t seed = 2;
    for (auto it = us.begin() + 1; it != us.end(); ++it)
      pool_runs(set, set_of({sampled("a", *it, 0.001, 20, seed++)}));
    return set;
  };
  CompareOptions options;
  options.in_turns = true;
  const CompareRow row = compare_results(runs({100, 106, 95}), runs({104, 110, 99, 108}), options).rows.at(0);
  EXPECT_EQ(row.change, Change::kInconclusive);
  ASSERT_TRUE(row.evidence);
  EXPECT_NEAR(row.evidence->noise.sigma, 0.05, 0.01);
  EXPECT_EQ(row.doubt, Doubt::kInterval);
}

TEST(CompareGate, NoiseIsTheSpreadOfRuns) {
  const auto run = [](double us) { return set_of({sampled("a", us, 1e-9, 9, 1)}); };
  const std::vector<ResultSet> runs = {run(100), run(102), run(98)};
  const auto noise = noise_between(runs);
  ASSERT_EQ(noise.count("a/k"), 1u);
  EXPECT_EQ(noise.at("a/k").runs, 3);
  EXPECT_NEAR(noise.at("a/k").sigma, 0.02, 2e-4);
  EXPECT_TRUE(noise_between(std::vector{runs[0]}).empty()) << "one run has no spread";
}

TEST(CompareGate, NoiseFilesComeBack) {
  NoiseFile file;
  file.context.device.model = "H100";
  file.pairs = 5;
  file.noise_of["a/k"] = {0.004, 10};
  const std::string path = testing::TempDir() + "attnbench_noise_test." + std::to_string(getpid()) + ".json";
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  write(noise_to_text(file));
  const NoiseFile back = load_noise(path);
  EXPECT_EQ(back.context.device.model, "H100");
  EXPECT_EQ(back.pairs, 5);
  EXPECT_EQ(back.noise_of.at("a/k").sigma, 0.004);
  EXPECT_EQ(back.noise_of.at("a/k").runs, 10);
  for (const char* bad :
       {"", "[]", "{}", "{\"attnbench_noise\": 1}",
        "{\"attnbench_noise\": 1, \"device\": {}, \"noise\": {\"a\": {\"sigma\": -1, \"runs\": 9}}}",
        "{\"attnbench_noise\": 1, \"device\": {}, \"noise\": {\"a\": {\"runs\": 9}}}"}) {
    write(bad);
    EXPECT_THROW(load_noise(path), ResultsError) << bad;
  }
  std::remove(path.c_str());
  EXPECT_THROW(load_noise(path), ResultsError);
}

TEST(CompareGate, RunsArePooled) {
  ResultSet set =
      set_of({sampled("a", 100, 0.01, 10, 1), sampled("b", 100, 0.01, 10, 2), sampled("c", 1, 0.01, 9, 3)});
  Record wrong = with_status("b", Status::kFail);
  wrong.device = "cuda:0";
  pool_runs(set, set_of({sampled("a", 110, 0.01, 20, 4), wrong, sampled("d", 5, 0.01, 9, 5)}));
  ASSERT_EQ(set.results.size(), 4u);
  EXPECT_EQ(set.results[0].time->samples_us.size(), 30u);
  EXPECT_EQ(set.results[0].time->runs, 2);
  EXPECT_NEAR(set.results[0].time->median_us, 109, 2);
  EXPECT_EQ(set.results[1].status, Status::kFail) << "wrong once is wrong";
  EXPECT_EQ(set.results[2].time->runs, 1);
  EXPECT_EQ(set.results[3].item.id, "d");
  pool_runs(set, set_of({sampled("b", 100, 0.01, 10, 2)}));
  EXPECT_EQ(set.results[1].status, Status::kFail) << "and stays it";
}

TEST(CompareGate, NewCasesMayBeAllowedAlone) {
  CompareResult r;
  r.compared = 1;
  r.counts[Change::kMissingBase] = 1;
  CompareOptions options;
  EXPECT_EQ(compare_exit_code(r, options), 1);
  options.allow_new = true;
  EXPECT_EQ(compare_exit_code(r, options), 0);
  r.counts[Change::kMissingNew] = 1;
  EXPECT_EQ(compare_exit_code(r, options), 1) << "coverage was lost";
}

TEST(CompareGate, PlainGoogleBenchmarkPairsWithOursByName) {
  Record ours = sampled("a", 100, 0.002, 30, 1), plain = sampled("a", 100, 0.002, 30, 2);
  plain.item.id = "a/k";
  plain.kernel = plain.device = "";
  EXPECT_EQ(one(ours, plain).change, Change::kSame);
  EXPECT_EQ(one(plain, ours).change, Change::kSame);
  EXPECT_EQ(one(plain, plain).change, Change::kSame);
}

}  // namespace
}  // namespace attnbench
