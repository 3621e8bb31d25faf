// The loop around generator and shrinker, with artificial kernels: what is counted, reported and repeated.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/fuzz/report.h"

namespace attnbench {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

Kernel kernel(const char* name, Op op) {
  Kernel k{};
  k.name = name;
  k.op = op;
  return k;
}

const Kernel kAttentionKernel = kernel("made_up", Op::kAttention);
const Kernel kMergeKernel = kernel("made_up", Op::kMergeStates);

/// A kernel as a function: the status of a case and the reason.
using Behaviour = std::function<std::pair<Status, std::string>(const WorkItem&)>;

struct Outcome {
  FuzzResult result;
  std::vector<std::string> ids;  ///< of all runs, in order
  std::vector<std::string> found;
  std::vector<std::string> like;  ///< as printed
};

Outcome outcome_of(const std::vector<const Kernel*>& kernels, const Behaviour& behaviour,
                   FuzzOptions options) {
  Outcome out;
  FuzzEvents events;
  events.run = [&](const std::vector<WorkItem>& work) {
    std::vector<Record> records;
    for (const WorkItem& w : work) {
      Record r = empty_record(w, "cpu", {});
      std::tie(r.status, r.reason) = behaviour(w);
      if (r.status == Status::kFail) {
        r.check.emplace();
        r.check->fail(r.reason.starts_with("empty") ? detector::kEmptyRow
                      : r.reason.starts_with("LSE") ? detector::kLse
                                                    : detector::kMaxZ,
                      r.reason);
        if (r.reason.starts_with("clue")) r.check->clues = {"1 row is wrong", "looks like: no mask (1 row)"};
      }
      if (r.status == Status::kUndecided) r.check.emplace().tells_nothing = r.reason.starts_with("the case");
      out.ids.push_back(r.item.id);
      records.push_back(std::move(r));
    }
    std::reverse(records.begin(), records.end());  // several workers finish in any order
    return records;
  };
  events.found = [&](const Finding& f) { out.found.push_back(f.record.item.id); };
  events.found_like = [&](std::size_t number, const Record& r) {
    std::ostringstream text;
    print_finding_like(text, r, number);
    out.like.push_back(text.str());
  };
  options.seconds = 1e6;
  out.result = fuzz(kernels, options, events);
  return out;
}

FuzzOptions cases(int64_t n) {
  FuzzOptions o;
  o.cases = n;
  return o;
}

const auto kPasses = [](const WorkItem&) { return std::pair{Status::kPass, std::string()}; };

TEST(FuzzCampaign, CountsAndIsCleanWhereNothingFails) {
  const Outcome o = outcome_of({&kAttentionKernel, &kMergeKernel}, kPasses, cases(500));
  ASSERT_EQ(o.result.kernels.size(), 2u);
  EXPECT_EQ(o.result.ran(), 500);
  EXPECT_EQ(o.result.skipped(), 0);
  EXPECT_EQ(o.ids.size(), 500u);
  EXPECT_EQ(o.result.kernels[0].ran, 400);  // four of five are attention
  EXPECT_EQ(o.result.kernels[1].ran, 100);
  EXPECT_NEAR(o.result.kernels[0].invariants, 100, 30);
  EXPECT_EQ(o.result.exit_code(), 0);
  EXPECT_GT(o.result.kernels[0].features.size(), 80u);
}

TEST(FuzzCampaign, IsTheSameForTheSameSeed) {
  const auto fails_on_sinks = [](const WorkItem& w) {
    return std::pair{w.item->params.sinks ? Status::kFail : Status::kPass, std::string("wrong")};
  };
  FuzzOptions options = cases(300);
  const Outcome a = outcome_of({&kAttentionKernel}, fails_on_sinks, options);
  const Outcome b = outcome_of({&kAttentionKernel}, fails_on_sinks, options);
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.found, b.found);
  options.seed = 2;
  EXPECT_NE(outcome_of({&kAttentionKernel}, fails_on_sinks, options).ids, a.ids);
}

