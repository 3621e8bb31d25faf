// Two builds of one plug-in. One is slower than any load of the machine could make it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

TEST(CliTimedPlugin, ASlowerBuildIsThree) {
  const Scratch scratch;
  const std::string dir = ATTNBENCH_PLUGIN_DIR;
  const Outcome o =
      run_attnbench(scratch, {"gate", "--case", "{batch: q5, heads: 2, head_dim: 16}", "--device", "cpu",
                              "--max-samples", "10", "--no-ceilings", "--clock", "wall", "--plugin",
                              dir + "/slow.so", "--against-plugin", dir + "/example.so", "--out", "g"});
  EXPECT_EQ(o.exit_code, 3) << o.out << o.err;
  const nlohmann::json rows = read_json(scratch.dir() / "g" / "compare.json")["rows"];
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_GT(rows[0]["ratio"].get<double>(), 5);
}

}  // namespace
}  // namespace attnbench::testing
