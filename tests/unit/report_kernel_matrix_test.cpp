// compare --by kernel: what it prints of a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <sstream>

#include "harness/report/kernel_matrix.h"
#include "tests/unit/results_fixtures.h"

namespace attnbench::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Record timed(const std::string& id, const std::string& kernel, double us, double half_width) {
  Record r = sampled(id, us, 0, 3, 1, kernel);
  r.time->lo_us = us - half_width;
  r.time->hi_us = us + half_width;
  return r;
}

std::string matrix_of(std::vector<Record> results) {
  std::ostringstream out;
  print_kernel_matrix(out, set_of(std::move(results)), {});
  return out.str();
}

TEST(ReportKernelMatrix, KernelsAreInOrderOfSpeedAndEachCaseHasItsRatios) {
  const std::string text = matrix_of({timed("a", "slow", 30, 1), timed("a", "quick", 10, 1),
                                      timed("b", "slow", 10.5, 1), timed("b", "quick", 10, 1)});
  EXPECT_THAT(text, HasSubstr("case           quick             slow\n"));
  EXPECT_THAT(text, HasSubstr("a     10.00 us 1.00x   30.00 us 3.00x\n"));
  EXPECT_THAT(text, HasSubstr("b     10.00 us 1.00x  10.50 us ~1.05x\n"));
  EXPECT_THAT(text, HasSubstr("quick: fastest in 2 of 2 timed cases; 1.00 times the fastest"));
  EXPECT_THAT(text, HasSubstr("slow: fastest in 0 of 2 timed cases; 1.77 times the fastest"));
}

TEST(ReportKernelMatrix, WhatWasRefusedAndWhatFailedIsNamed) {
  Record failed = with_status("b", Status::kFail, "wrong");
  failed.device = "cuda:0";
  failed.repro = "attnbench run --case b --kernel wrong";
  Record skipped = with_status("b", Status::kSkip, "choosy");
  skipped.device = "cuda:0";
  skipped.reason = "choosy: head_dim 64 required, given 72";
  const std::string text = matrix_of(
      {timed("a", "choosy", 10, 1), timed("a", "wrong", 5, 1), failed, skipped, timed("b", "good", 7, 1)});
  EXPECT_THAT(text,
              AllOf(HasSubstr("wrong: fail b: because\n  attnbench run --case b --kernel wrong\n"),
                    HasSubstr("choosy: 1 skipped: choosy: head_dim 64 required, given 72\n"),
                    HasSubstr("\n\n1 case that a single kernel has a time of is left out of the counts\n")));
  EXPECT_THAT(text, Not(HasSubstr("good: 1 skipped")));
}

TEST(ReportKernelMatrix, AWrongKernelIsNeverTheFastest) {
  Record wrong = timed("a", "wrong", 1, 0.1);
  wrong.status = Status::kFail;
  EXPECT_THAT(
      matrix_of({wrong, timed("a", "good", 7, 1), timed("a", "slow", 9, 1)}),
      AllOf(HasSubstr("good: fastest in 1 of 1 timed cases; 1.00 times"), Not(HasSubstr("wrong: fastest"))));
}

TEST(ReportKernelMatrix, ACaseOfASingleKernelCountsForNone) {
  const std::vector<Record> results = {timed("a", "x", 10, 1), timed("a", "y", 20, 1), timed("b", "x", 5, 1)};
  const std::string text = matrix_of(results);
  EXPECT_THAT(text,
              AllOf(HasSubstr("\n1 case that a single kernel has a time of is left out of the counts\n"),
                    HasSubstr("x: fastest in 1 of 1 timed cases; 1.00 times"),
                    HasSubstr("y: fastest in 0 of 1 timed cases; 2.00 times")));
  EXPECT_THAT(text, HasSubstr("b     5.000 us 1.00x")) << "it stays in the table";
  EXPECT_THAT(matrix_of({results[0], results[1]}), Not(HasSubstr("single kernel")));
}