TEST(FuzzCampaign, TellsTheSmallestCaseOnce) {
  const Outcome o = outcome_of(
      {&kAttentionKernel},
      [](const WorkItem& w) {
        const CaseParams& p = w.item->params;
        const bool wrong = p.sinks && p.causal && p.kv == KvSource::kPaged;
        return std::pair{wrong ? Status::kFail : Status::kPass, std::string("wrong")};
      },
      cases(2000));
  ASSERT_EQ(o.result.findings.size(), 1u);
  EXPECT_EQ(o.found.size(), 1u);
  const Finding& f = o.result.findings[0];
  EXPECT_EQ(f.record.item.id, "attention/paged16-nhd-shuffled/bf16/h1-1/d1/causal/sinks/q0");
  EXPECT_TRUE(f.repeats);
  EXPECT_GT(f.tries, 5);
  EXPECT_GT(f.alike, 3);
  EXPECT_GT(o.result.kernels[0].failed, 4);
  EXPECT_THAT(f.record.repro, HasSubstr("sinks: true"));
  EXPECT_EQ(o.result.exit_code(), 1);
}

/// The second defect has all keys of the first. It must still be found.
TEST(FuzzCampaign, FindsASecondDefectBehindTheFirst) {
  const Outcome o = outcome_of(
      {&kAttentionKernel},
      [](const WorkItem& w) {
        const CaseParams& p = w.item->params;
        const bool first = p.sinks && p.kv == KvSource::kPaged;
        const bool second = p.alibi != Alibi::kNone;
        return std::pair{first    ? Status::kFail
                         : second ? Status::kError
                                  : Status::kPass,
                         std::string("wrong")};
      },
      cases(2000));
  EXPECT_GE(o.result.findings.size(), 2u);
  EXPECT_EQ(o.result.exit_code(), 5);
}

TEST(FuzzCampaign, SaysWhereAFailureDoesNotComeAgain) {
  int runs = 0;
  const Outcome o = outcome_of(
      {&kAttentionKernel},
      [&](const WorkItem&) {
        return std::pair{++runs == 5 ? Status::kFail : Status::kPass, std::string("once")};
      },
      cases(100));
  ASSERT_EQ(o.result.findings.size(), 1u);
  EXPECT_FALSE(o.result.findings[0].repeats);
  EXPECT_EQ(o.result.findings[0].record.reason, "once");
  EXPECT_EQ(o.result.findings[0].tries, 0);
  std::ostringstream text;
  print_finding(text, o.result.findings[0], 1);
  EXPECT_THAT(text.str(),
              HasSubstr("it failed once and not again in the same case, so it was not shrunk: it depends "
                        "on a race, memory that is read before it is written, or"));
}

TEST(FuzzCampaign, SaysWhereAFailureComesOnlySometimes) {
  const auto found = [](int every) {
    int runs = 0;
    const Outcome o = outcome_of(
        {&kAttentionKernel},
        [&](const WorkItem& w) {
          const bool wrong = w.item->params.sinks && ++runs % every == 0;
          return std::pair{wrong ? Status::kFail : Status::kPass, std::string("wrong")};
        },
        cases(200));
    EXPECT_FALSE(o.result.findings.empty());
    std::ostringstream text;
    for (const Finding& f : o.result.findings) {
      if (f.repeats) print_finding(text, f, 1);
    }
    return text.str();
  };
  EXPECT_THAT(found(2), ContainsRegex("it fails in [12] of 3 more runs of this case: it depends on a race"));
  EXPECT_THAT(found(1), Not(HasSubstr("depends on")));
}

