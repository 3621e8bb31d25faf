#include "harness/compare/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "harness/compare/ratio.h"
#include "tests/unit/compare_fixtures.h"

namespace attnbench {
namespace {

using test::one;
using test::sampled;
using test::set_of;
using test::with_status;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

Record few(std::vector<double> samples, double median, double lo, double hi) {
  Record r = sampled("a", 1, 0, 1, 1);
  r.time->samples_us = std::move(samples);
  r.time->median_us = median;
  r.time->lo_us = lo;
  r.time->hi_us = hi;
  return r;
}

TEST(Compare, Verdicts) {
  const Record base = sampled("a", 100, 0.01, 30, 1);
  EXPECT_EQ(one(base, base).change, Change::kSame);
  EXPECT_EQ(one(base, base).ratio, 1.0);
  EXPECT_EQ(one(base, sampled("a", 100, 0.01, 30, 2)).change, Change::kSame);
  const CompareRow slower = one(base, sampled("a", 105, 0.01, 30, 2));
  EXPECT_EQ(slower.change, Change::kSlower);
  EXPECT_NEAR(*slower.ratio, 1.05, 0.01);
  EXPECT_GT(*slower.lo, 1.02);
  EXPECT_LT(*slower.p, 1e-3);
  EXPECT_EQ(one(base, sampled("a", 95, 0.01, 30, 2)).change, Change::kFaster);
  const CompareRow edge = one(base, sampled("a", 102, 0.01, 30, 2));
  EXPECT_EQ(edge.change, Change::kInconclusive) << "on the band's edge";
  EXPECT_FALSE(edge.not_slower);
  const CompareRow other_edge = one(base, sampled("a", 98, 0.01, 30, 2));
  EXPECT_EQ(other_edge.change, Change::kInconclusive);
  EXPECT_TRUE(other_edge.not_slower) << "same or faster";
  EXPECT_EQ(other_edge.note,
            "the change lies about at the 2 % looked for, and is known to +/- 0.64 %; not slower");
  const Record wild = sampled("a", 100, 0.5, 12, 1);
  EXPECT_EQ(one(wild, wild).change, Change::kSame) << "a file against itself, however noisy";
  const CompareRow noisy = one(sampled("a", 100, 0.3, 12, 1), sampled("a", 130, 0.3, 12, 2));
  EXPECT_EQ(noisy.change, Change::kInconclusive);
  EXPECT_GT(*noisy.ratio, 1.02);
  EXPECT_LT(*noisy.lo, 1.02);
  EXPECT_EQ(noisy.note, "the change is known to +/- 26 % only, and 2 % is looked for")
      << "by its interval, not by the correction for many cases";
}

TEST(Compare, MinimumEffectIsOfTheCaseWhereGiven) {
  const Record base = sampled("a", 100, 0.01, 100, 1), fresh = sampled("a", 105, 0.01, 100, 2);
  CompareOptions options;
  options.min_effect = 0.1;
  EXPECT_EQ(one(base, fresh, options).change, Change::kSame);
  options.min_effect_of_id["a"] = 0.02;
  EXPECT_EQ(one(base, fresh, options).change, Change::kSlower);
  options.min_effect = 1;
  EXPECT_THROW(one(base, fresh, options), Error);
}

TEST(Compare, FewSamples) {
  // Without an interval only equality is certain.
  EXPECT_EQ(one(few({100}, 100, 100, 100), few({100}, 100, 100, 100)).change, Change::kSame);
  const CompareRow single = one(few({100}, 100, 100, 100), few({150}, 150, 150, 150));
  EXPECT_EQ(single.change, Change::kInconclusive);
  EXPECT_DOUBLE_EQ(*single.ratio, 1.5);
  EXPECT_FALSE(single.lo);
  EXPECT_THAT(single.note, HasSubstr("too few samples (1 and 1)"));
  // Three samples each: a rank test cannot get below p = 0.1, however different they are.
  const CompareRow three = one(few({99, 100, 101}, 100, 99, 101), few({149, 150, 151}, 150, 149, 151));
  EXPECT_EQ(three.change, Change::kInconclusive);
  EXPECT_DOUBLE_EQ(*three.p, 0.1);
  EXPECT_EQ(one(few({99, 100, 101}, 100, 99.5, 100.5), few({99, 100, 101}, 100, 99.5, 100.5)).change,
            Change::kSame);
  // If samples are stripped from the file, the stored intervals are used.
  EXPECT_EQ(one(few({}, 100, 99, 101), few({}, 150, 149, 151)).change, Change::kSlower);
}

TEST(Compare, ATimeThatIsNotUsableDecidesNothing) {
  const Record base = few({9000, 9100, 9200, 9300, 9400, 9500, 9600, 9700, 9800, 9900}, 9450, 9100, 9800);
  // Three of ten samples waited for a core: the midmean is far above the median.
  Record fresh =
      few({13000, 13100, 13150, 13180, 13190, 13200, 13300, 4.4e6, 4.6e6, 4.7e6}, 13195, 13100, 4.6e6);
  const CompareResult r = compare_results(set_of({base}), set_of({fresh}), {});
  const CompareRow& row = r.rows.at(0);
  EXPECT_EQ(row.change, Change::kInconclusive);
  EXPECT_EQ(
      row.note,
      "the time of NEW is known to +/- 34762 % only: 3 of 10 samples took 4.400 s or more, the median is "
      "13.20 ms; run both sides again on a quiet machine");
  EXPECT_FALSE(row.p) << "no part of the family of tests";
  EXPECT_FALSE(r.geomean) << "the ratio is in no mean";
  EXPECT_EQ(r.compared, 1);
  EXPECT_EQ(compare_exit_code(r, {}), 4);
  EXPECT_THAT(one(fresh, base).note, HasSubstr("the time of BASE is known to +/- 34762 % only"));
  EXPECT_EQ(one(fresh, base).change, Change::kInconclusive) << "nor is it faster";
  EXPECT_EQ(one(fresh, fresh).change, Change::kSame) << "a file against itself";
  // Samples far below the median.
  fresh = few({10, 10, 10, 95, 99, 101, 102, 103, 104, 105}, 100, 10, 105);
  EXPECT_THAT(one(base, fresh).note, HasSubstr("+/- 90 % only: 3 of 10 samples took 10.00 us or less"));
  fresh.time->lo_us = 51;
  EXPECT_EQ(one(base, fresh).change, Change::kFaster);
}

TEST(Compare, TimesInStepsAreSaidWhereTheMediansShowMoreOfAChange) {
  // Steps of 3 %: the median jumps by one where the middle half moves by a part of it.
  const auto steps = [](int low, int high) {
    std::vector<double> samples(static_cast<std::size_t>(low), 100);
    samples.insert(samples.end(), static_cast<std::size_t>(high), 103);
    const double median = low > high ? 100 : 103;
    return few(samples, median, median, median);
  };
  CompareOptions options;
  options.min_effect = 0.02;
  CompareRow row = one(steps(42, 38), steps(38, 42), options);
  EXPECT_EQ(row.change, Change::kSame);
  EXPECT_THAT(row.note, HasSubstr("times in steps: the medians lie further apart than the middle halves"));
  // The medians lie closer together than the middle halves.
  std::vector<double> mixed(220, 101);
  mixed.insert(mixed.end(), 180, 115);
  row = one(steps(80, 0), few(mixed, 101, 101, 115), options);
  EXPECT_EQ(row.change, Change::kSlower);
  EXPECT_GT(*row.ratio, 1.06);
  EXPECT_EQ(row.note, "two speeds in NEW: 101.0 us in 55 % of the samples, 115.0 us in the others");
}

TEST(Compare, WhatCannotBeCompared) {
  const Record good = sampled("a", 100, 0.01, 30, 1);
  EXPECT_EQ(one(good, with_status("a", Status::kFail)).change, Change::kIncorrect);
  EXPECT_EQ(one(good, with_status("a", Status::kFail)).note, "NEW: fail: because");
  EXPECT_EQ(one(good, with_status("a", Status::kUndecided)).change, Change::kIncorrect);
  EXPECT_EQ(one(with_status("a", Status::kUndecided), good).change, Change::kNotCompared);
  EXPECT_EQ(one(good, with_status("a", Status::kError)).change, Change::kError);
  EXPECT_EQ(one(good, with_status("a", Status::kTimeout)).change, Change::kError);
  EXPECT_EQ(one(good, with_status("a", Status::kSkip)).change, Change::kMissingNew) << "coverage was lost";
  EXPECT_EQ(one(good, with_status("a", Status::kInvalidTime)).change, Change::kInconclusive);
  EXPECT_EQ(one(with_status("a", Status::kFail), good).change, Change::kNotCompared);
  EXPECT_EQ(one(with_status("a", Status::kSkip), with_status("a", Status::kSkip)).change,
            Change::kNotCompared);
  EXPECT_EQ(one(with_status("a", Status::kInvalidTime), good).change, Change::kInconclusive);
  EXPECT_EQ(one(with_status("a", Status::kPass), with_status("a", Status::kPass)).change,
            Change::kNotCompared);
  EXPECT_EQ(one(good, with_status("a", Status::kPass)).change, Change::kInconclusive);

  const CompareResult r = compare_results(set_of({good, sampled("b", 1, 0.01, 9, 1)}),
                                          set_of({good, sampled("c", 1, 0.01, 9, 1)}), {});
  EXPECT_EQ(r.count(Change::kMissingNew), 1);
  EXPECT_EQ(r.count(Change::kMissingBase), 1);
  EXPECT_EQ(r.count(Change::kSame), 1);
  EXPECT_EQ(r.compared, 1);
}

TEST(Compare, RowsAreWorstFirst) {
  const ResultSet base = set_of({sampled("same", 100, 0.01, 30, 1), sampled("faster", 100, 0.01, 30, 2),
                                 sampled("slow", 100, 0.01, 30, 3), sampled("slower", 100, 0.01, 30, 4),
                                 sampled("gone", 100, 0.01, 30, 5), sampled("crash", 100, 0.01, 30, 6)});
  const ResultSet fresh = set_of({sampled("same", 100, 0.01, 30, 7), sampled("faster", 80, 0.01, 30, 8),
                                  sampled("slow", 110, 0.01, 30, 9), sampled("slower", 130, 0.01, 30, 10),
                                  with_status("crash", Status::kError)});
  const CompareResult r = compare_results(base, fresh, {});
  std::vector<std::string> ids;
  for (const CompareRow& row : r.rows) ids.push_back(row.id);
  EXPECT_THAT(ids, ElementsAre("crash", "gone", "slower", "slow", "same", "faster"));
  EXPECT_NEAR(*r.geomean, std::pow(1.0 * 0.8 * 1.1 * 1.3, 0.25), 0.01);
}

TEST(Compare, MatchesKernelsByIdAloneWhenAsked) {
  const ResultSet base = set_of({sampled("a", 100, 0.01, 30, 1, "old")});
  const ResultSet fresh = set_of({sampled("a", 50, 0.01, 30, 2, "new")});
  EXPECT_EQ(compare_results(base, fresh, {}).count(Change::kMissingNew), 1);
  CompareOptions options;
  options.match = Match::kId;
  const CompareResult r = compare_results(base, fresh, options);
  ASSERT_THAT(r.rows, SizeIs(1));
  EXPECT_EQ(r.rows[0].change, Change::kFaster);
  EXPECT_EQ(r.rows[0].base_kernel, "old");
  EXPECT_EQ(r.rows[0].new_kernel, "new");
}

TEST(Compare, MatchesDevicesWhereOneCaseRanOnSeveral) {
  const auto on = [](const char* device, double us) {
    Record r = sampled("a", us, 0.001, 30, 1);
    r.device = device;
    return r;
  };
  const CompareResult r = compare_results(set_of({on("cuda:0", 100), on("cuda:1", 200)}),
                                          set_of({on("cuda:1", 200), on("cuda:0", 100)}), {});
  EXPECT_EQ(r.count(Change::kSame), 2);
  EXPECT_EQ(one(on("cuda:0", 100), on("cuda:3", 100)).change, Change::kSame)
      << "another place, the same case";
}

TEST(Compare, AsShareOfTheSpeedOfLight) {
  Record base = sampled("a", 100, 0.005, 30, 1), fresh = sampled("a", 200, 0.005, 30, 1);
  CompareOptions options;
  options.as_sol = true;
  EXPECT_EQ(one(base, fresh, options).change, Change::kInconclusive) << "no %SOL";
  base.roofline.emplace().sol = 0.6;
  fresh.roofline.emplace().sol = 0.6;
  EXPECT_EQ(one(base, fresh, options).change, Change::kSame) << "a device half as fast, used as well";
  fresh.roofline->sol = 0.5;
  EXPECT_NEAR(*one(base, fresh, options).ratio, 1.2, 1e-9);
}

TEST(Compare, BenjaminiHochberg) {
  // The example of the paper's section 4: 15 p-values, q = 0.05; the first four are rejected.
  const std::vector<double> p = {0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344,
                                 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000};
  const std::vector<bool> r = benjamini_hochberg(p, 0.05);
  EXPECT_EQ(std::count(r.begin(), r.end(), true), 4);
  EXPECT_TRUE(r[3] && !r[4]);
  // A step-up test: the largest rank that passes also rejects all smaller ones.
  EXPECT_THAT(benjamini_hochberg(std::vector<double>{0.04, 0.03, 0.9}, 0.05),
              ElementsAre(false, false, false));
  EXPECT_THAT(benjamini_hochberg(std::vector<double>{0.04, 0.03}, 0.05), ElementsAre(true, true));
  EXPECT_TRUE(benjamini_hochberg({}, 0.05).empty());
}

TEST(Compare, ManyCasesTakeMoreEvidenceButAClearOneIsStillFound) {
  // Significant alone, but not among 200 cases that did not change.
  std::vector<Record> base = {few({}, 100, 99.5, 100.5)}, fresh = {few({}, 103.2, 102.7, 103.7)};
  EXPECT_EQ(one(base[0], fresh[0]).change, Change::kSlower);
  for (int i = 0; i < 200; ++i) {
    base.push_back(sampled("n" + std::to_string(i), 100, 0.01, 30, 10 + i));
    fresh.push_back(sampled("n" + std::to_string(i), 100, 0.01, 30, 1000 + i));
  }
  const CompareResult r = compare_results(set_of(base), set_of(fresh), {});
  EXPECT_EQ(r.count(Change::kSlower), 0);
  EXPECT_EQ(r.rows.at(0).change, Change::kInconclusive);
  EXPECT_THAT(r.rows.at(0).note, HasSubstr("slower if it were the only case (p = "));
  // 2,000 resamples cannot show a p below 0.001, but one regression among 200 must be found.
  fresh[1] = sampled("n0", 108, 0.01, 30, 5);
  EXPECT_EQ(compare_results(set_of(base), set_of(fresh), {}).count(Change::kSlower), 1);
}

TEST(Compare, SeedsMakeItRepeatable) {
  const Record base = sampled("a", 100, 0.05, 20, 1), fresh = sampled("a", 103, 0.05, 20, 2);
  EXPECT_EQ(one(base, fresh).lo, one(base, fresh).lo);
  const RatioTest x = bootstrap_ratio(base.time->samples_us, fresh.time->samples_us, 0.02, 1);
  const RatioTest y = bootstrap_ratio(base.time->samples_us, fresh.time->samples_us, 0.02, 2);
  EXPECT_NE(x.lo, y.lo);
  EXPECT_NEAR(x.lo, y.lo, 0.01);
}

/// Share of intervals that contain the true ratio 1: about 95 %.
TEST(Compare, IntervalCoversTheTruth) {
  int covered = 0;
  constexpr int kPairs = 400;
  for (int i = 0; i < kPairs; ++i) {
    const Record a = sampled("a", 100, 0.02, 30, 2 * i), b = sampled("a", 100, 0.02, 30, 2 * i + 1);
    const RatioTest t = bootstrap_ratio(a.time->samples_us, b.time->samples_us, 0.02, i);
    covered += t.lo <= 1 && 1 <= t.hi;
  }
  const double share = static_cast<double>(covered) / kPairs;
  std::printf("95 %% interval covers the truth in %.1f %% of %d pairs\n", 100 * share, kPairs);
  RecordProperty("coverage", std::to_string(share));
  EXPECT_GE(share, 0.92);
  EXPECT_LE(share, 0.99);
}

TEST(Compare, FalseAlarmsOfEqualPairs) {
  constexpr int kPairs = 500;
  for (const double noise : {0.005, 0.02, 0.1}) {
    for (const int n : {5, 10, 30}) {
      int alone = 0;
      std::vector<Record> base, fresh;
      for (int i = 0; i < kPairs; ++i) {
        const std::string id = "c" + std::to_string(i);
        base.push_back(sampled(id, 100, noise, n, 2 * i));
        fresh.push_back(sampled(id, 100, noise, n, 2 * i + 1));
        const Change c = one(base.back(), fresh.back()).change;
        alone += c == Change::kSlower || c == Change::kFaster;
      }
      const CompareResult r = compare_results(set_of(base), set_of(fresh), {});
      const int64_t together = r.count(Change::kSlower) + r.count(Change::kFaster);
      std::printf(
          "noise %4.1f %%, %2d samples: %d of %d false alarms alone (%.1f %%), %d in one comparison\n",
          100 * noise, n, alone, kPairs, 100.0 * alone / kPairs, static_cast<int>(together));
      EXPECT_LE(together, kPairs * 0.02);
      if (n >= 10) {
        EXPECT_LE(alone, kPairs * 0.05);
      }
    }
  }
}

TEST(Compare, ExitCodesInOrderOfTheWorst) {
  CompareResult r;
  CompareOptions options;
  EXPECT_EQ(compare_exit_code(r, options), 6);
  r.compared = 1;
  EXPECT_EQ(compare_exit_code(r, options), 0);
  r.counts[Change::kFaster] = r.counts[Change::kSame] = r.counts[Change::kNotCompared] = 1;
  EXPECT_EQ(compare_exit_code(r, options), 0);
  r.counts[Change::kInconclusive] = 1;
  EXPECT_EQ(compare_exit_code(r, options), 4);
  r.not_slower = 1;
  EXPECT_EQ(compare_exit_code(r, options), 0) << "between same and faster";
  r.counts[Change::kInconclusive] = 2;
  EXPECT_EQ(compare_exit_code(r, options), 4) << "the other one may be slower";
  options.allow_inconclusive = true;
  EXPECT_EQ(compare_exit_code(r, options), 0);
  r.counts[Change::kSlower] = 1;
  EXPECT_EQ(compare_exit_code(r, options), 3);
  r.counts[Change::kMissingBase] = 1;
  EXPECT_EQ(compare_exit_code(r, options), 1);
  options.allow_missing = true;
  EXPECT_EQ(compare_exit_code(r, options), 3);
  r.counts[Change::kIncorrect] = 1;
  EXPECT_EQ(compare_exit_code(r, options), 1);
  r.counts[Change::kError] = 1;
  EXPECT_EQ(compare_exit_code(r, options), 5);
}

TEST(Compare, Mismatches) {
  ResultSet a = set_of({sampled("a", 1, 0.01, 9, 1)}), b = a;
  EXPECT_THAT(context_mismatches(a, b), SizeIs(0));
  a.context.device.model = "H100";
  EXPECT_THAT(context_mismatches(a, b), SizeIs(0)) << "the other side does not say";
  b.context.device.model = "H200";
  a.context.build_type = "Release";
  b.context.build_type = "Debug";
  b.results[0].time->cache = CacheMode::kHot;
  EXPECT_THAT(context_mismatches(a, b), ElementsAre("device: 'H100' in BASE, 'H200' in NEW",
                                                    "build type: 'Release' in BASE, 'Debug' in NEW",
                                                    "cache state (--cache): 'cold' in BASE, 'hot' in NEW"));
  // Checks are compared by case, because a part of a sweep may be verified otherwise than the rest.
  a = set_of({sampled("a", 1, 0.01, 9, 1), sampled("b", 1, 0.01, 9, 1)});
  b = set_of({sampled("b", 1, 0.01, 9, 1), sampled("c", 1, 0.01, 9, 1)});
  a.results[0].check.emplace().method = "full";
  a.results[1].check.emplace().method = "sampled";
  b.results[0].check = a.results[1].check;
  EXPECT_THAT(context_mismatches(a, b), SizeIs(0));
  b.results[0].check.reset();
  EXPECT_THAT(context_mismatches(a, b),
              ElementsAre(HasSubstr("check: 'sampled' in BASE, 'off' in NEW (--check)")));
  b.results[0].time.reset();
  EXPECT_THAT(context_mismatches(a, b), SizeIs(0)) << "no times, nothing to disturb";
}

TEST(Compare, RefusedOnBothSidesAsExpectedIsTheSame) {
  Record refused = with_status("a", Status::kPass);
  refused.check.emplace().method = "refusal";
  EXPECT_EQ(one(refused, refused).change, Change::kSame);
  EXPECT_EQ(one(refused, with_status("a", Status::kFail)).change, Change::kIncorrect);
  const CompareResult both = compare_results(set_of({refused}), set_of({refused}), {});
  EXPECT_EQ(both.refused, 1);
  EXPECT_EQ(compare_exit_code(both, {}), 0) << "nothing else was to be compared";
}

}  // namespace
}  // namespace attnbench
