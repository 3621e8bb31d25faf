// The result of a selftest: an escaped fault, a failed clean run and an error must not look good.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "harness/selftest/fault.h"
#include "harness/selftest/report.h"

namespace attnbench {
namespace {

using ::testing::HasSubstr;
using Outcome = FaultResult::Outcome;

FaultResult fault(Outcome outcome) {
  FaultResult f;
  f.name = "some_fault";
  f.fault_class = "mask";
  f.kernel = "cpu";
  f.outcome = outcome;
  if (outcome == Outcome::kCaught) f.caught_by = {"max_z", "invariant:alone"};
  f.allclose = true;
  f.twice_naive = false;
  return f;
}

SelftestResult with(std::vector<Outcome> outcomes) {
  SelftestResult r;
  for (const Outcome o : outcomes) r.faults.push_back(fault(o));
  r.clean.runs = 7;
  return r;
}

TEST(SelftestResult, OnlyAllCaughtAndNoFailedCleanRunIsWell) {
  EXPECT_EQ(with({Outcome::kCaught, Outcome::kNotApplicable}).exit_code(), 0);
  EXPECT_EQ(with({Outcome::kCaught, Outcome::kEscaped}).exit_code(), 1);
  EXPECT_EQ(with({Outcome::kEscaped, Outcome::kError}).exit_code(), 5);
  EXPECT_EQ(with({Outcome::kNotApplicable}).exit_code(), 6);
  EXPECT_EQ(with({}).exit_code(), 6);
  SelftestResult r = with({Outcome::kCaught});
  r.clean.failures = {{"cpu", "O is biased", "attnbench run ...", ""}};
  EXPECT_EQ(r.exit_code(), 1);
  r.clean.errors = 1;
  EXPECT_EQ(r.exit_code(), 5);
  SelftestResult cut = with({Outcome::kCaught});
  cut.unfinished = "interrupted";
  EXPECT_EQ(cut.exit_code(), 5);
}

TEST(SelftestResult, AStepReadsBackAsItWasWritten) {
  for (const Outcome o : {Outcome::kCaught, Outcome::kEscaped, Outcome::kNotApplicable, Outcome::kError}) {
    StepResult step;
    step.fault = fault(o);
    step.fault->twice_naive.reset();
    step.fault->item = "attention/...";
    step.fault->what = "does";
    step.fault->reason = "so";
    step.clean = {3, 2, {{"cpu", "so", "attnbench run ...", "its inputs copied"}}, 1};
    const auto j = step_to_json(step);
    EXPECT_EQ(step_to_json(step_from_json(j)), j);
    EXPECT_EQ(step_from_json(j).fault->outcome, o);
  }
  EXPECT_FALSE(step_from_json(step_to_json({})).fault.has_value());
}

TEST(SelftestResult, ReportsSayWhatEscaped) {
  const SelftestResult r = with({Outcome::kCaught, Outcome::kEscaped});
  const auto j = selftest_to_json({}, r);
  EXPECT_EQ(j["faults"][0]["caught_by"].size(), 2u);
  EXPECT_EQ(j["faults"][0]["allclose_1e2"], "pass");
  EXPECT_EQ(j["faults"][0]["twice_naive"], "fail");
  EXPECT_EQ(j["summary"]["escaped"], 1);
  EXPECT_EQ(j["clean"]["runs"], 7);
  std::ostringstream md;
  write_selftest_markdown(md, r);
  EXPECT_THAT(md.str(), HasSubstr("**escaped**"));
  EXPECT_THAT(md.str(), HasSubstr("| `some_fault` |  | cpu | | | x | | | | alone | pass | fail |"));
  EXPECT_THAT(md.str(), HasSubstr("1 of 2 faults caught"));
}

TEST(SelftestResult, AKernelThatIsWrongWithoutAFaultIsSaidSo) {
  SelftestResult r = with({Outcome::kCaught});
  EXPECT_EQ(r.clean_text(), "");
  const CleanFailure wrong{"mine", "O is biased", "attnbench run A", ""};
  const CleanFailure copied{"mine", "O is\nNaN", "attnbench run B", "its inputs copied to other memory"};
  r.clean.failures = {wrong, copied, wrong, {"other", "LSE is NaN", "attnbench run C", ""}};
  EXPECT_EQ(
      r.clean_text(),
      "mine is wrong without any fault, in 2 clean runs, so no fault was put into it: make `attnbench run` pass first\n"
      "  the first: O is biased\n  reproduce: attnbench run A\n"
      "mine passes, but fails with its inputs copied to other memory, in 1 clean run: a false alarm of "
      "the checks, or a kernel that depends on addresses\n"
      "  O is NaN\n  reproduce: attnbench run B\n"
      "other is wrong without any fault, in 1 clean run, so no fault was put into it: make `attnbench run` pass first\n"
      "  LSE is NaN\n  reproduce: attnbench run C\n");
  EXPECT_THAT(selftest_summary(r), HasSubstr("7 clean runs, 4 failed"));
  EXPECT_EQ(selftest_to_json({}, r)["clean"]["alarms"][1],
            "with its inputs copied to other memory: attnbench run B: O is\nNaN");
}

TEST(SelftestResult, NoFaultIsPutIntoAKernelThatIsWrongByItself) {
  const Kernel wrong{.name = "wrong"}, right{.name = "right"}, crashes{.name = "crashes"};
  std::vector<SelftestStep> steps;
  for (const Kernel* k : {&wrong, &right, &crashes}) {
    steps.push_back({k, "", "{batch: q5}", 1});
    steps.push_back({k, "mask/causal_ignored", "", 1});
  }
  const auto run = [&](const SelftestStep& step) {
    StepResult r;
    if (!step.fault.empty()) {
      r.fault.emplace();
      r.fault->kernel = step.kernel->name;
    } else if (step.kernel != &right) {
      r.clean.failures = {{step.kernel->name, "O is NaN", "attnbench run", ""}};
      r.clean.errors = step.kernel == &crashes;
    }
    return r;
  };
  const SelftestResult result = run_selftest(steps, run, {});
  ASSERT_EQ(result.faults.size(), 2u);
  EXPECT_EQ(result.faults[0].kernel, "right");
  EXPECT_EQ(result.faults[1].kernel, "crashes") << "it may be right in other cases";
  EXPECT_THAT(result.clean_text(),
              HasSubstr("wrong is wrong without any fault, in 1 clean run, so no fault"));
  EXPECT_THAT(result.clean_text(), HasSubstr("crashes is wrong without any fault, in 1 clean run: make"));
}

TEST(Faults, HaveNamesOfTheirOwnAndCases) {
  std::set<std::string> names;
  for (const FaultClass& group : all_faults()) {
    EXPECT_FALSE(group.faults.empty()) << group.name;
    for (const Fault& f : group.faults) {
      EXPECT_TRUE(names.insert(f.name).second) << f.name << " twice";
      EXPECT_FALSE(f.cases.empty() || f.what.empty()) << f.name;
      EXPECT_GE(f.repeats, 2);
    }
  }
  EXPECT_GE(names.size(), 45u);
}

}  // namespace
}  // namespace attnbench
