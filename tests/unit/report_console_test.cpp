#include "harness/report/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "harness/report/summary.h"
#include "harness/results/json.h"
#include "harness/results/text.h"
#include "tests/unit/results_fixtures.h"
#include "tests/unit/tree_files.h"

namespace attnbench {
namespace {

using test::kHostile;
using test::kInf;
using test::kNan;
using test::not_passing;
using test::passing;
using testing::HasSubstr;
using testing::Not;

std::string printed(const std::vector<Record>& records, const ConsoleOptions& options = {}) {
  std::ostringstream out;
  print_console(out, records, options);
  return out.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(ReportConsole, ManySkipsAreCountedAndNotListed) {
  std::vector<Record> records = {test::passing("a")};
  const auto add = [&](int n) {
    for (int i = 0; i < n; ++i)
      records.push_back(test::not_passing("s" + std::to_string(i), Status::kSkip, "paged is not supported"));
  };
  add(20);
  EXPECT_THAT(printed(records), testing::AllOf(HasSubstr("s19"), Not(HasSubstr("not listed"))));
  add(1);
  EXPECT_THAT(printed(records),
              AllOf(Not(HasSubstr("s19")), HasSubstr("\n21 skipped runs are not listed here: "),
                    HasSubstr("  21 runs: paged is not supported")));
}

TEST(ReportConsole, TableIsAligned) {
  const auto lines =
      lines_of(printed({passing("a", "cuda_simt", 12.3456), passing("longer/id", "cpu", 1234.5)}));
  EXPECT_EQ(lines[0],
            "status  case       kernel         time  ± %  TFLOP/s  GB/s  %SOL  bound   max|z|      rows");
  EXPECT_EQ(lines[1],
            "pass    a          cuda_simt  12.35 us  1.0    412.3  2012  64.3  memory    3.25  512/4096");
  EXPECT_EQ(display_width(lines[1]), display_width(lines[2]));
  EXPECT_EQ(lines.back(), "2 passed, 0 failed, 0 skipped, 0 errors; 0 s");
}

TEST(ReportConsole, RatesOfACpuAreInGigaflops) {
  Record r = passing("a", "cpu", 519200);
  r.device = "cpu";
  const auto lines = lines_of(printed({r}));
  EXPECT_THAT(lines[0], HasSubstr("GFLOP/s"));
  EXPECT_THAT(lines[1], testing::AllOf(HasSubstr("519.2 ms"), HasSubstr("412345")));
}

TEST(ReportConsole, TimesOfRanksHaveLinesOfTheirOwn) {
  Record r = passing("a", "k", 33);
  r.time->ranks = {{20, 10, 2, 32}, {18, 12, 3, 33}};
  r.time->skew_us = 1.5;
  EXPECT_THAT(
      printed({r}),
      HasSubstr("\nranks:\n"
                "  a/k: 33.0 us to the end of the slowest rank; their clocks start at most 1.5 us apart\n"
                "    rank 0: 32.0 us = attention 20.0 + communication 10.0 + correction 2.0\n"
                "    rank 1: 33.0 us = attention 18.0 + communication 12.0 + correction 3.0\n"));
  r.time->alone_us = 9;
  EXPECT_THAT(printed({r}), HasSubstr("1.5 us apart; exchanges alone take 9.0 us\n"));
}

TEST(ReportConsole, ATimeThatIsHardlyKnownIsMarked) {
  Record r = passing("a");
  r.time->hi_us = r.time->median_us * 28.19;
  EXPECT_THAT(printed({r}),
              testing::AllOf(HasSubstr("2719?"), HasSubstr("\n? +/- 50 % or more: not usable")));
  r.time->hi_us = r.time->median_us * 1.49;
  EXPECT_THAT(printed({r}), Not(HasSubstr("?")));
}

TEST(ReportConsole, CeilingsOfABusyMachineAreMarked) {
  ConsoleOptions options;
  options.ceilings_disturbed = true;
  const std::string text = printed({passing("a")}, options);
  EXPECT_THAT(text, testing::AllOf(HasSubstr("64.3*"), HasSubstr("memory*"),
                                   HasSubstr("* the ceilings were measured on a busy machine")));
  EXPECT_THAT(printed({passing("a")}), Not(HasSubstr("*")));
}

TEST(ReportConsole, BeatenCeilingsAreExplained) {
  Record r = passing("a");
  r.roofline->sol = 1.28;
  EXPECT_THAT(printed({r}), testing::AllOf(HasSubstr(" 128 "), HasSubstr("%SOL over 100: faster than")));
  r.roofline->sol = 1.004;
  EXPECT_THAT(printed({r}), testing::AllOf(HasSubstr(" 100 "), Not(HasSubstr("over 100"))));
}

TEST(ReportConsole, SkipsAreSummedUpByReason) {
  const std::string text =
      printed({not_passing("a", Status::kSkip, "k: head_dim 64 or 128 required, given 72"),
               not_passing("b", Status::kSkip, "k: no sinks"),
               not_passing("c", Status::kSkip, "k: head_dim 64 or 128 required, given 96")});
  EXPECT_THAT(
      text,
      HasSubstr("skipped:\n  2 runs: k: head_dim 64 or 128 required, given 72\n  1 run: k: no sinks\n"));
}

TEST(ReportConsole, CoverageAndTypesAreToldOfSeveralKernelsAndOfOneThatSkipped) {
  Record typed = passing("a", "x");
  typed.check->declared = Declared{{DType::kBf16, DType::kFp32, 0}};
  Record skipped = not_passing("b", Status::kSkip, "no");
  skipped.kernel = "x";
  EXPECT_THAT(printed({typed, skipped}),
              HasSubstr("\nkernels:\n  x: 1 of 2 cases run (50.0 %), declares acc fp32, p bf16\n"));
  EXPECT_THAT(
      printed({typed, passing("a", "y")}),
      HasSubstr("\nkernels:\n  x: 1 of 1 case run, declares acc fp32, p bf16\n  y: 1 of 1 case run\n"));
  EXPECT_THAT(printed({typed}), Not(HasSubstr("kernels:")));
}

TEST(ReportConsole, InvariantsAreCountedByKernel) {
  using Outcome = InvariantResult::Outcome;
  Record a = passing("a", "mine"), b = passing("b", "mine"), other = passing("a", "other");
  a.check->invariants = {{"repeat", Outcome::kHeld, ""}, {"layout", Outcome::kSkipped, "packed"}};
  b.check->invariants = {{"repeat", Outcome::kHeld, ""}, {"layout", Outcome::kBroken, "O of ..."}};
  other.check->invariants = {{"repeat", Outcome::kHeld, ""}, {"split", Outcome::kDiffers, "O of ..."}};
  EXPECT_THAT(printed({a, b, other}),
              HasSubstr("\ninvariants:\n"
                        "  mine: 2 invariants held, 1 was broken, 1 was skipped (layout: packed)\n"
                        "  other: 1 invariant held, 0 were broken, 0 were skipped; 1 gave other bits within "
                        "the tolerance, and the kernel promises no more\n"));
  for (Record* r : {&a, &b, &other}) r->check->invariants.clear();
  EXPECT_THAT(printed({a, b, other}), Not(HasSubstr("invariant"))) << "none were asked for";
}

TEST(ReportConsole, WhatThePassedCasesWouldHaveShown) {
  Record worse = passing("b"), other = passing("c");
  worse.check->power = Power{0.02, 0.004, 0.004, NAN, NAN};
  other.check->power.reset();
  EXPECT_THAT(printed({passing("a"), worse, other}),
              HasSubstr("\nthe passed cases would have shown:\n"
                        "  softmax_scale off by 0.0002 % to 0.4 %, by O alone 0.2 % to 0.4 %\n"
                        "  O off by 0.1 % to 2 %\n"
                        "  a dropped key of weight 0.3 % (none in 1 case), by O alone none\n"));
  worse.status = Status::kFail;
  EXPECT_THAT(printed({worse, other}), Not(HasSubstr("would have shown")));
}

TEST(ReportConsole, TheFasterKernelIsNamed) {
  const std::vector<Record> records = {passing("a", "slow", 20), passing("a", "fast", 5),
                                       passing("b", "slow", 90), passing("b", "fast", 10),
                                       passing("c", "slow", 7)};
  EXPECT_THAT(printed(records),
              HasSubstr("fast is 6.00 times as fast as slow (geometric mean of 2 cases)\n"));
  EXPECT_THAT(printed({passing("a", "x", 4), passing("a", "y", 6)}),
              HasSubstr("\nx is 1.50 times as fast as y\n"));
  EXPECT_THAT(printed({passing("a", "x", 4), passing("b", "y", 6)}), Not(HasSubstr("times as fast")));
}

TEST(ReportConsole, AFactorCountsUsableTimesAndLeavesOutDisturbedOnes) {
  std::vector<Record> records = {passing("a", "slow", 20),  passing("a", "fast", 5),
                                 passing("b", "slow", 90),  passing("b", "fast", 10),
                                 passing("c", "slow", 700), passing("c", "fast", 1)};
  records[4].time->hi_us = 1050;  // +/- 50 %
  records[3].time->disturbed = 6;
  EXPECT_THAT(printed(records), HasSubstr("fast is 4.00 times as fast as slow (1 disturbed left out)\n"));
  records.erase(records.begin(), records.begin() + 2);
  EXPECT_THAT(
      printed(records),
      HasSubstr("slow and fast are not ranked: other processes disturbed 1 of their 2 cases, and the others' "
                "times are too uncertain\n"));
  records.resize(2);
  EXPECT_THAT(printed(records),
              HasSubstr("slow and fast are not ranked: other processes disturbed their case\n"));
  records[0].time->lo_us = 40;
  EXPECT_THAT(printed(records), Not(HasSubstr("times as fast")));
}

TEST(ReportConsole, CountersHaveColumnsWhereTheyWereAskedFor) {
  Record counted = passing("a");
  counted.counters = {1.5e8, 1e8, 37.5, std::nullopt, 2, ""};
  const auto lines = lines_of(printed({counted, passing("b")}));
  EXPECT_THAT(lines[0], testing::EndsWith("    rows  DRAM/model  tensor %  L2 hit %"));
  EXPECT_THAT(lines[1], testing::EndsWith("512/4096        1.25      37.5         -"));
  EXPECT_THAT(lines[2], testing::EndsWith("512/4096"));
  EXPECT_THAT(printed({passing("b")}), Not(HasSubstr("DRAM")));
}

TEST(ReportConsole, OnANarrowTerminalTheIdStandsWholeAboveItsKernels) {
  const std::string id = "attention/paged16-nhd-shuffled/bf16/h32-8/d128/causal/8q1s1k_1q512s2k_31q1s1k";
  const std::vector<Record> records = {passing(id), passing(id, "sm90_decode_fixed"), passing("other"),
                                       not_passing("other", Status::kSkip, std::string(100, 'y'))};
  ConsoleOptions options;
  options.width = 120;
  EXPECT_EQ(lines_of(printed(records, options))[0].substr(0, 16), "  status  kernel");
  const auto lines = lines_of(printed(records, options));
  EXPECT_EQ(lines[1], id);
  EXPECT_THAT(lines[2], testing::MatchesRegex("  pass    cuda_simt          +100.0 .* 512/4096"));
  EXPECT_THAT(lines[3], testing::StartsWith("  pass    sm90_decode_fixed  "));
  EXPECT_EQ(lines[4], "other");
  EXPECT_THAT(lines[6], testing::MatchesRegex("  skip    cuda_simt +y+…"));
  options.width = 80;
  for (const std::string& line : lines_of(printed(records, options)))
    EXPECT_LE(display_width(line), 80u) << line;
  EXPECT_THAT(lines_of(printed(records, options))[2], testing::EndsWith("  3.25")) << "rows are left out";
  options.width = 200;
  EXPECT_THAT(lines_of(printed(records, options))[1], testing::StartsWith("pass    " + id + "  cuda_simt  "));
}

TEST(ReportConsole, SkipsShowTheReasonAndFailuresTheRepro) {
  const std::string text =
      printed({not_passing("s", Status::kSkip, "head_dim 72 not in {64, 128}"),
               not_passing("f", Status::kFail, "max|z| 40"), not_passing("e", Status::kTimeout, "60 s")},
              {0, false, 12.34});
  EXPECT_THAT(text, HasSubstr("skip     s     cuda_simt  head_dim 72 not in {64, 128}\n"));
  EXPECT_THAT(text, HasSubstr("\nfail f/cuda_simt\n  max|z| 40\n  reproduce: attnbench run --case x\n"));
  EXPECT_THAT(text, HasSubstr("\ntimeout e/cuda_simt\n"));
  EXPECT_THAT(text, HasSubstr("0 passed, 1 failed, 1 skipped, 1 error (1 timeout); 12.3 s\n"));
}

/// Right in the verified launch, wrong in a timed one.
Record wrong_when_timed() {
  Record r = passing("f");
  r.status = Status::kFail;
  r.reason = "it keeps results";
  r.check->pass = false;
  r.check->failed_by = {"kept_results", "guard", "guard"};
  return r;
}

TEST(ReportConsole, AFailureNamesItsDetectors) {
  EXPECT_THAT(printed({wrong_when_timed()}),
              HasSubstr("\nfail f/cuda_simt\n  it keeps results [kept_results, guard]\n  reproduce: "));
}

TEST(ReportConsole, AZWithinItsLimitDoesNotLookRightBesideAFailure) {
  const Record timed = wrong_when_timed();
  const std::string text = printed({timed, passing("a")});
  EXPECT_THAT(lines_of(text)[1], HasSubstr(" 3.25^ "));
  EXPECT_THAT(lines_of(text)[2], HasSubstr(" 3.25 "));
  EXPECT_THAT(
      text,
      HasSubstr("\n^ this max|z| is of the verified launch and within its limit; another check failed"));
  Record by_z = timed;
  by_z.check->max_z = 40;
  EXPECT_THAT(printed({by_z, passing("a")}), Not(HasSubstr("^")));
  Record of_none = timed;  // the launch did not end
  of_none.check->method = "none";
  of_none.check->max_z = 0;
  EXPECT_THAT(printed({of_none}), Not(HasSubstr("^")));
  Record of_bits = timed;
  of_bits.check->method = "bitwise";
  EXPECT_THAT(printed({of_bits, passing("a")}), Not(HasSubstr("exact")));
  of_bits.check->pass = true;
  EXPECT_THAT(printed({of_bits, passing("a")}), HasSubstr("exact"));
}

TEST(ReportConsole, EscapesOnlyWhenAskedAndNeverFromText) {
  const Record hostile = not_passing(kHostile, Status::kFail, kHostile);
  const std::string plain = printed({hostile, passing("a")});
  EXPECT_THAT(plain, Not(HasSubstr("\033")));
  EXPECT_EQ(valid_utf8(plain), plain);
  for (const char c : plain) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
  EXPECT_THAT(printed({passing("a")}, {0, true, 0}), HasSubstr("\033[32mpass"));
}

TEST(ReportConsole, ColumnsWithoutAnyFigureAreLeftOut) {
  Record untimed = passing("a");
  untimed.time.reset();
  untimed.roofline.reset();
  EXPECT_THAT(lines_of(printed({untimed}))[0], testing::MatchesRegex("status +case +kernel +max.z. +rows"));
  EXPECT_THAT(lines_of(printed({untimed, passing("b")}))[0], HasSubstr("TFLOP/s"));
}

TEST(ReportConsole, WhatNobodyLookedAtIsSaid) {
  Record unchecked = passing("a");
  unchecked.check.reset();
  EXPECT_THAT(printed({unchecked, passing("b")}), HasSubstr("2 passed (1 not checked), 0 failed"));
}

TEST(ReportConsole, NoRecords) { EXPECT_EQ(printed({}), "0 passed, 0 failed, 0 skipped, 0 errors; 0 s\n"); }

TEST(ReportConsole, NoTimeToSpeakOf) {
  ConsoleOptions options;
  options.elapsed_s = 1.78e-6;
  EXPECT_THAT(printed({}, options), HasSubstr("; 0 s\n"));
  options.elapsed_s = 0.0203;
  EXPECT_THAT(printed({}, options), HasSubstr("; 0.02 s\n"));
}

TEST(ReportConsole, ProgressLine) {
  EXPECT_EQ(progress_line(passing("a"), 7, 136, {}), "[  7/136] pass  a/cuda_simt  100.0 us");
  EXPECT_EQ(progress_line(not_passing("a", Status::kSkip, "why"), 7, 0, {}), "[7] skip  a/cuda_simt  why");
  ConsoleOptions narrow;
  narrow.width = 60;
  const Record r = not_passing(std::string(200, 'x'), Status::kFail, std::string(300, 'y'));
  EXPECT_LE(display_width(progress_line(r, 7, 136, narrow)), 60u);
}

TEST(ReportConsole, TimesOfABusyMachineAreMarkedRowByRow) {
  Record busy = passing("a");
  EXPECT_THAT(printed({busy}), Not(HasSubstr("!")));
  const std::size_t samples = busy.time->samples_us.size();
  busy.time->disturbed = static_cast<int>(samples / 2);
  EXPECT_THAT(printed({busy}), Not(HasSubstr("!"))) << "half of the samples";
  busy.time->disturbed = static_cast<int>(samples / 2 + 1);
  const std::string text = printed({busy, passing("b")});
  const auto lines = lines_of(text);
  EXPECT_THAT(lines[1], HasSubstr("  100.0 us!  "));
  EXPECT_THAT(lines[2], HasSubstr("  100.0 us   ")) << "aligned, and without a mark";
  EXPECT_THAT(text, HasSubstr("\n! other processes took the cores during more than half of the samples"));
}

TEST(ReportConsole, TwoSpeedsAreSaid) {
  Record r = test::passing("a");
  r.time->samples_us.assign(30, 81.0);
  EXPECT_EQ(two_speed_times(std::vector{r}), "");
  r.time->samples_us.insert(r.time->samples_us.end(), 70, 91.5);
  EXPECT_EQ(
      two_speed_times(std::vector{r}),
      "two speeds: a/cuda_simt: 81.00 us in 30 % of the samples, 91.50 us in the others. Such a median may "
      "change from run to run by more than ± says");
  EXPECT_THAT(printed({r}), HasSubstr("\ntwo speeds: a/cuda_simt: "));
  EXPECT_THAT(two_speed_times(std::vector(7, r)), HasSubstr("; and 2 more. "));
  r.time->disturbed = 90;
  EXPECT_EQ(two_speed_times(std::vector{r}), "") << "others took the cores, which explains it";
}

TEST(ReportConsole, MarkedTimesAreSaid) {
  Record quiet = test::passing("a"), hot = test::passing("b"), bound = test::passing("c");
  const Record trusted = test::passing("d");
  for (Record* r : {&quiet, &hot, &bound}) r->time->watch.launches = 12;
  EXPECT_EQ(time_marks(std::vector{quiet}), "");
  EXPECT_EQ(time_marks(std::vector{quiet, trusted}),
            "times that are marked: 1 of launches that were not watched (--trust)");
  hot.time->clocks.throttle = {"sw_power_cap"};
  bound.time->host_bound = 2;
  bound.time->near_floor = true;
  EXPECT_EQ(
      time_marks(std::vector{quiet, hot, bound}),
      "times that are marked: 1 throttled (sw_power_cap), 1 with host-bound samples, 1 near the time of an "
      "empty launch");
}

/// scripts/readme_tables.py writes that table. Here its rows are read back, and their records printed.
TEST(ReportConsole, TheTableOfTheReadmeIsWhatItPrints) {
  const std::string page = tree::read(tree::root() / "README.md");
  const std::string begin = "<!-- figures: quickstart -->\n```\n$ attnbench run quickstart\n";
  const std::size_t from = page.find(begin) + begin.size(), to = page.find("```\n<!-- end -->", from);
  ASSERT_TRUE(from > begin.size() && to != page.npos);
  const std::string shown = page.substr(from, to - from);
  const auto results =
      nlohmann::ordered_json::parse(tree::read(tree::root() / "results/baselines/h100/quickstart.json"));
  std::vector<Record> records;
  std::string id, status, kernel;
  for (const std::string& line : lines_of(shown)) {
    if (line[0] != ' ') id = line;
    if (id.empty() || line[0] != ' ') continue;
    std::istringstream(line) >> status >> kernel;
    const auto& all = results.at("benchmarks");
    const auto entry = std::find_if(all.begin(), all.end(), [&](const auto& e) {
      return e["attnbench"]["id"] == id && e["attnbench"]["kernel"] == kernel;
    });
    ASSERT_TRUE(entry != all.end()) << id << " " << kernel;
    Case item;
    item.id = id;
    item.seed = entry->at("attnbench").at("seed");
    records.push_back(record_from_json(*entry, item));
  }
  EXPECT_EQ(printed(records, {{.width = 100}}).substr(0, shown.size()), shown);
}

}  // namespace
}  // namespace attnbench
