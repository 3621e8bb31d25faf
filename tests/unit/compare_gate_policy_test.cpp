// The decisions of a gate, without a gate: pooled runs, rounds, and the exit code.
#include "harness/compare/gate_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/record_fixtures.h"

namespace attnbench {
namespace {

using test::sampled;
using test::set_of;
using test::with_status;
using testing::ElementsAre;

TEST(GatePolicy, RunsPoolAndTheWorstExitCodeStays) {
  GateSide side;
  add_run(side, 0, set_of({sampled("a", 100, 0.01, 10, 1)}));
  add_run(side, 3, set_of({sampled("a", 100, 0.01, 10, 2)}));
  add_run(side, 4, set_of({sampled("a", 100, 0.01, 10, 3)}));
  EXPECT_EQ(side.runs, 3);
  EXPECT_EQ(side.exit_code, 3);
  EXPECT_EQ(side.results.results.at(0).samples_us.size(), 30u);
  EXPECT_EQ(side.results.results.at(0).runs, 3);
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
  cpu.context.device_kind = "cpu";
  gpu.context.device_kind = "cuda";
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
  base.context.device_model = "H100";
  fresh.context.device_model = "H200";
  EXPECT_TRUE(gate_options({}, {}, base, fresh).as_sol);
  EXPECT_FALSE(gate_options({}, {}, base, base).as_sol);
  EXPECT_FALSE(gate_options({}, {.no_time = true}, base, fresh).as_sol);
  EXPECT_TRUE(gate_options({}, {}, base, fresh).in_turns);
  EXPECT_FALSE(gate_options({}, {.stored_baseline = true}, base, fresh).in_turns);
}

/// A gate for which the n-th comparison decides case "a".
struct Decision {
  std::vector<int> rounds;
  std::set<std::string> rerun;
  int comparisons = 0;

  CompareResult run(int most, int decided_by) {
    const ResultSet fresh = set_of({sampled("a", 100, 0.01, 10, 1)});
    return decide(
        most, fresh,
        [&] {
          CompareRow row;
          row.id = "a";
          row.ratio = 1.01;
          row.change = ++comparisons >= decided_by ? Change::kSame : Change::kInconclusive;
          CompareResult result;
          result.rows.push_back(row);
          return result;
        },
        [&](const std::set<std::string>& ids, int round) {
          EXPECT_THAT(ids, ElementsAre("a"));
          rounds.push_back(round);
        },
        rerun);
  }
};

TEST(GatePolicy, UndecidedCasesRunAgainUntilTheyAreDecided) {
  Decision d;
  EXPECT_EQ(d.run(12, 3).rows.at(0).change, Change::kSame);
  EXPECT_THAT(d.rounds, ElementsAre(1, 2));
  EXPECT_THAT(d.rerun, ElementsAre("a"));
}

TEST(GatePolicy, OrUntilNoRoundIsLeft) {
  Decision d;
  EXPECT_EQ(d.run(2, 99).rows.at(0).change, Change::kInconclusive);
  EXPECT_THAT(d.rounds, ElementsAre(1, 2));
  Decision none;
  none.run(0, 99);
  EXPECT_TRUE(none.rounds.empty());
  EXPECT_TRUE(none.rerun.empty());
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
  EXPECT_FALSE(set.results.at(0).median_us);
  EXPECT_TRUE(set.results.at(0).samples_us.empty());
}

}  // namespace
}  // namespace attnbench
