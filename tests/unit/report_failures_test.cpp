// Many failures: which are shown, and what they have in common.
#include "harness/report/failures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <sstream>

#include "harness/judge/clues.h"
#include "harness/judge/shown_mistakes.h"
#include "harness/report/console.h"
#include "tests/unit/results_fixtures.h"

namespace attnbench {
namespace {

using test::not_passing;
using test::passing;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// 24 cases, of which the grouped and paged ones fail; with `stray`, one more fails.
std::vector<Record> grouped_paged_fail(bool stray) {
  std::vector<Record> out;
  for (int i = 0; i < 24; ++i) {
    const bool grouped = i % 2 == 0, paged = i % 3 != 0;
    const std::string id = "case" + std::to_string(i);
    Record r =
        (grouped && paged) || (stray && i == 3) ? not_passing(id, Status::kFail, "wrong") : passing(id);
    r.item.params.num_heads_kv = grouped ? 2 : 4;
    r.item.params.num_heads_q = 4;
    r.item.params.kv = paged ? KvSource::kPaged : KvSource::kPacked;
    r.item.params.causal = i % 5 == 0;
    r.item.params.seqs = {{4, 64 * (24 - i)}};
    out.push_back(std::move(r));
  }
  return out;
}

TEST(ReportFailures, WhatTheyHaveInCommon) {
  auto records = grouped_paged_fail(false);
  EXPECT_THAT(failure_patterns(records), IsEmpty()) << "4 of 16 right ones are grouped as well";
  for (Record& r : records) {
    if (r.item.params.num_heads_kv == 2 && r.status == Status::kPass && r.item.id != "case0")
      r = not_passing(r.item.id, Status::kSkip, "");
  }
  EXPECT_THAT(
      failure_patterns(records),
      ElementsAre(
          "cuda_simt: all wrong cases, and 1 of 13 right ones, have more query heads than KV heads; what fits as "
          "well: have a sequence whose length is a multiple of 128"));
  EXPECT_THAT(failure_patterns(grouped_paged_fail(true)), IsEmpty());
  EXPECT_THAT(failure_patterns(std::vector<Record>{passing("a")}), IsEmpty());
}

TEST(ReportFailures, EachOfTwoMistakesCounts) {
  std::vector<Record> records(4, not_passing("f", Status::kFail, "wrong"));
  for (Record& r : records) r.check.emplace();
  records[0].check->clues = {"looks like: a (4 wrong rows tried)"};
  records[1].check->clues = {"looks like: two mistakes: a; and h % 2 (all 4 wrong rows tried match both)"};
  records[2].check->clues = {"looks like: two mistakes: h % 3; and a (all 4 wrong rows tried match both)"};
  EXPECT_THAT(
      failure_patterns(records),
      ElementsAre(
          "cuda_simt: 3 of 4 wrong cases look like: a; 2 of them at once like: h % 2, with other numbers in some"));
}

TEST(ReportFailures, CasesThatNameAnotherMistakeAreCounted) {
  std::vector<Record> records(5, not_passing("f", Status::kFail, "wrong"));
  for (Record& r : records) r.check.emplace();
  for (const int i : {0, 1, 2}) records[i].check->clues = {"looks like: a (4 wrong rows tried)"};
  records[3].check->clues = {"looks like: b (4 wrong rows tried)"};  // the last one names none
  EXPECT_THAT(failure_patterns(records),
              ElementsAre("cuda_simt: 3 of 5 wrong cases look like: a; 1 looks like something else"));
}

TEST(ReportFailures, RightCasesSpeakAgainstAMistakeThatTheyWouldShow) {
  const std::string hides = "the causal mask hides one key too many: keys j < diag are seen, not j <= diag";
  const std::string page = "the last key of sequences that fill their last page of 16 is left out";
  std::vector<Record> records;
  for (const int k : {16, 32, 48, 17, 33, 50}) {
    Record r = k % 16 == 0 ? not_passing("f", Status::kFail, "wrong") : passing("p");
    r.item.params.kv = KvSource::kPaged;
    r.item.params.block_size = 16;
    r.item.params.causal = true;
    r.item.params.seqs = {{1, k}};
    if (r.status == Status::kFail) {
      r.check.emplace();
      r.check->clues = {"looks like: " + hides + " (4 wrong rows tried)"};
    }
    records.push_back(std::move(r));
  }
  EXPECT_THAT(failure_patterns(records), ElementsAre("cuda_simt: 3 of 3 wrong cases look like: " + hides +
                                                     ", but 3 right cases would be wrong by it, too"))
      << "one of the traits may separate so few cases by chance";
  const std::vector<Record> same = records;
  for (int i = 0; i < 2; ++i) records.insert(records.end(), same.begin(), same.end());
  const std::string trait =
      "cuda_simt: all wrong cases, and no right ones, have a last page that is full; what fits as well: have a sequence "
      "whose length is a multiple of 16";
  EXPECT_THAT(failure_patterns(records),
              ElementsAre(trait, "cuda_simt: 9 of 9 wrong cases look like: " + hides +
                                     ", but 9 right cases would be wrong by it, too"));
  for (Record& r : records) {
    if (r.status == Status::kFail) r.check->clues.push_back("looks like: " + page + " (4 wrong rows tried)");
  }
  EXPECT_THAT(failure_patterns(records),
              ElementsAre(trait, "cuda_simt: 9 of 9 wrong cases look like: " + page));
}

TEST(ReportFailures, AnOutlierHidesNoMistakeThatRightCasesSpeakAgainst) {
  const std::string hides = "the causal mask hides one key too many: keys j < diag are seen, not j <= diag";
  std::vector<Record> records;
  for (int i = 0; i < 8; ++i) {
    Record r = i < 5 ? not_passing("f", Status::kFail, "wrong") : passing("p");
    r.item.params.causal = true;
    r.item.params.seqs = {{1, 17 + i}};
    if (r.status == Status::kFail) {
      r.check.emplace();
      r.check->clues = {"looks like: " + (i == 0 ? std::string("b") : hides) + " (4 wrong rows tried)"};
    }
    records.push_back(std::move(r));
  }
  const auto last = [&] { return failure_patterns(records).back(); };
  EXPECT_EQ(last(), "cuda_simt: 4 of 5 wrong cases look like: " + hides +
                        ", but 3 right cases would be wrong by it, too; 1 looks like something else");
  for (Record& r : records) {
    if (r.status == Status::kFail)
      r.check->clues = {"looks like: " + hides + ", in a part of the rows (4 wrong rows tried)"};
  }
  EXPECT_EQ(last(), "cuda_simt: 5 of 5 wrong cases look like: " + hides + ", in a part of the rows")
      << "a right case may have no such row";
}

TEST(ReportFailures, AMistakeIsTheSameInPagesAndTiles) {
  std::vector<Record> records(3, not_passing("f", Status::kFail, "wrong"));
  for (Record& r : records) r.check.emplace();
  const std::string first = "looks like: the first key of each ";
  records[0].check->clues = {first + "tile of 16 is left out (4 wrong rows tried)"};
  records[1].check->clues = {first + "tile of 16 is left out (4 wrong rows tried)"};
  records[2].check->clues = {first + "page or tile of 16 is left out (4 wrong rows tried)"};
  EXPECT_THAT(failure_patterns(records),
              ElementsAre("cuda_simt: 3 of 3 wrong cases look like: the first key of each tile of 16 is left "
                          "out, with other numbers in some"));
}

TEST(ShownMistakes, AreThoseThatACaseCannotHide) {
  const std::string hides = "the causal mask hides one key too many: keys j < diag are seen, not j <= diag";
  Case c;
  c.params.causal = true;
  c.params.seqs = {{2, 40}};
  EXPECT_TRUE(shown_mistakes(c).contains(hides));
  EXPECT_TRUE(shown_mistakes(c).contains("keys behind the last whole tile of 16 are left out"));
  EXPECT_FALSE(shown_mistakes(c).contains("keys behind the last whole tile of 128 are left out, x"));
  const std::vector<std::function<void(CaseParams&)>> hidden = {
      [](CaseParams& p) { p.data = Profile::kLarge; }, [](CaseParams& p) { p.path = Path::kDcp; },
      [](CaseParams& p) { p.q_dtype = DType::kE4m3; }, [](CaseParams& p) { p.seqs = {{0, 40}}; },
      [](CaseParams& p) { p.seqs = {{1, 5000}}; },
  };
  for (const auto& change : hidden) {
    Case other = c;
    change(other.params);
    EXPECT_FALSE(shown_mistakes(other).contains(hides));
  }
}

TEST(ReportFailures, CasesThatNoMistakeCanShowAreNoEvidence) {
  std::vector<Record> records;
  for (const int k : {0, 0, 0, 0, 0, 0, 0, 0, 65, 70, 80, 90, 100, 110, 120, 130}) {
    Record r = k == 0 ? passing("p") : not_passing("f", Status::kFail, "wrong");
    r.item.params.seqs = {{k == 0 ? 0 : 1, k}};
    records.push_back(std::move(r));
  }
  EXPECT_THAT(failure_patterns(records), IsEmpty());
}

TEST(ReportFailures, WhatMostOfThemLookLike) {
  std::vector<Record> records(3, not_passing("f", Status::kFail, "wrong"));
  for (Record& r : records) r.check.emplace();
  records[0].check->clues = {"4 of 4 rows looked at are wrong", "looks like: a (b) c (4 wrong rows tried)"};
  EXPECT_THAT(failure_patterns(records), IsEmpty());
  records[2].check->clues = {"looks like: a (b) c (64 wrong rows tried)",
                             "looks like: d (1 wrong row tried)"};
  EXPECT_THAT(failure_patterns(records), ElementsAre("cuda_simt: 2 of 3 wrong cases look like: a (b) c"));
  for (Record& r : records)
    r.check->clues.emplace_back("looks like: e, in a part of the rows (4 wrong rows tried)");
  EXPECT_THAT(failure_patterns(records),
              ElementsAre("cuda_simt: 3 of 3 wrong cases look like: e, in a part of the rows"));
  for (Record& r : records) r.check->clues = {"looks like: e (4 wrong rows tried)"};
  records[0].check->clues = {"looks like: e, in a part of the rows (4 wrong rows tried)"};
  EXPECT_THAT(failure_patterns(records), ElementsAre("cuda_simt: 3 of 3 wrong cases look like: e"));
  for (Record& r : records)
    r.check->clues = {"looks like: f (1 wrong row tried)", "looks like: g (1 wrong row tried)"};
  EXPECT_THAT(failure_patterns(records), ElementsAre("cuda_simt: 3 of 3 wrong cases look like: f"));
  records[0].check->clues = {"looks like: h (64 wrong rows tried)"};
  EXPECT_THAT(failure_patterns(records), IsEmpty()) << "no case has f or g alone";
}

TEST(ReportFailures, NoClueIsCutWithinItsWords) {
  const std::string order =
      "the LSE is written as (total_q, Hq), where (Hq, total_q) is required: lse_stride_head";
  std::vector<Record> records(2, not_passing("f", Status::kFail, "wrong"));
  for (Record& r : records) r.check.emplace().clues = {"looks like: " + order};
  EXPECT_THAT(failure_patterns(records), ElementsAre("cuda_simt: 2 of 2 wrong cases look like: " + order));
}

TEST(ReportFailures, WhatLaunchesShowStandsWhereNoMistakeIsNamed) {
  std::vector<Record> records(3, not_passing("f", Status::kFail, "wrong"));
  for (const int i : {0, 1})
    records[i].check.emplace().clues = {fmt::format(
        "a sequence alone is right with up to {} keys and wrong with more (checked by 9 launches): perhaps a part",
        32 * (i + 2))};
  EXPECT_THAT(
      failure_patterns(records),
      ElementsAre(
          "cuda_simt: 2 wrong cases: a sequence alone is right with up to 64 keys and wrong with more, "
          "with other numbers in some"));
  EXPECT_EQ(ranked_failures(records)[0].alike, 2u);
}

TEST(ReportFailures, ARaceIsNamedAloneWhereMostOfThemAreOne) {
  std::vector<Record> records(3, not_passing("f", Status::kFail, "wrong"));
  for (Record& r : records) {
    r.check.emplace();
    r.check->clues = {"looks like: rows change places (2 wrong rows tried)"};
  }
  records[0].check->clues.emplace_back(
      std::string("a second launch on the same inputs gave other numbers: ") + kARace);
  EXPECT_THAT(failure_patterns(records), ElementsAre(HasSubstr("rows change places")));
  records[1].check->clues.push_back(records[0].check->clues.back());
  EXPECT_THAT(
      failure_patterns(records),
      ElementsAre(std::string("cuda_simt: 2 of 3 wrong cases give other numbers in a second launch: ") +
                  kARace));
}

TEST(ReportFailures, OneOfEachKindComesFirst) {
  std::vector<Record> records = grouped_paged_fail(false);
  for (Record& r : records) r.status = Status::kFail;
  records[2].status = Status::kError;  // of much work
  records[1].reason = "invariant replay (the same launch): other bits";
  for (const int i : {4, 7})
    records[i].check.emplace().clues = {"12 of 40 rows looked at are wrong",
                                        "all wrong rows, and no right ones, see 33 keys",
                                        fmt::format("looks like: a of {} (all 4 wrong rows tried)", i)};
  const auto ranked = ranked_failures(records);
  ASSERT_EQ(ranked.size(), 24u);
  std::vector<std::string> first;
  for (const RankedFailure& f : std::span(ranked).first(7)) first.push_back(f.record->item.id);
  EXPECT_THAT(first, ElementsAre("case2", "case23", "case7", "case1", "case22", "case4", "case21"));
  EXPECT_EQ(ranked[2].alike_text(), "2 failures are of this kind: here is the one of least work");
  for (const std::size_t i : {0u, 1u, 5u})
    EXPECT_EQ(ranked[i].alike_text(), "") << "nothing is known that they share";
}

TEST(ReportFailures, TheConsoleShowsTheFirstOfThem) {
  std::vector<Record> records = grouped_paged_fail(false);
  for (Record& r : records) r.status = Status::kFail;
  std::ostringstream out;
  print_console(out, records, {});
  EXPECT_THAT(
      out.str(),
      HasSubstr(
          "\nThese are 10 of 24, of each kind those with the least work; the report has the others' reasons.\n"));
  EXPECT_THAT(out.str(), HasSubstr("\nfail case14/cuda_simt\n"));
  EXPECT_THAT(out.str(), Not(HasSubstr("\nfail case13/cuda_simt\n")));
}

}  // namespace
}  // namespace attnbench
