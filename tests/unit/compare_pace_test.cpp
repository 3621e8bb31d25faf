// What keeps a slower machine from being taken for a slower kernel: the probes beside a CPU's samples, runs
// in turns, Student's t.
#include "harness/compare/machine_pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <random>

#include "harness/compare/compare.h"
#include "harness/compare/join_runs.h"
#include "harness/compare/noise.h"
#include "harness/compare/ratio.h"
#include "harness/results/json.h"
#include "tests/unit/compare_fixtures.h"

namespace attnbench {
namespace {

using test::one;
using test::sampled;
using test::set_of;
using testing::AllOf;
using testing::HasSubstr;

/// A run of a kernel of `us` on a machine whose cores and memory take this many times as long as at best.
Record on_machine(double us, double cores, double memory, uint64_t seed) {
  Record r = sampled("a", us, 0.002, 40, seed);
  r.device = "cpu";
  r.time->cores_us = 20 * cores;
  r.time->memory_us = 800 * memory;
  return r;
}

TEST(ComparePace, ASlowerMachineIsNoSlowerKernel) {
  const Record base = on_machine(100, 1, 1, 1);
  const CompareRow drifted = one(base, on_machine(106, 1.06, 1.06, 2));
  EXPECT_EQ(drifted.change, Change::kSame);
  EXPECT_NEAR(*drifted.ratio, 1, 0.002);
  EXPECT_THAT(drifted.note, HasSubstr("%, CPU test loop +6.0 %; change = time / test loop"));
  EXPECT_EQ(one(base, on_machine(106, 1, 1, 2)).change, Change::kSlower);
  EXPECT_EQ(one(base, on_machine(130, 1.06, 1.06, 2)).change, Change::kSlower)
      << "slower than the machine is";
  EXPECT_EQ(one(base, on_machine(100, 0.94, 0.94, 2)).change, Change::kSlower)
      << "a faster machine hides nothing";
  Record unknown = on_machine(106, 1, 1, 2);
  unknown.time->cores_us = 0;
  const CompareRow plain = one(on_machine(100, 1.06, 1, 1), unknown);
  EXPECT_EQ(plain.change, Change::kSlower) << "where one side does not tell, microseconds are compared";
  EXPECT_NEAR(*plain.ratio, 1.06, 0.002);
}

TEST(ComparePace, AMovedProbeHidesNoChangeThatIsFarLarger) {
  const Record base = on_machine(12, 2.3, 1, 1);
  EXPECT_EQ(one(base, on_machine(60, 1, 1, 2)).change, Change::kInconclusive) << "5 times";
  EXPECT_EQ(one(base, on_machine(12 * 8, 1, 1, 2)).change, Change::kInconclusive) << "8 times, the probe 2.3";
  EXPECT_EQ(one(base, on_machine(12 * 11, 1, 1, 2)).change, Change::kSlower);
  EXPECT_EQ(one(base, on_machine(50000, 1, 1, 2)).change, Change::kSlower);
  EXPECT_EQ(one(on_machine(50000, 1, 1, 1), on_machine(12, 2.3, 1, 2)).change, Change::kFaster);
}

/// A kernel that takes 100 us if threads wait 2 us for each other, and 120 us if they wait 7 us.
Record with_handover(double us, double handover_us, uint64_t seed) {
  Record r = on_machine(us, 1, 1, seed);
  r.time->handover_us = handover_us;
  return r;
}

TEST(ComparePace, OnlyRunsWithCoresAsFarApartAreCompared) {
  ResultSet base = set_of({with_handover(100, 2, 1)});
  for (uint64_t i = 0; i < 3; ++i) {
    pool_runs(base, set_of({with_handover(100, 2.1, 10 + i)}));
    pool_runs(base, set_of({with_handover(120, 7, 20 + i)}));
  }
  const auto against = [&](double us, double handover_us) {
    return compare_results(base, set_of({with_handover(us, handover_us, 5)}), {}).rows.at(0);
  };
  EXPECT_EQ(against(100, 2).change, Change::kSame);
  EXPECT_EQ(against(100, 2).left_out.base, 3) << "of the 7 runs of BASE";
  EXPECT_EQ(against(100, 2).left_out.fresh, 0);
  EXPECT_EQ(against(120, 7.4).change, Change::kSame) << "as BASE where its cores lay so";
  EXPECT_EQ(against(120, 2).change, Change::kSlower);
  EXPECT_EQ(against(126, 7).change, Change::kSlower);
  EXPECT_EQ(against(114, 7).change, Change::kFaster);
  Record b = base.results[0], f = with_handover(120, 7, 5);
  EXPECT_EQ(keep_like_runs(b, f), LikeRuns::kAlike);
  EXPECT_EQ(b.time->runs, 3);
  EXPECT_EQ(b.time->samples_us.size(), 120u);
  for (const double us : b.time->samples_us) EXPECT_NEAR(us, 120, 2) << "each run keeps its own samples";
  f = with_handover(120, 0, 5);
  b = base.results[0];
  EXPECT_EQ(keep_like_runs(b, f), LikeRuns::kUnknown);
  EXPECT_EQ(b.time->runs, 7) << "a side that does not tell leaves all";
}

TEST(ComparePace, CoresThatNoRunHadTellLittle) {
  const Record base = with_handover(100, 2, 1);
  const CompareRow row = one(base, with_handover(122, 3.5, 2));
  EXPECT_EQ(row.change, Change::kInconclusive);
  EXPECT_THAT(row.note, AllOf(HasSubstr("slower (+2"), HasSubstr("cores as far apart")));
  EXPECT_EQ(one(with_handover(100, 3.5, 1), with_handover(80, 2, 2)).change, Change::kInconclusive)
      << "nor faster";
  EXPECT_EQ(one(base, with_handover(112, 2.5, 2)).change, Change::kSlower) << "the same machine";
  EXPECT_EQ(one(base, with_handover(128, 3.5, 2)).change, Change::kSlower) << "by more than that makes";
}

/// Ten runs of each side, made within seconds, that differ by 1 %. Their means are certain, but runs of
/// another minute would differ.
TEST(ComparePace, RunsOfOneSideCountAsOne) {
  const auto side = [&](double us, bool probed) {
    ResultSet set;
    for (int i = 0; i < 10; ++i) {
      // Runs differ by 1 % (standard deviation).
      Record r = on_machine(us * std::exp(0.01 / 3 * (i - 4.5)), 1, 1, static_cast<unsigned>(us) + i);
      if (!probed) r.time->cores_us = r.time->memory_us = 0;
      const ResultSet one_run = set_of({r});
      if (i == 0) {
        set = one_run;
      } else {
        pool_runs(set, one_run);
      }
    }
    return set;
  };
  const ResultSet base = side(100, true), fresh = side(104, true);
  const CompareRow row = compare_results(base, fresh, {}).rows.at(0);
  EXPECT_EQ(row.change, Change::kInconclusive);
  EXPECT_THAT(row.note, HasSubstr("2 % is looked for; 10 runs a side (a CPU's runs of one side count"));
  EXPECT_GT(*row.hi / *row.lo, 1.04);
  CompareOptions turns;
  turns.in_turns = true;
  EXPECT_EQ(compare_results(base, fresh, turns).rows.at(0).change, Change::kSlower);
  EXPECT_EQ(compare_results(side(100, false), side(104, false), {}).rows.at(0).change, Change::kSlower)
      << "a device without probes, as a GPU";
  EXPECT_EQ(compare_results(base, side(112, true), {}).rows.at(0).change, Change::kSlower);
}

TEST(ComparePace, SlowerMemoryIsNoSlowerKernel) {
  const Record base = on_machine(100, 1, 1, 1);
  const CompareRow row = one(base, on_machine(110, 1, 1.12, 2));
  EXPECT_EQ(row.change, Change::kInconclusive);
  EXPECT_THAT(row.note,
              AllOf(HasSubstr("slower by time / CPU test loop, but same by time / memory test loop (-1."),
                    HasSubstr("these loops changed by +0.0 and +12.0 %")));
  EXPECT_EQ(one(base, on_machine(125, 1, 1.12, 2)).change, Change::kSlower) << "by more than the memory";
  EXPECT_EQ(one(base, on_machine(110, 1, 0.9, 2)).change, Change::kSlower)
      << "memory is faster, the kernel is not";
  EXPECT_EQ(one(base, on_machine(90, 1, 0.88, 2)).change, Change::kInconclusive)
      << "nor is faster memory a faster kernel";
  EXPECT_EQ(one(base, on_machine(100, 1, 1.12, 2)).change, Change::kSame);
  Record hot = on_machine(110, 1, 0, 2);
  EXPECT_EQ(one(base, hot).change, Change::kSlower) << "memory was not read beside it";
}

TEST(ComparePace, CoresThatOthersTookTellNothing) {
  Record fresh = on_machine(110, 1, 1, 2);
  fresh.time->disturbed = 20;
  EXPECT_EQ(one(on_machine(100, 1, 1, 1), fresh).change, Change::kSlower);
  fresh.time->disturbed = 21;
  const CompareRow row = one(on_machine(100, 1, 1, 1), fresh);
  EXPECT_EQ(row.change, Change::kInconclusive);
  EXPECT_EQ(
      row.note,
      "slower, but others took the cores during 21 of 40 samples in NEW: only a change by a factor of over 1000 (its whole "
      "interval) could be told");
  Record slow = on_machine(1000, 1, 1, 3);
  slow.time->disturbed = 40;
  Record base = on_machine(100, 1, 1, 1);
  EXPECT_EQ(one(base, slow).change, Change::kInconclusive)
      << "sharing makes any difference to a quiet machine";
  Record turns = on_machine(50000, 1, 1, 4);
  turns.time->disturbed = 40;
  EXPECT_EQ(one(base, turns).change, Change::kSlower) << "the probes beside long samples did not wait";
  turns = on_machine(50000, 0, 0, 4);
  turns.time->disturbed = 40;
  EXPECT_EQ(one(base, turns).change, Change::kInconclusive)
      << "without probes, a short sample may have waited for many turns";
  base.time->disturbed = 40;
  EXPECT_EQ(one(base, slow).change, Change::kSlower) << "by more than sharing on both sides makes it";
  EXPECT_EQ(one(base, on_machine(90, 1, 1, 2)).change, Change::kInconclusive) << "nor faster";
}

TEST(ComparePace, EachRunIsHeldAgainstItsOwnProbe) {
  ResultSet base = set_of({on_machine(100, 1, 1, 1)}), fresh = set_of({on_machine(100, 1, 1, 2)});
  for (const double pace : {1.1, 0.95, 1.04}) {
    pool_runs(base, set_of({on_machine(100 * pace, pace, 1, 3)}));
    pool_runs(fresh, set_of({on_machine(100 * pace, pace, 1, 4)}));
  }
  pool_runs(fresh, set_of({on_machine(130, 1.3, 1, 5)}));
  EXPECT_EQ(fresh.results[0].time->of_runs.size(), 5u);
  EXPECT_EQ(compare_results(base, fresh, {}).rows[0].change, Change::kSame) << "they agree, probe by probe";
  for (RunTimes& run : fresh.results[0].time->of_runs) run.cores_us = 20;
  EXPECT_EQ(compare_results(base, fresh, {}).rows[0].change, Change::kInconclusive) << "without, they differ";
  const auto calibrated =
      noise_between(std::vector{set_of({on_machine(100, 1, 1, 1)}), set_of({on_machine(110, 1.1, 1, 1)})});
  EXPECT_LT(calibrated.at("a/k").sigma, 1e-6);
}

TEST(ComparePace, PooledFilesKeepWhatEachRunTold) {
  const auto file = [](const char* name, double us, double cores) {
    Record r = test::passing("a", "cpu", us);
    r.device = "cpu";
    r.time->cores_us = cores;
    r.time->memory_us = 10 * cores;
    r.time->handover_us = cores / 4;
    std::string path = testing::TempDir() + name;
    std::ofstream(path) << dump_json(results_to_json(test::make_context(), std::vector{r}));
    return path;
  };
  const std::string a = file("pace_a.json", 100, 20), b = file("pace_b.json", 110, 22),
                    c = file("pace_c.json", 100, 20);
  const ResultSet pooled = parse_results(dump_json(pool_result_files({a, b, c})), "x.json");
  const std::vector<RunTimes> runs = runs_of(pooled.results.at(0));
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[1].cores_us, 22);
  EXPECT_EQ(runs[1].memory_us, 220);
  EXPECT_EQ(runs[1].handover_us, 5.5);
  EXPECT_EQ(runs[1].samples, 6u);
  EXPECT_NEAR(runs[1].us / runs[0].us, 1.1, 1e-12);
  const ResultSet single = load_results(b);
  const auto pace = pace_between(pooled.results[0], single.results[0]);
  ASSERT_TRUE(pace);
  EXPECT_NEAR(pace->cores, 22 / std::cbrt(20. * 22 * 20), 1e-12);
  EXPECT_NEAR(paced_samples(pooled.results[0])[6], paced_samples(single.results[0])[0], 1e-12);
  Record torn = pooled.results[0];
  torn.time->samples_us.pop_back();
  EXPECT_FALSE(pace_between(torn, single.results[0])) << "samples that belong to no run";
  for (const std::string& path : {a, b, c}) std::remove(path.c_str());
}

TEST(ComparePace, StudentsT) {
  // From tables: two-sided 5 % points, and p of some values.
  for (const auto& [freedom, t] : std::vector<std::pair<int, double>>{
           {1, 12.706}, {2, 4.303}, {3, 3.182}, {4, 2.776}, {9, 2.262}, {10, 2.228}, {30, 2.042}}) {
    EXPECT_NEAR(student_95(freedom), t, 6e-4) << freedom;
    EXPECT_NEAR(student_p(t, freedom), 0.05, 1e-4) << freedom;
    EXPECT_NEAR(student_p(0, freedom), 1, 1e-12);
  }
  EXPECT_NEAR(student_p(4.032, 5), 0.01, 1e-5);
  EXPECT_NEAR(student_p(-63.657, 1), 0.01, 1e-6);
  // With few runs, p is far from the normal tail for as many standard errors.
  RatioTest few{1.1, 1.099, 1.101, 1e-9}, many = few;
  widen_by_noise(few, {0.01, 4}, 2, 2, 0.02);
  widen_by_noise(many, {0.01, 100}, 2, 2, 0.02);
  EXPECT_GT(few.p, 2e-3);
  EXPECT_LT(many.p, 1e-6);
}

/// Runs on a machine whose pace drifts; the runs of both sides alternate.
TEST(ComparePace, InTurnsADriftIsNoNoise) {
  std::mt19937_64 rng(3);
  std::normal_distribution<double> step(0, 0.06), own(0, 0.002);
  ResultSet base, fresh;
  double drift = 0;
  for (int i = 0; i < 8; ++i) {
    drift += step(rng);
    const auto run = [&](double us, uint64_t seed) {
      return set_of({sampled("a", us * std::exp(drift + own(rng)), 0.002, 40, seed)});
    };
    if (i == 0) {
      base = run(100, 1);
      fresh = run(105, 2);
    } else {
      pool_runs(base, run(100, 10 + i));
      pool_runs(fresh, run(105, 30 + i));
    }
  }
  CompareOptions options;
  EXPECT_EQ(compare_results(base, fresh, options).rows[0].change, Change::kInconclusive);
  options.in_turns = true;
  const CompareRow row = compare_results(base, fresh, options).rows[0];
  EXPECT_EQ(noise_of_pairs(std::vector<double>{100, 110}, std::vector<double>{105, 115.5}).sigma, 0)
      << "up to rounding";
  EXPECT_LT(noise_of_pairs(run_times(base.results[0], false), run_times(fresh.results[0], false)).sigma,
            0.004);
  EXPECT_EQ(noise_of_pairs(std::vector<double>{100}, std::vector<double>{105}).runs, 0);
  EXPECT_EQ(noise_of_pairs(std::vector<double>{100, 101}, std::vector<double>{105}).runs, 0)
      << "one is incomplete";
  EXPECT_EQ(row.change, Change::kSlower) << *row.ratio << " " << *row.lo;
  EXPECT_NEAR(*row.ratio, 1.05, 0.01);
}

/// As a gate by CPU time makes them: most runs differ by 1 %, one of four is slow as a whole on one side.
TEST(ComparePace, OfCpuTimesInTurnsTheQuickestFifthDecides) {
  const auto sides = [](double slower, TimeClock clock) {
    std::mt19937_64 rng(5);
    std::normal_distribution<double> own(0, 0.01);
    std::pair<ResultSet, ResultSet> out;
    for (int i = 0; i < 8; ++i) {
      const auto run = [&](double us, bool late) {
        Record r = sampled("a", us * (late ? 1.4 : 1) * std::exp(own(rng)), 0.02, 15, 100 + i);
        r.time->clock = clock;
        r.time->cores_us = 20;
        return set_of({r});
      };
      const ResultSet base = run(100, i % 4 == 1), fresh = run(100 * slower, i % 4 == 2);
      if (i == 0) {
        out = {base, fresh};
      } else {
        pool_runs(out.first, base);
        pool_runs(out.second, fresh);
      }
    }
    return out;
  };
  CompareOptions options;
  options.in_turns = true;
  const auto row = [&](double slower, TimeClock clock) {
    const auto [base, fresh] = sides(slower, clock);
    return compare_results(base, fresh, options).rows[0];
  };
  EXPECT_EQ(row(1.05, TimeClock::kCpu).change, Change::kSlower);
  EXPECT_EQ(row(0.95, TimeClock::kCpu).change, Change::kFaster);
  EXPECT_NE(row(1.00, TimeClock::kCpu).change, Change::kSlower);
  EXPECT_NE(row(1.00, TimeClock::kCpu).change, Change::kFaster);
  EXPECT_EQ(row(1.05, TimeClock::kWall).change, Change::kInconclusive);
  // Fewer than two whole pairs tell no noise.
  EXPECT_EQ(noise_of_blocks(std::vector<std::vector<double>>{{1, 2}},
                            std::vector<std::vector<double>>{{1, 2}}, band_of(TimeClock::kCpu), 1)
                .runs,
            0);
}

}  // namespace
}  // namespace attnbench
