// The decisions of a gate, without a gate: pooled runs, rounds, and the exit code.
#include "harness/compare/gate_policy.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "tests/unit/results_fixtures.h"

namespace attnbench {
namespace {

using test::sampled;
using test::set_of;
using test::with_status;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(GatePolicy, RunsPoolAndTheWorstExitCodeStays) {
  GateSide side;
  add_run(side, 0, set_of({sampled("a", 100, 0.01, 10, 1)}));
  add_run(side, 3, set_of({sampled("a", 100, 0.01, 10, 2)}));
  add_run(side, 4, set_of({sampled("a", 100, 0.01, 10, 3)}));
  EXPECT_EQ(side.runs, 3);
  EXPECT_EQ(side.exit_code, 3);
  EXPECT_EQ(side.results.results.at(0).samples_us().size(), 30u);
  EXPECT_EQ(side.results.results.at(0).time->runs, 3);
  add_run(side, 139, {});
  EXPECT_EQ(side.exit_code, 5) << "a signal is a crash";
  EXPECT_TRUE(run_is_broken(side.exit_code));
}

TEST(GatePolicy, WrongAndEmptyRunsMakeNoBaseline) {
  for (const int code : {0, 3, 4}) EXPECT_TRUE(run_is_usable(code)) << code;
  for (const int code : {1, 5, 6}) EXPECT_FALSE(run_is_usable(code)) << code;
}

TEST(GatePolicy, RoundsAreFewerWhereRunsCountAsOne) {
  ResultSet cpu, gpu;
  cpu.context.device.kind = DeviceKind::kCpu;
  gpu.context.device.kind = DeviceKind::kCuda;
  GatePolicy stored{.stored_baseline = true}, in_turns;
  EXPECT_EQ(rerun_rounds(stored, cpu), kRerunsOfCpu);
  EXPECT_EQ(rerun_rounds(stored, gpu), kReruns);
  EXPECT_EQ(rerun_rounds(in_turns, cpu), kReruns);
  stored.reruns = 7;
  EXPECT_EQ(rerun_rounds(stored, cpu), 7);
  stored.update_baseline = true;
  EXPECT_EQ(rerun_rounds(stored, cpu), 0) << "nothing is left to decide";
}

TEST(GatePolicy, SidesThatWereNotTakenAlikeAreComparedByTheirShareOfTheSpeedOfLight) {
  ResultSet base = set_of({sampled("a", 100, 0.01, 10, 1)}), fresh = base;
  base.context.device.model = "H100";
  fresh.context.device.model = "H200";
  EXPECT_TRUE(gate_options({}, {}, base, fresh).as_sol);
  EXPECT_FALSE(gate_options({}, {}, base, base).as_sol);
  EXPECT_FALSE(gate_options({}, {.no_time = true}, base, fresh).as_sol);
  EXPECT_TRUE(gate_options({}, {}, base, fresh).in_turns);
  EXPECT_FALSE(gate_options({}, {.stored_baseline = true}, base, fresh).in_turns);
}

/// An undecided case: runs whose times lie apart by `sigma`, so many of each side.
CompareRow undecided(const std::string& id, double change, double sigma, int runs) {
  CompareRow row;
  row.id = id;
  row.new_kernel = "k";
  row.change = Change::kInconclusive;
  row.doubt = Doubt::kInterval;
  row.evidence = Evidence{0.02, {sigma, runs}, runs, runs, false};
  const double half = noise_half_width(row.evidence->noise, runs, runs);
  row.ratio = 1 + change;
  row.lo = *row.ratio * std::exp(-half);
  row.hi = *row.ratio * std::exp(half);
  row.not_slower = *row.hi <= 1.02;
  return row;
}

CompareRow decided(const std::string& id) {
  CompareRow row;
  row.id = id;
  row.ratio = 1.01;
  row.change = Change::kSame;
  return row;
}

/// A gate in turns whose rounds take 10 s, after 12 s of first runs.
struct Rounds {
  std::vector<Round> begun;
  RoundLimits limits{.most = 12, .first_s = 12, .per_round = {2, 2}};
  ResultSet fresh = set_of({sampled("a", 100, 0.01, 10, 1)});
  double now_s = 12;

