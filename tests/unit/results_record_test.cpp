#include "harness/results/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/results_fixtures.h"

namespace attnbench {
namespace {

TEST(Record, Name) {
  EXPECT_EQ(record_name(test::passing("id", "cpu")), "id/cpu");
  EXPECT_EQ(record_name(test::passing("id", "")), "id") << "no kernel could be chosen";
}

TEST(Record, DescribeRun) {
  const RunContext c = describe_run({.model = "a model"}, "sweep", {"attnbench", "run"});
  EXPECT_EQ(c.name, "sweep");
  EXPECT_EQ(c.command_line.size(), 2u);
  EXPECT_EQ(c.device.model, "a model");
  EXPECT_THAT(c.date, testing::MatchesRegex("....-..-..T..:..:..[+-]..:.."));
  EXPECT_FALSE(c.host.empty());
  EXPECT_FALSE(c.cpu_model.empty());
  EXPECT_GE(c.cpu_threads, 1);
  EXPECT_FALSE(c.version.empty());
  EXPECT_FALSE(c.revision.empty());
  EXPECT_TRUE(c.complete);
}

}  // namespace
}  // namespace attnbench