TEST(ReportKernelMatrix, ATimeThatIsNotUsableCountsForNone) {
  Record busy = timed("b", "x", 10, 1);
  busy.time->disturbed = 3;
  const std::string text =
      matrix_of({timed("a", "x", 10, 1), timed("a", "y", 5, 2.5), timed("a", "z", 20, 1), busy,
                 timed("b", "z", 40, 1), timed("c", "x", 10, 1), timed("c", "y", 1, 0.5)});
  EXPECT_THAT(text, AllOf(HasSubstr("5.000 us?"), HasSubstr("20.00 us 2.00x"),
                          HasSubstr("\n?: +/- 50 % or more: not usable, and not counted\n"),
                          HasSubstr("\n1 case without two usable times is left out of the counts\n"),
                          HasSubstr("x: fastest in 1 of 1 timed cases (1 disturbed left out); 1.00 times"),
                          HasSubstr("z: fastest in 0 of 1 timed cases (1 disturbed left out); 2.00 times"),
                          HasSubstr("b          10.00 us!  40.00 us 1.00x"), HasSubstr(", not counted\n"),
                          Not(HasSubstr("y: fastest"))));
  std::vector<Record> all = {busy, timed("b", "z", 40, 1)};
  EXPECT_THAT(matrix_of(all), AllOf(HasSubstr("x: not ranked: other processes disturbed its case\n"),
                                    HasSubstr("z: not ranked: "), Not(HasSubstr("fastest in"))));
}

/// A disturbed time may be the shortest; the others are compared without it.
TEST(ReportKernelMatrix, ADisturbedTimeIsNeverTheFastest) {
  Record busy = timed("a", "x", 1, 0.1);
  busy.time->disturbed = 3;
  const std::vector<Record> results = {busy, timed("a", "y", 10, 1), timed("a", "z", 20, 1)};
  const std::string text = matrix_of(results);
  EXPECT_THAT(text, AllOf(HasSubstr("y: fastest in 1 of 1 timed cases; 1.00 times"),
                          HasSubstr("z: fastest in 0 of 1 timed cases; 2.00 times"),
                          HasSubstr("x: not ranked: other processes disturbed its case")));
  std::ostringstream out;
  write_kernel_matrix_json(out, set_of(results));
  const auto json = nlohmann::json::parse(out.str());
  for (const auto& k : json.at("kernels")) EXPECT_EQ(k.value("disturbed", 0), k.at("kernel") == "x" ? 1 : 0);
}

TEST(ReportKernelMatrix, AsMarkdown) {
  Record failed = with_status("a", Status::kFail, "wrong");
  failed.repro = "attnbench run --case a --kernel wrong";
  failed.device = "cuda:0";
  std::ostringstream out;
  write_kernel_matrix_markdown(out, set_of({timed("a", "slow", 30, 1), timed("a", "quick", 10, 1), failed}));
  EXPECT_THAT(out.str(),
              AllOf(StartsWith("| case | quick | slow | wrong |\n|---|--:|--:|--:|\n"),
                    HasSubstr("| `a` | 10.00 us 1.00x | 30.00 us 3.00x | fail |\n"),
                    HasSubstr("\n- quick: fastest in 1 of 1 timed cases; 1.00 times"),
                    HasSubstr("\n- wrong: fail a: because<br>`attnbench run --case a --kernel wrong`\n")));
}

TEST(ReportKernelMatrix, AsJson) {
  Record failed = with_status("a", Status::kFail, "wrong");
  std::ostringstream out;
  write_kernel_matrix_json(out, set_of({timed("a", "slow", 30, 1), timed("a", "quick", 10, 1), failed}));
  const auto j = nlohmann::json::parse(out.str());
  EXPECT_EQ(j.at("kernels").at(0).at("kernel"), "quick");
  EXPECT_EQ(j.at("kernels").at(1).at("slowdown"), 3);
  EXPECT_EQ(j.at("cases").at(0).at("us").at("slow"), 30);
  EXPECT_EQ(j.at("cases").at(1).at("status").at("wrong"), "fail") << "another device is another row";
  EXPECT_TRUE(j.at("us_per_token").empty());
}

}  // namespace
}  // namespace attnbench::test
