// A verdict never contradicts the clock: records of a CPU whose probes were disturbed, or would reverse the
// direction.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/compare/compare.h"
#include "harness/compare/gate_policy.h"
#include "harness/compare/join_runs.h"
#include "harness/compare/machine_pace.h"
#include "tests/unit/results_fixtures.h"

namespace attnbench {
namespace {

using test::sampled;
using test::set_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

CompareResult compared(const Record& base, const Record& fresh, bool in_turns = false) {
  CompareOptions options;
  options.in_turns = in_turns;
  return compare_results(set_of({base}), set_of({fresh}), options);
}

CompareRow one_compared(const Record& base, const Record& fresh, bool in_turns = false) {
  return compared(base, fresh, in_turns).rows.at(0);
}

/// A run in which a kernel took `us` while the probes took this many times as long as on a quiet machine.
Record run_of(double us, double cores, double memory, double handover, uint64_t seed) {
  Record r = sampled("a", us, 0.002, 40, seed);
  r.device = "cpu";
  r.time->cores_us = 20 * cores;
  r.time->memory_us = 800 * memory;
  r.time->handover_us = 2 * handover;
  return r;
}

/// 25 samples with median `us`. Those above the median are `later_us`, so the midmean is above the median.
Record on_busy_cores(double us, double later_us, double cores_us) {
  Record r = sampled("a", us, 0, 13, 1);
  r.time->samples_us.insert(r.time->samples_us.end(), 12, later_us);
  r.time->hi_us = later_us;
  r.device = "cpu";
  r.time->cores_us = cores_us;
  return r;
}

TEST(CompareClock, ADisturbedProbeCallsNoFasterKernelSlower) {
  // Seen on busy cores: 3,516 % slower in multiples of the probe.
  const Record base = on_busy_cores(152927, 152927, 10477), fresh = on_busy_cores(16025, 16758, 31);
  const Band middle = band_of(TimeClock::kWall);
  ASSERT_NEAR(band_mean(paced_samples(fresh), middle) / band_mean(paced_samples(base), middle), 36.16, 0.005);
  const CompareResult result = compared(base, fresh);
  const CompareRow& row = result.rows.at(0);
  EXPECT_EQ(row.change, Change::kInconclusive);
  EXPECT_EQ(
      row.note,
      "the CPU test loop cores_us took 10477 us in BASE and 31.00 us in NEW, more than 2 times apart: other "
      "work slowed one side more than the other, so the difference may not be the kernel's, and only a change by a factor of over "
      "1352 (its whole interval) could be told; run both sides again on a quiet machine, or in turns (gate --against or --against-plugin)");
  EXPECT_EQ(*row.base_us, 152927);
  EXPECT_EQ(*row.new_us, 16025);
  EXPECT_NEAR(*row.ratio, 0.107, 5e-4) << "as the clock told it";
  EXPECT_LT(*row.hi, 0.11);
  EXPECT_FALSE(row.p) << "nothing was tested";
  EXPECT_EQ(compare_exit_code(result, {}), 4);
  EXPECT_TRUE(undecided_cases(result, set_of({fresh})).contains("a")) << "a gate runs it again";
}

TEST(CompareClock, NorASlowerKernelFaster) {
  const Record base = on_busy_cores(16025, 16758, 31), fresh = on_busy_cores(152927, 152927, 10477);
  const CompareResult result = compared(base, fresh);
  EXPECT_EQ(result.rows[0].change, Change::kInconclusive);
  EXPECT_GT(*result.rows[0].ratio, 9);
  EXPECT_THAT(result.rows[0].note, HasSubstr("cores_us took 31.00 us in BASE and 10477 us in NEW"));
  EXPECT_EQ(compare_exit_code(result, {}), 4) << "not slower is not known either";
  EXPECT_THAT(one_compared(base, fresh, true).note, HasSubstr("run both sides again on a quiet machine"));
  EXPECT_THAT(one_compared(base, fresh, true).note, Not(HasSubstr("--against"))) << "they were in turns";
}

TEST(CompareClock, AProbeMayMoveByNearlyTwo) {
  const Record base = run_of(100, 1, 1, 1, 1);
  // Kernels that are slower or faster by more than the machine is.
  for (const double moved : {1.9, 1 / 1.9}) {
    EXPECT_EQ(one_compared(base, run_of(250 * moved, moved, moved, 1, 2)).change, Change::kSlower) << moved;
    EXPECT_EQ(one_compared(base, run_of(40 * moved, moved, moved, 1, 2)).change, Change::kFaster) << moved;
    EXPECT_EQ(one_compared(base, run_of(100 * moved, moved, moved, 1, 2)).change, Change::kSame) << moved;
    EXPECT_EQ(one_compared(base, run_of(100, 1, moved, 1, 2)).change, Change::kSame) << moved;
  }
  for (const double moved : {2.1, 1 / 2.1}) {
    for (const double us : {40, 100, 250}) {
      EXPECT_EQ(one_compared(base, run_of(us * moved, moved, moved, 1, 2)).change, Change::kInconclusive)
          << us << " " << moved;
      EXPECT_EQ(one_compared(base, run_of(us * moved, moved, moved, 1, 2), true).change,
                Change::kInconclusive)
          << us << " " << moved;
    }
    EXPECT_THAT(one_compared(base, run_of(100, 1, moved, 1, 2)).note,
                HasSubstr("the memory test loop memory_us took 800.0 us"));
  }
}

TEST(CompareClock, WaitsOfThreadsDivideNothing) {
  // A virtual machine varies this much by itself. Slower and faster must exceed 25 %; same stays same.
  const Record base = run_of(100, 1, 1, 1, 1);
  EXPECT_EQ(one_compared(base, run_of(130, 1, 1, 4, 2)).change, Change::kSlower);
  EXPECT_EQ(one_compared(base, run_of(120, 1, 1, 4, 2)).change, Change::kInconclusive);
  EXPECT_EQ(one_compared(base, run_of(70, 1, 1, 4, 2)).change, Change::kFaster);
  EXPECT_EQ(one_compared(base, run_of(100, 1, 1, 4, 2)).change, Change::kSame);
}

TEST(CompareClock, DirectionsThatDisagreeDecideNothing) {
  const Record base = run_of(100, 1, 1, 1, 1);
  const CompareRow row = one_compared(base, run_of(90, 0.8, 0.8, 1, 2));
  EXPECT_EQ(row.change, Change::kInconclusive);
  EXPECT_THAT(row.note,
              AllOf(testing::StartsWith("time -10."), HasSubstr("but time / CPU test loop +12."),
                    HasSubstr("(cores_us, 20.00 us in BASE and 16.00 us in NEW)"), HasSubstr("contradict")));
  EXPECT_NEAR(*row.ratio, 0.9, 0.002);
  const CompareRow reverse = one_compared(base, run_of(110, 1.25, 1.25, 1, 2));
  EXPECT_EQ(reverse.change, Change::kInconclusive);
  EXPECT_THAT(reverse.note, AllOf(testing::StartsWith("time +9.9 %"), HasSubstr("CPU test loop -12.")));
  // A difference within the minimum effect has no direction.
  EXPECT_EQ(one_compared(base, run_of(99, 0.9, 0.9, 1, 2)).change, Change::kSlower);
  EXPECT_EQ(one_compared(base, run_of(101, 1.1, 1.1, 1, 2)).change, Change::kFaster);
  EXPECT_EQ(one_compared(base, run_of(106, 1.06, 1.06, 1, 2)).change, Change::kSame);
  EXPECT_EQ(one_compared(base, run_of(94, 0.94, 0.94, 1, 2)).change, Change::kSame);
}

/// Runs of one kernel at these paces.
ResultSet runs_of_pace(const std::vector<double>& paces, uint64_t seed) {
  ResultSet set;
  for (const double pace : paces) {
    const ResultSet run = set_of({run_of(100 * pace, pace, pace, 1, ++seed)});
    if (set.results.empty()) {
      set = run;
    } else {
      pool_runs(set, run);
    }
  }
  return set;
}

TEST(CompareClock, ProbesThatMoveWithinASideDecideNothing) {
  const auto row = [](const std::vector<double>& base, const std::vector<double>& fresh) {
    return compare_results(runs_of_pace(base, 10), runs_of_pace(fresh, 30), {}).rows.at(0);
  };
  EXPECT_EQ(row({1, 1}, {1, 1.9}).change, Change::kSame);
  const CompareRow moved = row({1, 2.1}, {1, 2.1});
  EXPECT_EQ(moved.change, Change::kInconclusive);
  EXPECT_THAT(moved.note, HasSubstr("cores_us took 20.00 to 42.00 us in the runs of BASE"));
  EXPECT_THAT(row({1, 1}, {1, 2.1}).note, HasSubstr("cores_us took 20.00 to 42.00 us in the runs of NEW"));
  EXPECT_EQ(row({1, 1, 3, 3}, {1, 1, 1, 1}).change, Change::kInconclusive);
  EXPECT_EQ(row({1, 1, 1, 3}, {1, 3, 1, 1}).change, Change::kSame) << "a quarter of the runs decides nothing";
}

/// As many runs of NEW as of BASE, in turns. NEW's kernel takes `times` as long. A load that only NEW's runs
/// meet makes each of its runs longer by `load`, and moves the probe.
CompareRow in_turns(double times, const std::vector<double>& base_load, const std::vector<double>& load) {
  const auto side = [](double us, const std::vector<double>& by, double cores, uint64_t seed) {
    ResultSet set;
    for (const double l : by) {
      Record r = run_of(us * l, l > 1 ? cores : 1, 1, 1, ++seed);
      r.time->disturbed = l > 1 ? 40 : 0;
      if (set.results.empty()) {
        set = set_of({r});
      } else {
        pool_runs(set, set_of({r}));
      }
    }
    return set;
  };
  CompareOptions options;
  options.in_turns = true;
  const double slower = times >= 1 ? times : 1, faster = times < 1 ? 1 / times : 1;
  return compare_results(side(100 * faster, base_load, 5, 50), side(100 * slower, load, 5, 90), options)
      .rows.at(0);
}

TEST(CompareClock, InTurnsALoadHidesNoChangeFarBeyondIt) {
  const std::vector<double> quiet(6, 1), one_sided = {1.6, 1.9, 1.8, 1.7, 1.9, 1.75};
  const CompareRow equal = in_turns(1, quiet, one_sided);
  EXPECT_EQ(equal.change, Change::kInconclusive);
  EXPECT_GT(*equal.lo, 1.5) << "the load alone makes it longer";
  EXPECT_THAT(equal.note,
              HasSubstr("only a change by a factor of over 3.4 (its whole interval) could be told"))
      << "3 times the disturbance";
  EXPECT_EQ(in_turns(1, one_sided, quiet).change, Change::kInconclusive) << "nor is BASE slower";
  EXPECT_EQ(in_turns(1, one_sided, one_sided).change, Change::kSame);
  const CompareRow slow = in_turns(9, quiet, one_sided);
  EXPECT_EQ(slow.change, Change::kSlower);
  EXPECT_GT(*slow.lo, 9);
  EXPECT_EQ(slow.doubt, Doubt::kNone);
  EXPECT_EQ(
      slow.note,
      "equal runs differ by a factor of 1.12 at most, and the new side is at least 15 times as slow: the "
      "disturbance of the machine cannot be the cause");
  EXPECT_THAT(in_turns(1 / 9., quiet, quiet).note, Not(HasSubstr("disturbance")));
  EXPECT_EQ(in_turns(9, one_sided, quiet).change, Change::kSlower) << "a load on BASE hides it no more";
  EXPECT_EQ(in_turns(1.6, quiet, one_sided).change, Change::kInconclusive)
      << "3 times by the clock, of which a load may be the half";
}

TEST(CompareClock, InTurnsALoadMakesNoFasterKernelSlower) {
  const std::vector<double> quiet(6, 1), one_sided = {1.6, 1.9, 1.8, 1.7, 1.9, 1.75};
  for (const double times : {1 / 1.5, 1 / 3., 1 / 9., 1 / 50.}) {
    EXPECT_NE(in_turns(times, quiet, one_sided).change, Change::kSlower) << times;
    EXPECT_NE(in_turns(times, one_sided, quiet).change, Change::kSlower) << times;
  }
  const CompareRow fast = in_turns(1 / 9., quiet, one_sided);
  EXPECT_EQ(fast.change, Change::kFaster);
  EXPECT_THAT(fast.note, HasSubstr("the new side is at least 4.7 times as fast: the disturbance"));
}

TEST(CompareClock, InTurnsWhatEqualRunsDifferByIsAllowedFor) {
  const std::vector<double> wild = {1, 4, 1, 4, 1, 4};
  EXPECT_EQ(in_turns(9, wild, wild).change, Change::kInconclusive) << "3 times 4 is more than 9";
  EXPECT_EQ(in_turns(15, wild, wild).change, Change::kSlower);
  const std::vector<double> few = {1.8, 1.9, 1.7};
  EXPECT_EQ(in_turns(9, {1, 1, 1}, few).change, Change::kInconclusive) << "three runs show too little";
  EXPECT_EQ(in_turns(9, {1, 1, 1, 1}, {1.8, 1.9, 1.7, 1.8}).change, Change::kSlower);
}

TEST(CompareClock, ShownAreTheTimesThatWereCompared) {
  // Runs with distant threads take 120 us, as NEW would at the same speed. NEW takes 114.
  ResultSet base = set_of({run_of(100, 1, 1, 1, 1)});
  for (uint64_t i = 0; i < 4; ++i) {
    pool_runs(base, set_of({run_of(i == 0 ? 100 : 120, 1, 1, i == 0 ? 1 : 3.5, 2 + i)}));
    pool_runs(base, set_of({run_of(100, 1, 1, 1, 20 + i)}));
  }
  const CompareRow row = compare_results(base, set_of({run_of(114, 1, 1, 3.5, 9)}), {}).rows.at(0);
  EXPECT_EQ(row.change, Change::kFaster);
  EXPECT_NEAR(*row.base_us, 120, 0.5);
  EXPECT_NEAR(*row.new_us, 114, 0.5);
}

}  // namespace
}  // namespace attnbench
