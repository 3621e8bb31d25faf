#include "harness/serving/replay.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "harness/error.h"

namespace attnbench {
namespace {

ServingSpec small_server() {
  ServingSpec spec;
  spec.mix = "sharegpt";
  spec.steps = 200;
  spec.warmup = 50;
  spec.max_sequences = 8;
  spec.token_budget = 256;
  spec.cache_tokens = 64 * 1024;
  return spec;
}

std::vector<double> falling_work(std::size_t n) {
  std::vector<double> work;
  for (std::size_t i = 0; i < n; ++i) work.push_back(1 + 1000.0 / static_cast<double>(i + 1));
  return work;
}

TEST(ReplaySteps, EachStepIsInOneStratumAndTwoOfItAreDrawn) {
  for (const std::size_t n : {2u, 3u, 5u, 64u, 1000u}) {
    for (int64_t count = 2; count <= std::min<int64_t>(64, static_cast<int64_t>(n)); count += 2) {
      const std::vector<Stratum> strata = draw_steps(falling_work(n), count, 7);
      ASSERT_EQ(std::ssize(strata), count / 2);
      int64_t steps = 0;
      std::set<int64_t> drawn;
      for (const Stratum& s : strata) {
        EXPECT_GE(s.steps, 2);
        EXPECT_EQ(s.drawn.size(), 2u);
        steps += s.steps;
        drawn.insert(s.drawn.begin(), s.drawn.end());
      }
      EXPECT_EQ(steps, static_cast<int64_t>(n));
      EXPECT_EQ(std::ssize(drawn), count) << "a step was drawn twice";
    }
  }
}

TEST(ReplaySteps, SumsEstimatedFromDrawnStepsAreRightOnAverage) {
  const std::vector<double> work = falling_work(500);
  const auto time_of = [&](int64_t step) {  // a time that the work does not tell exactly
    return std::pow(work[static_cast<std::size_t>(step)], 0.7) + static_cast<double>(step % 3);
  };
  double truth = 0;
  for (int64_t i = 0; i < 500; ++i) truth += time_of(i);
  constexpr int kSeeds = 2000;
  double sum = 0, squares = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    double total = 0;
    for (const Stratum& s : draw_steps(work, 32, seed)) {
      total += static_cast<double>(s.steps) * (time_of(s.drawn[0]) + time_of(s.drawn[1])) / 2;
    }
    sum += total;
    squares += total * total;
  }
  const double mean = sum / kSeeds;
  const double error = std::sqrt((squares / kSeeds - mean * mean) / kSeeds);
  EXPECT_NEAR(mean, truth, 4 * error);
  EXPECT_LT(error, 0.01 * truth);
}

TEST(ReplaySteps, HeavyStepsAreDrawnMoreOften) {
  const std::vector<Stratum> strata = draw_steps(falling_work(1000), 16, 1);
  EXPECT_LT(strata.front().steps, strata.back().steps);
}

TEST(Replay, ChosenStepsFitTheirTablesAndAreTheSameEveryTime) {
  ServingSpec spec = small_server();
  spec.step = {StepChoice::Kind::kSpread, 16};
  const std::vector<ReplayedStep> steps = replay_steps(spec, 16).steps;
  const std::vector<ReplayedStep> again = replay_steps(spec, 16).steps;
  ASSERT_EQ(steps.size(), 16u);
  int64_t of_strata = 0;
  std::set<int64_t> strata;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const ReplayedStep& s = steps[i];
    EXPECT_EQ(s.seqs, again[i].seqs);
    EXPECT_EQ(s.blocks->digest(), again[i].blocks->digest());
    EXPECT_GT(s.served.output_tokens, 0);
    EXPECT_EQ(s.served.steps, 200);
    if (strata.insert(s.served.stratum).second) of_strata += s.served.stratum_steps;
    for (std::size_t b = 0; b < s.seqs.size(); ++b) {
      EXPECT_GE(s.seqs[b].k, s.seqs[b].q);
      EXPECT_EQ(std::ssize(s.blocks->ids()[b]), (s.seqs[b].k + 15) / 16);
    }
  }
  EXPECT_EQ(of_strata, 200);
  spec.seed = 2;
  EXPECT_NE(replay_steps(spec, 16).steps.front().blocks->digest(), steps.front().blocks->digest());
}

TEST(Replay, AStepHasItsNumberHoweverItWasChosen) {
  ServingSpec spec = small_server();
  spec.step.kind = StepChoice::Kind::kAll;
  const std::vector<ReplayedStep> all = replay_steps(spec, 64).steps;
  ASSERT_EQ(all.size(), 200u);
  std::vector<double> work;
  for (const ReplayedStep& s : all) work.push_back(attention_work(s.seqs));
  const auto chosen = [&](StepChoice choice) {
    spec.step = choice;
    return replay_steps(spec, 64).steps.front();
  };
  EXPECT_EQ(chosen({StepChoice::Kind::kFirst, 0}).blocks->digest(), all[0].blocks->digest());
  const ReplayedStep later = chosen({StepChoice::Kind::kIndex, 123});
  EXPECT_EQ(later.seqs, all[123].seqs);
  EXPECT_EQ(later.blocks->digest(), all[123].blocks->digest());
  EXPECT_EQ(later.served.output_tokens, all[123].served.output_tokens);
  EXPECT_EQ(later.served.stratum, -1);
  const double median = attention_work(chosen({StepChoice::Kind::kP50, 0}).seqs);
  const double high = attention_work(chosen({StepChoice::Kind::kP99, 0}).seqs);
  const auto above = [&](double w) {
    return std::count_if(work.begin(), work.end(), [&](double x) { return x > w; });
  };
  EXPECT_NEAR(static_cast<double>(above(median)), 100, 2);
  EXPECT_NEAR(static_cast<double>(above(high)), 2, 1);
}

TEST(Replay, CountsTheTokensThatAreGenerated) {
  // Each decode yields one token, each prompt its first: with one sequence at a time, all tokens but the prompts'.
  ServingSpec spec = small_server();
  spec.step.kind = StepChoice::Kind::kAll;
  spec.warmup = 0;
  int64_t yielding = 0;
  const std::vector<ReplayedStep> all = replay_steps(spec, 16).steps;
  for (const ReplayedStep& s : all) {
    for (const SeqLen& x : s.seqs) yielding += x.q == 1;
  }
  // A chunk in the middle of a prompt yields none, and a prompt of one token is no decode.
  const int64_t tokens = all.front().served.output_tokens;
  EXPECT_GE(tokens, yielding - 8);
  EXPECT_LE(tokens, yielding + static_cast<int64_t>(all.size()) * 8);
}

TEST(Replay, RefusesACacheThatIsTooSmall) {
  ServingSpec spec = small_server();
  spec.cache_tokens = 10;
  EXPECT_THROW(replay_steps(spec, 16), Error);
  spec.cache_tokens = 32;
  EXPECT_THROW(replay_steps(spec, 16), Error);
}

}  // namespace
}  // namespace attnbench
