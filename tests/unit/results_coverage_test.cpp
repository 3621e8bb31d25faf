// How many of its cases a kernel ran.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/results/coverage.h"
#include "harness/results/json.h"
#include "tests/unit/results_fixtures.h"

namespace attnbench {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<Record> some_records() {
  Record declared = test::passing("a", "x");
  declared.check->declared = Declared{{DType::kBf16, DType::kFp32, 0}};
  std::vector<Record> all = {declared,
                             test::not_passing("b", Status::kSkip, "no sinks"),
                             test::not_passing("c", Status::kSkip, "head_dim 64 required, given 72"),
                             test::not_passing("d", Status::kSkip, "head_dim 64 required, given 96"),
                             test::not_passing("e", Status::kError, "crash"),
                             test::passing("a", "y")};
  for (std::size_t i = 1; i < 5; ++i) all[i].kernel = "x";
  return all;
}

TEST(RecordCoverage, OnlySkipsAreNotRunAndTheMostFrequentReasonIsTold) {
  const auto all = coverage_of(some_records());
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].kernel, "x");
  EXPECT_EQ(all[0].text(), "2 of 5 cases");
  EXPECT_EQ(all[0].percent(), 40);
  EXPECT_THAT(all[0].types, ElementsAre("acc fp32, p bf16"));
  EXPECT_EQ(all[0].skipped_for, "head_dim 64 required, given 72");
  EXPECT_TRUE(all[1].whole());
  EXPECT_THAT(all[1].types, IsEmpty());
}

TEST(RecordCoverage, AFileTellsTheSame) {
  std::string journal;
  for (const Record& r : some_records()) journal += journal_line(r) + "\n";
  const ResultSet set = parse_results(journal, "journal.jsonl");
  const std::vector<Coverage> all = coverage_of(set.results);
  EXPECT_EQ(all[0].text(), "2 of 5 cases");
  EXPECT_THAT(all[0].types, ElementsAre("acc fp32, p bf16"));
  EXPECT_THAT(too_little_run(set.results, 40), IsEmpty());
  EXPECT_THAT(
      too_little_run(set.results, 40.5),
      ElementsAre("x ran 2 of 5 cases (40.0 %), and --min-coverage asks for 40.5 %; most were skipped "
                  "for: head_dim 64 required, given 72"));
}

}  // namespace
}  // namespace attnbench