/// Empty rows fail where there are sinks, and with another smallest case where there is ALiBi.
TEST(FuzzCampaign, FindingsOfOneCauseAreOne) {
  const auto found = [](const char* reason) {
    return outcome_of(
        {&kAttentionKernel},
        [&](const WorkItem& w) {
          const CaseParams& p = w.item->params;
          const bool wrong = p.sinks != (p.alibi != Alibi::kNone);
          return std::pair{wrong ? Status::kFail : Status::kPass, fmt::format("{} {}", reason, p.sinks)};
        },
        cases(300));
  };
  const Outcome apart = found("wrong");
  EXPECT_GE(apart.result.findings.size(), 2u);
  const Outcome one = found("empty");
  ASSERT_EQ(one.result.findings.size(), 1u);
  EXPECT_EQ(one.found.size(), 1u);
  const Finding& f = one.result.findings[0];
  ASSERT_GE(f.like.size(), 1u);
  EXPECT_NE(f.like[0].item.id, f.record.item.id);
  EXPECT_THAT(one.like, ::testing::Each(HasSubstr("like finding 1: made_up: fail: empty ")));
  EXPECT_EQ(one.like.size(), f.like.size());
}

/// What `run` prints under a failure stands under a finding too.
TEST(FuzzCampaign, AFindingHasItsCluesAndTheLastWords) {
  Finding f;
  f.kernel = &kAttentionKernel;
  f.record.status = Status::kError;
  f.record.reason = "the worker process was killed by signal 11";
  f.record.log = "about to read address 8\n";
  f.record.check.emplace().clues = {"looks like: no mask"};
  std::ostringstream text;
  print_finding(text, f, 2);
  EXPECT_THAT(text.str(),
              HasSubstr("signal 11\n  looks like: no mask\n  | about to read address 8\n  reproduce: "));
}

TEST(FuzzCampaign, SkippedCasesAreNotCountedAmongThoseToRun) {
  int n = 0;
  const auto two_of_three_skipped = [&](const WorkItem&) {
    return std::pair{n++ % 3 == 0 ? Status::kPass : Status::kSkip, std::string("refused")};
  };
  const Outcome o = outcome_of({&kAttentionKernel, &kMergeKernel}, two_of_three_skipped, cases(100));
  EXPECT_EQ(o.result.ran(), 100);
  EXPECT_NEAR(static_cast<double>(o.result.skipped()), 200, 2);
  EXPECT_FALSE(o.result.gave_up);
  EXPECT_THAT(fuzz_summary(cases(100), o.result), Not(HasSubstr("ended before")));
}

TEST(FuzzCampaign, ACaseThatTellsNothingIsSkippedAndTooCoarseArithmeticIsAFinding) {
  const auto says = [](const char* reason) {
    return outcome_of(
        {&kAttentionKernel},
        [&](const WorkItem& w) {
          return std::pair{w.item->params.sinks ? Status::kUndecided : Status::kPass, std::string(reason)};
        },
        cases(100));
  };
  const Outcome by_case = says("the case cannot tell"), by_arithmetic = says("the arithmetic is too coarse");
  EXPECT_TRUE(by_case.found.empty());
  EXPECT_GT(by_case.result.skipped(), 0);
  EXPECT_EQ(by_case.result.ran(), 100);
  EXPECT_EQ(by_case.result.exit_code(), 0);
  EXPECT_EQ(by_arithmetic.found.size(), 1u);
  EXPECT_EQ(by_arithmetic.result.exit_code(), 1);
}

TEST(FuzzCampaign, EndsAndSaysSoWhereNearlyAllIsSkipped) {
  int n = 0;
  const auto one_of_fifty_runs = [&](const WorkItem&) {
    return std::pair{n++ % 50 == 0 ? Status::kPass : Status::kSkip, std::string("refused")};
  };
  const Outcome o = outcome_of({&kAttentionKernel}, one_of_fifty_runs, cases(20));
  EXPECT_TRUE(o.result.gave_up);
  EXPECT_GT(o.result.ran(), 0);
  EXPECT_LT(o.result.ran(), 20);
  EXPECT_NEAR(static_cast<double>(o.result.skipped()), 20 * kMostSkipsPerCase, 32);
  EXPECT_THAT(fuzz_summary(cases(20), o.result),
              HasSubstr("; ended before 20 cases ran, because 20 were skipped for each of them"));
}