  /// `rows(n)`: what is found with n runs of each side.
  Decision run(const std::function<std::vector<CompareRow>(int)>& rows) {
    return decide(
        limits, fresh,
        [&] {
          CompareResult result;
          result.rows = rows(2 + 2 * static_cast<int>(begun.size()));
          for (const CompareRow& row : result.rows) ++result.counts[row.change];
          result.compared = std::ssize(result.rows);
          return result;
        },
        [&](const Round& round) {
          begun.push_back(round);
          now_s += 10;
        },
        [&] { return now_s; });
  }
};

TEST(GatePolicy, UndecidedCasesRunAgainUntilTheyAreDecided) {
  Rounds r;
  const Decision d = r.run([](int runs) {
    return std::vector{runs < 6 ? undecided("a", 0.01, 0.01, runs) : decided("a"), decided("b")};
  });
  EXPECT_EQ(d.result.rows.at(0).change, Change::kSame);
  EXPECT_EQ(r.begun.size(), 2u);
  EXPECT_THAT(r.begun.at(0).ids, ElementsAre("a"));
  EXPECT_THAT(d.rerun, ElementsAre("a"));
  EXPECT_EQ(d.result.stopped, "");
}

TEST(GatePolicy, OrUntilNoRoundIsLeft) {
  const auto open = [](int runs) { return std::vector{undecided("a", 0.018, 0.01, runs)}; };
  Rounds r;
  r.limits.most = 2;
  const Decision d = r.run(open);
  EXPECT_EQ(d.result.rows.at(0).change, Change::kInconclusive);
  EXPECT_EQ(d.result.stopped, "");
  EXPECT_EQ(r.begun.size(), 2u);
  Rounds none;
  none.limits.most = 0;
  EXPECT_TRUE(none.run(open).rerun.empty());
  EXPECT_TRUE(none.begun.empty());
}

TEST(GatePolicy, NoRoundFollowsATurnThatIsWrong) {
  Rounds r;
  r.limits.settled = true;
  const Decision d = r.run([](int runs) { return std::vector{undecided("a", 0.018, 0.01, runs)}; });
  EXPECT_TRUE(r.begun.empty());
  EXPECT_EQ(d.result.stopped,
            "a turn of the new side is wrong or crashed, which settles the exit code; undecided: 1 case");
}

TEST(GatePolicy, ARoundSaysWhyHowLongAndWhatIsLeft) {
  Rounds r;
  r.run([](int runs) {
    return std::vector{undecided("a", 0.0, 0.061, runs), undecided("b", 0.0, 0.08, runs),
                       undecided("c", 0.0, 0.03, runs), undecided("d", 0.021, 0.0001, runs)};
  });
  ASSERT_GE(r.begun.size(), 3u);
  EXPECT_EQ(r.begun[0].so_far_s, 12);
  EXPECT_EQ(r.begun[0].most_left_s, 12 * 12) << "no round has been measured: as long as all cases";
  EXPECT_EQ(r.begun[2].so_far_s, 32);
  EXPECT_EQ(r.begun[2].most_left_s, 10 * 10);
  Round shown = r.begun[2];
  EXPECT_FALSE(r.begun[0].as_before);
  EXPECT_TRUE(shown.as_before) << "the same cases";
  EXPECT_EQ(round_text(shown),
            "gate: round 3 of 12, 32 s so far, at most 2 min more: 4 cases undecided, as before\n");
  shown.as_before = false;
  shown.so_far_s = 170;
  shown.most_left_s = 55;
  EXPECT_EQ(
      round_text(shown),
      "gate: round 3 of 12, 3 min so far, at most 55 s more: 4 cases undecided\n"
      "gate:   3 cases: equal runs scatter by 3 to 8 % (standard deviation), more than the 2 % looked for "
      "(a, b and 1 more)\n"
      "gate:   1 case: the change lies about at the 2 % looked for, and is known to +/- 0.015 % (d)\n");
}

TEST(GatePolicy, TheOutcomeNamesWhatFails) {
  const auto outcome = [](const std::vector<Change>& changes, int code, GatePolicy policy = {},
                          const CompareOptions& options = {}) {
    CompareResult r;
    for (const Change c : changes) {
      CompareRow row;
      row.change = c;
      r.rows.push_back(row);
    }
    return gate_outcome(policy, r, options, code);
  };
  EXPECT_EQ(outcome({Change::kSame, Change::kFaster}, 0), "no case slower");
  EXPECT_EQ(outcome({Change::kSlower, Change::kSame}, 3), "1 case slower");
  EXPECT_EQ(outcome({Change::kSlower, Change::kIncorrect, Change::kSlower, Change::kInconclusive}, 1),
            "1 case incorrect, 2 cases slower, 1 case inconclusive");
  EXPECT_EQ(outcome({Change::kError}, 5), "1 case with an error");
  CompareResult edge;
  edge.rows.resize(3);
  for (CompareRow& row : edge.rows) row.change = Change::kInconclusive;
  edge.rows[1].not_slower = true;
  EXPECT_EQ(gate_outcome({}, edge, {}, 4), "3 cases inconclusive, of which 1 cannot be slower");
  EXPECT_EQ(outcome({}, 6), "nothing was compared: no case has a right result and a time on both sides");
  EXPECT_EQ(outcome({Change::kSame}, 5), "a turn of the new side is wrong or crashed");
  GatePolicy no_time;
  no_time.no_time = true;
  EXPECT_EQ(outcome({Change::kNotCompared}, 0, no_time), "no case incorrect or missing");
  CompareOptions fewer;
  fewer.allow_missing = true;
  EXPECT_EQ(outcome({Change::kMissingNew, Change::kSame}, 0, {}, fewer),
            "no case slower, 1 case of one side alone, as allowed");
  CompareOptions lenient;
  lenient.allow_inconclusive = true;
  EXPECT_EQ(outcome({Change::kInconclusive}, 0, {}, lenient), "no case slower, 1 case undecided, as allowed");
}

TEST(GatePolicy, AMachineThatHidesCasesIsGivenCoresOnlyByAKernelThatHasAll) {
  CompareResult r;
  r.rows.resize(2);
  DeviceInfo device;
  device.threads = 2;
  EXPECT_EQ(hidden_text(r, device, 2), "");
  r.rows[0].change = Change::kInconclusive;
  r.rows[0].doubt = Doubt::kMachine;
  EXPECT_EQ(
      hidden_text(r, device, 2),
      "gate: other work on the machine hid 1 case: end it, or if it needs only some of the cores, leave it those with --threads N\n");
  device.threads = 1;
  const std::string other =
      "gate: other work on the machine hid 1 case: end it, or run the gate again when it has ended\n";
  EXPECT_EQ(hidden_text(r, device, 2), other);
  EXPECT_EQ(hidden_text(r, device, 1), other) << "a machine of one core";
  device = {.kind = DeviceKind::kCuda};
  EXPECT_EQ(hidden_text(r, device, 2), other) << "a GPU";
}

TEST(GatePolicy, DurationsAreRoundedAndLimitsRoundedUp) {
  EXPECT_EQ(duration_text(0.4), "0 s");
  EXPECT_EQ(duration_text(0.4, true), "1 s");
  EXPECT_EQ(duration_text(121), "2 min");
  EXPECT_EQ(duration_text(121, true), "3 min");
  EXPECT_EQ(duration_text(3600), "1 h");
  EXPECT_EQ(duration_text(7500), "2 h 5 min");
}

Ahead ahead_of(double turn_s, int turns_left, int turns_a_round, int rounds) {
  Ahead ahead;
  ahead.turn_s = ahead.so_far_s = turn_s;
  ahead.turns_left = turns_left;
  ahead.turns_a_round = turns_a_round;
  ahead.rounds = rounds;
  return ahead;
}

TEST(GatePolicy, SaysWhatIsAheadAfterTheFirstTurn) {
  EXPECT_EQ(
      ahead_text(ahead_of(95, 3, 4, 12)),
      "gate: this turn took 95 s; 3 more take about 5 min; while cases are undecided, up to 12 rounds of "
      "about 6 min follow\n"
      "gate:   to shorten it, take fewer or smaller cases (--filter REGEX, --set heads=4/2) or limit the "
      "rounds (--max-time S)\n");
  EXPECT_THAT(ahead_text(ahead_of(40, 0, 1, 4)),
              HasSubstr("took 40 s; while cases are undecided, up to 4 rounds"));
  EXPECT_THAT(ahead_text(ahead_of(40, 1, 0, 0)),
              AllOf(HasSubstr("1 more takes about 40 s\n"), Not(HasSubstr("--max-time"))));
  EXPECT_EQ(ahead_text(ahead_of(7, 3, 4, 12)), "") << "it is over soon";
  EXPECT_EQ(ahead_text(ahead_of(300, 0, 1, 0)), "") << "nothing follows";
}

TEST(GatePolicy, TheTimeLimitCutsTheRoundsThatAreAhead) {
  Ahead ahead = ahead_of(100, 3, 4, 12);
  ahead.max_time_s = 1000;  // rounds begin at 400 and 800 s
  EXPECT_THAT(ahead_text(ahead), AllOf(HasSubstr("up to 2 rounds of about 7 min follow (--max-time)\n"),
                                       Not(HasSubstr("limit the rounds"))));
  ahead.max_time_s = 400;
  EXPECT_THAT(
      ahead_text(ahead),
      HasSubstr(
          "about 5 min; no round follows, because --max-time is over by then: --max-time 401 allows one\n"));
  ahead.max_time_s = 1e6;
  EXPECT_THAT(ahead_text(ahead), HasSubstr("up to 12 rounds of about 7 min follow\n"));
}

TEST(GatePolicy, WhatShortensAGateIsNotAdvisedTwice) {
  Ahead ahead = ahead_of(100, 3, 4, 12);
  ahead.heads_set = true;
  EXPECT_THAT(ahead_text(ahead), HasSubstr("smaller cases (--filter REGEX) or limit"));
  ahead.filtered = true;
  EXPECT_THAT(ahead_text(ahead), HasSubstr("smaller cases (a narrower --filter) or limit"));
}

TEST(GatePolicy, RoundsThatWouldDecideNothingAreNotRun) {
  const auto noisy = [](int runs) {
    return std::vector{undecided("a", 0.0, 0.12, runs), undecided("b", 0.005, 0.2, runs)};
  };
  Rounds r;
  const Decision d = r.run(noisy);
  EXPECT_GE(r.begun.size(), static_cast<std::size_t>(kLeastRounds));
  EXPECT_LT(r.begun.size(), 8u);
  EXPECT_THAT(
      d.result.stopped,
      fmt::format("more rounds would not decide them; undecided after {} of 12 rounds: 2 cases: equal runs "
                  "scatter by 12 to 20 % (standard deviation), more than the 2 % looked for (a, b)",
                  r.begun.size()));
  EXPECT_EQ(d.result.count(Change::kInconclusive), 2);
  EXPECT_EQ(compare_exit_code(d.result, {}), 4) << "undecided stays undecided";
  // One case that rounds may decide keeps the gate going for all.
  Rounds hopeful;
  hopeful.run([&](int runs) {
    std::vector<CompareRow> rows = noisy(runs);
    rows.push_back(undecided("c", 0.0, 0.025, runs));
    return rows;
  });
  EXPECT_EQ(hopeful.begun.size(), 12u);
}

TEST(GatePolicy, ACaseThatTheMachineHidesHasPatience) {
  CompareRow row = undecided("a", 0.5, 0.01, 2);
  row.doubt = Doubt::kMachine;
  row.note = "the probe cores_us moved; run both sides again on a quiet machine";
  Rounds r;
  const Decision d = r.run([&](int) { return std::vector{row}; });
  EXPECT_EQ(r.begun.size(), static_cast<std::size_t>(kPatience) - 1);
  EXPECT_THAT(d.result.stopped, HasSubstr("the machine hides the change: the probe cores_us moved (a)"));
  // A comparison with hope does not count, and one that the machine does not hide may go on.
  Rounds again;
  again.run([&](int runs) { return std::vector{runs == 6 ? undecided("a", 0.015, 0.01, runs) : row}; });
  EXPECT_EQ(again.begun.size(), static_cast<std::size_t>(kPatience));
  Rounds quiet;
  quiet.run([&](int runs) { return std::vector{runs < 12 ? row : undecided("a", 0.015, 0.01, runs)}; });
  EXPECT_GT(quiet.begun.size(), static_cast<std::size_t>(kPatience));
}

TEST(GatePolicy, NoRoundBeginsAfterTheTimeLimit) {
  const auto open = [](int runs) { return std::vector{undecided("a", 0.018, 0.01, runs)}; };
  Rounds r;
  r.limits.max_time_s = 35;  // rounds begin at 12, 22 and 32 s
  const Decision d = r.run(open);
  EXPECT_EQ(r.begun.size(), 3u);
  EXPECT_EQ(r.begun.at(2).most_left_s, 3 + 10) << "the round that is running then ends";
  EXPECT_THAT(
      d.result.stopped,
      HasSubstr("the limit of --max-time, 35 s, was reached (a round takes about 10 s; fewer or smaller "
                "cases allow more); undecided after 3 of 12 rounds: 1 case: "));
  EXPECT_EQ(compare_exit_code(d.result, {}), 4);
  Rounds late;
  late.limits.max_time_s = 5;
  EXPECT_THAT(late.run(open).result.stopped, HasSubstr("undecided after 0 of 12 rounds"));
  EXPECT_TRUE(late.begun.empty());
}

TEST(GatePolicy, WhatOneRunSawIsUndecidedWhereTheGateEndsEarly) {
  CompareRow slower = decided("a"), faster = decided("b");
  slower.change = Change::kSlower;
  faster.change = Change::kFaster;
  slower.new_kernel = faster.new_kernel = "k";
  Rounds r;
  r.fresh = set_of({sampled("a", 120, 0.01, 10, 1), sampled("b", 80, 0.01, 10, 2)});
  r.limits.max_time_s = 5;
  const Decision d = r.run([&](int) { return std::vector{slower, faster}; });
  EXPECT_EQ(d.result.count(Change::kInconclusive), 2);
  EXPECT_EQ(d.result.count(Change::kSlower) + d.result.count(Change::kFaster), 0);
  EXPECT_EQ(d.result.rows.at(0).note, "slower in one run, which no second one confirmed");
  EXPECT_EQ(compare_exit_code(d.result, {}), 4);
  EXPECT_TRUE(d.result.rows.at(1).not_slower);
  Rounds goes_on;
  goes_on.fresh = r.fresh;
  goes_on.run([&](int) { return std::vector{slower}; });
  EXPECT_EQ(goes_on.begun.size(), 12u) << "a second run may always confirm it";
}

TEST(GateOutlook, TheChanceIsThatOfTheIntervalAfterMoreRuns) {
  const auto chance = [](double change, double sigma, int runs, int more) {
    return chance_to_decide(undecided("a", change, sigma, runs), {more, more});
  };
  EXPECT_GT(chance(0.0, 0.04, 4, 40), 0.5) << "enough runs decide anything";
  EXPECT_LT(chance(0.0, 0.3, 12, 4), 0.01);
  EXPECT_GT(chance(0.08, 0.06, 8, 18), chance(0.04, 0.06, 8, 18)) << "slower by more";
  EXPECT_GT(chance(0.0, 0.06, 8, 180), chance(0.0, 0.06, 8, 18));
  // The formula against gates: of those with so many runs, how many are decided once they have all of them.
  std::mt19937_64 rng(1);
  const auto rate = [&](double truth, double sigma, int runs, int all) {
    double expected = 0, seen = 0;
    for (int gate = 0; gate < 2000; ++gate) {
      std::normal_distribution<double> normal(std::log1p(truth), sigma * std::sqrt(2.0));
      const auto row_of = [&](double sum, int n) { return undecided("a", std::exp(sum / n) - 1, sigma, n); };
      double sum = 0;
      for (int i = 0; i < runs; ++i) sum += normal(rng);
      const CompareRow now = row_of(sum, runs);
      // Drawn as the formula sees it: the truth is as uncertain as the runs so far leave it.
      std::normal_distribution<double> around(sum / runs, sigma * std::sqrt(2.0 / runs));
      std::normal_distribution<double> further(around(rng), sigma * std::sqrt(2.0));
      for (int i = runs; i < all; ++i) sum += further(rng);
      const CompareRow then = row_of(sum, all);
      expected += chance_to_decide(now, {all - runs, all - runs});
      const bool same = *then.lo >= 0.98 && *then.hi <= 1.02;
      seen += *then.lo > 1.02 || *then.hi < 0.98 || same || (!now.not_slower && then.not_slower);
    }
    return std::pair{expected / 2000, seen / 2000};
  };
  for (const double truth : {0.0, 0.03}) {
    for (const double sigma : {0.03, 0.06, 0.12}) {
      const auto [expected, seen] = rate(truth, sigma, 8, 26);
      EXPECT_NEAR(expected, seen, 0.04) << truth << " " << sigma;
    }
  }
}

TEST(GateOutlook, RunsThatCountAsOneDecideLittle) {
  CompareRow row = undecided("a", 0.0, 0.02, 16);
  row.evidence->runs_as_one = true;
  const double half = noise_half_width(row.evidence->noise, 1, 1);
  row.lo = std::exp(-half);
  row.hi = std::exp(half);
  EXPECT_LT(chance_to_decide(row, {0, 4}), 0.01);
}

TEST(GatePolicy, TheExitCodeIsTheWorseOfComparisonAndRun) {
  const auto code_of = [](const GatePolicy& policy, Change change, int64_t compared, int run_code,
                          const ResultSet& results) {
    CompareResult result;
    result.counts[change] = 1;
    result.compared = compared;
    return gate_exit_code(policy, result, {}, {results, run_code, 1});
  };
  const ResultSet right = set_of({with_status("a", Status::kPass)});
  EXPECT_EQ(code_of({}, Change::kSame, 1, 0, right), 0);
  EXPECT_EQ(code_of({}, Change::kSlower, 1, 0, right), 3);
  EXPECT_EQ(code_of({}, Change::kSlower, 1, 1, right), 1) << "wrong is worse than slower";
  EXPECT_EQ(code_of({}, Change::kSame, 1, 4, right), 0)
      << "a run's doubtful time is the comparison's to judge";
  EXPECT_EQ(code_of({}, Change::kNotCompared, 0, 0, right), 6);
  EXPECT_EQ(code_of({.no_time = true}, Change::kNotCompared, 0, 0, right), 0) << "right is enough";
  EXPECT_EQ(code_of({.no_time = true}, Change::kNotCompared, 0, 6, set_of({})), 6);
}

TEST(GatePolicy, WithoutTimesABaselineKeepsWhatWasRight) {
  ResultSet set = set_of({sampled("a", 100, 0.01, 10, 1)});
  drop_times(set);
  EXPECT_EQ(set.results.at(0).status, Status::kPass);
  EXPECT_FALSE(set.results.at(0).median_us());
  EXPECT_TRUE(set.results.at(0).samples_us().empty());
}

}  // namespace
}  // namespace attnbench
