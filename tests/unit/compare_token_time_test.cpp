// The time of a replay per generated token.
#include "harness/compare/token_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "harness/serving/replay.h"
#include "tests/unit/results_fixtures.h"

namespace attnbench {
namespace {

using ::testing::HasSubstr;

constexpr const char* kReplay = "{mix: sharegpt, seed: 1}";

StepTime step_time(int64_t step, int64_t stratum, int64_t stratum_steps, int64_t steps, double us) {
  return {"case" + std::to_string(step),
          "group",
          "k",
          "cpu",
          {"sharegpt", "", "", kReplay, step, steps, 100, stratum, stratum_steps, 4},
          us,
          us,
          us};
}

TEST(TokenTime, DrawnStepsStandForTheirStratum) {
  const std::vector<StepTime> steps = {step_time(3, 0, 10, 14, 5), step_time(4, 0, 10, 14, 7),
                                       step_time(8, 1, 4, 14, 100), step_time(9, 1, 4, 14, 110)};
  const std::vector<TokenTime> t = token_times(steps);
  ASSERT_EQ(t.size(), 1u);
  EXPECT_DOUBLE_EQ(*t[0].us, (10 * 6.0 + 4 * 105.0) / 100);
  EXPECT_LT(*t[0].lo, *t[0].us);
  EXPECT_GT(*t[0].hi, *t[0].us);
  EXPECT_THAT(token_time_text(t[0]), HasSubstr("group: k 4.800 us per generated token and layer"));
  EXPECT_THAT(token_time_text(t[0]), HasSubstr("from 4 of 14 steps"));
}

TEST(TokenTime, SaysHowManyTimesAreMarked) {
  std::vector<StepTime> steps = {step_time(3, 0, 2, 2, 5), step_time(4, 0, 2, 2, 7)};
  EXPECT_THAT(token_time_text(token_times(steps).at(0)), HasSubstr("from 2 of 2 steps)"));
  steps[0].vague = true;
  steps[0].busy = steps[1].busy = true;
  EXPECT_THAT(
      token_time_text(token_times(steps).at(0)),
      HasSubstr("from 2 of 2 steps; 1 of these times not usable (?); 2 of these times disturbed (!))"));
}

TEST(TokenTime, ThereIsNoNumberWithoutAllDrawnSteps) {
  std::vector<StepTime> steps = {step_time(3, 0, 10, 10, 5), step_time(4, 0, 10, 10, 7)};
  steps[1].us.reset();
  EXPECT_THAT(token_times(steps).at(0).why, HasSubstr("1 of 2 drawn steps has no time"));
  steps.pop_back();
  EXPECT_THAT(token_times(steps).at(0).why, HasSubstr("1 of 4 drawn steps ran"));
  EXPECT_THAT(token_times(std::vector{step_time(3, 0, 10, 11, 5), step_time(4, 0, 10, 11, 7)}).at(0).why,
              HasSubstr("drawn steps ran"));
}

TEST(TokenTime, AllStepsHaveNoErrorOfSampling) {
  const std::vector<TokenTime> t =
      token_times(std::vector{step_time(0, 0, 1, 3, 5), step_time(1, 1, 1, 3, 7), step_time(2, 2, 1, 3, 9)});
  EXPECT_DOUBLE_EQ(*t.at(0).us, 0.21);
  EXPECT_NEAR(*t[0].lo, 0.21, 1e-9);
  EXPECT_NEAR(*t[0].hi, 0.21, 1e-9);
}

TEST(TokenTime, IntervalsHoldTheTimeOfAllSteps) {
  std::vector<double> work, us;
  for (int i = 0; i < 400; ++i) {
    const double heavy = i % 10 == 0 ? 40 + i % 70 : 1;
    work.push_back(heavy);
    us.push_back(20 + 3 * heavy + 7 * ((i * 37) % 11));  // the work does not tell all of the time
  }
  double truth = 0;
  for (const double x : us) truth += x;
  constexpr int kDraws = 400;
  int held = 0;
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    std::vector<StepTime> steps;
    int64_t number = 0;
    for (const Stratum& s : draw_steps(work, 32, seed)) {
      for (const int64_t i : s.drawn)
        steps.push_back(step_time(i, number, s.steps, 400, us[static_cast<std::size_t>(i)]));
      ++number;
    }
    const TokenTime t = token_times(steps).at(0);
    held += *t.lo <= truth / 100 && truth / 100 <= *t.hi;
  }
  EXPECT_GE(held, kDraws * 92 / 100);
  EXPECT_LE(held, kDraws * 99 / 100);
}

TEST(TokenTime, StepsDrawnFromAnH100StandForAll) {
  std::ifstream file(ATTNBENCH_SOURCE_DIR "/results/baselines/h100-checks/serving_steps.json");
  const auto measured = nlohmann::json::parse(file);
  const auto work = measured.at("work").get<std::vector<double>>();
  const auto us = measured.at("us").get<std::vector<double>>();
  ASSERT_EQ(work.size(), 2000u);
  double truth = 0;
  for (const double x : us) truth += x / 100;
  constexpr int kDraws = 300;
  for (const auto& [count, most] : {std::pair<int64_t, double>{16, 0.02}, {64, 0.006}}) {
    int held = 0;
    double squares = 0;
    for (uint64_t seed = 0; seed < kDraws; ++seed) {
      std::vector<StepTime> steps;
      int64_t number = 0;
      for (const Stratum& s : draw_steps(work, count, seed)) {
        for (const int64_t i : s.drawn)
          steps.push_back(step_time(i, number, s.steps, 2000, us[static_cast<std::size_t>(i)]));
        ++number;
      }
      const TokenTime t = token_times(steps).at(0);
      held += *t.lo <= truth && truth <= *t.hi;
      squares += (*t.us / truth - 1) * (*t.us / truth - 1) / kDraws;
    }
    EXPECT_LT(std::sqrt(squares), most) << count;
    EXPECT_GE(held, kDraws * 9 / 10) << count;
  }
}

Record served_record(const std::string& kernel, int64_t step, int64_t stratum, double us) {
  const ServedStep served{"sharegpt", "", "", kReplay, step, 4, 100, stratum, 2, 4};
  Record r =
      test::passing("attention/paged16-nhd-served0123abcd/bf16/" + served.label() + "-8q1s1k", kernel, us);
  r.item.params.served = served;
  return r;
}

TEST(TokenTime, RecordsAndResultsGiveTheSameNumber) {
  const std::vector<Record> records = {served_record("a", 0, 0, 10), served_record("a", 1, 0, 12),
                                       served_record("a", 2, 1, 30), served_record("a", 3, 1, 34)};
  const std::vector<TokenTime> t = token_times(step_times(records));
  ASSERT_EQ(t.size(), 1u);
  EXPECT_DOUBLE_EQ(*t[0].us, 0.86);
  EXPECT_THAT(t[0].group, ::testing::StartsWith("attention/paged16-nhd-served/bf16/sharegpt-"));
  EXPECT_THAT(t[0].group, ::testing::Not(HasSubstr("step")));
  std::vector<Record> marked = records;
  marked[1].time->lo_us = marked[1].time->hi_us = 100;
  marked[2].time->disturbed = static_cast<int>(marked[2].time->samples_us.size());
  const TokenTime m = token_times(step_times(marked)).at(0);
  EXPECT_EQ(m.vague, 1);
  EXPECT_EQ(m.busy, marked[2].time->samples_us.empty() ? 0 : 1);
}

}  // namespace
}  // namespace attnbench