TEST(FuzzCampaign, StopsAtTheMostFindings) {
  FuzzOptions options = cases(100000);
  options.max_findings = 2;
  const Outcome o = outcome_of(
      {&kAttentionKernel},
      [](const WorkItem& w) {  // each head_dim is a separate defect
        return std::pair{w.item->params.head_dim > 64 ? Status::kFail : Status::kPass, std::string("wrong")};
      },
      options);
  EXPECT_LE(o.result.findings.size(), 2u);
}

TEST(FuzzCampaign, CountsRefusalsByReason) {
  int dim = 0;  // of the shortest line
  std::size_t shortest = SIZE_MAX;
  const Outcome o = outcome_of(
      {&kAttentionKernel},
      [&](const WorkItem& w) {
        const CaseParams& p = w.item->params;
        if (const std::size_t line = empty_record(w, "cpu", {}).repro.size(); line < shortest) {
          shortest = line;
          dim = p.head_dim;
        }
        return std::pair{Status::kSkip, fmt::format("head_dim {} not in {{24}}", p.head_dim)};
      },
      cases(5));
  ASSERT_EQ(o.result.kernels[0].refusals.size(), 1u);
  EXPECT_EQ(o.result.kernels[0].refusals.begin()->first, "head_dim # not in {#}");
  EXPECT_EQ(o.result.kernels[0].refusals.begin()->second.cases, o.result.skipped());
  EXPECT_EQ(o.result.exit_code(), 6);
  std::ostringstream text;
  print_fuzz_table(text, o.result, 0);
  EXPECT_THAT(text.str(), HasSubstr("100 % of the skips of made_up (attention), for example: head_dim " +
                                    std::to_string(dim) + " not in {24}\n  a skipped case: attnbench run "));
}

TEST(FuzzCampaign, ALongLineOfASkippedCaseIsLeftToTheFile) {
  FuzzResult result;
  result.kernels.resize(1);
  FuzzTally& t = result.kernels[0];
  t.kernel = &kAttentionKernel;
  t.skipped = 1;
  t.refusals["refused"] = {1, "refused", "attnbench run " + std::string(5000, 'x'), "attention/id"};
  std::ostringstream text;
  print_fuzz_table(text, result, 0);
  EXPECT_THAT(text.str(),
              HasSubstr("  a skipped case: attention/id (its long line is in fuzz.json of --out)\n"));
}

/// A case that is too small may not tell the mistake that the drawn one told.
TEST(FuzzCampaign, TheClueOfTheDrawnCaseOutlivesShrinking) {
  const auto told = [](bool small_too) {
    const Outcome o = outcome_of(
        {&kAttentionKernel},
        [=](const WorkItem& w) {
          const bool small = w.item->params.head_dim == 1;
          return std::pair{Status::kFail, std::string(small && !small_too ? "wrong" : "clue")};
        },
        cases(1));
    std::ostringstream text;
    print_finding(text, o.result.findings.at(0), 1);
    return text.str();
  };
  EXPECT_THAT(told(false), HasSubstr("\n  that larger case looks like: no mask (1 row)\n"));
  EXPECT_THAT(told(true), Not(HasSubstr("that larger case")));
}

TEST(FuzzCampaign, ShrinkingLosesNoWrongO) {
  const auto smallest_dim = [](const std::string& small) {
    const Outcome o = outcome_of(
        {&kAttentionKernel},
        [&](const WorkItem& w) {
          return std::pair{Status::kFail, w.item->params.head_dim < 8 ? small : std::string("wrong")};
        },
        cases(1));
    return o.result.findings.at(0).record.item.params.head_dim;
  };
  EXPECT_EQ(smallest_dim("wrong"), 1);
  EXPECT_GE(smallest_dim("LSE"), 8);
}

}  // namespace
}  // namespace attnbench
