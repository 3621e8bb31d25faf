// Timed runs of kernels in Python: a correct one, and those that cheat a clock.
#include <gmock/gmock.h>

#include "tests/cli/python.h"

namespace attnbench::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class CliTimedPython : public PythonTest {
 protected:
  Outcome timed(const std::string& file, const std::vector<std::string>& more) {
    std::vector<std::string> args = {"run",
                                     "--case",
                                     "{batch: 2q16, heads: 2, head_dim: 16}",
                                     "--device",
                                     "cpu",
                                     "--plugin",
                                     file,
                                     "--max-samples",
                                     "20",
                                     "--no-ceilings",
                                     "-q",
                                     "--out",
                                     "out"};
    args.insert(args.end(), more.begin(), more.end());
    Outcome o = run_attnbench(scratch, args);
    if (!std::filesystem::exists(scratch.dir() / "out" / "results.json")) return o;
    for (const nlohmann::json& r : read_records(scratch.dir() / "out")) records[r["kernel"]] = r;
    return o;
  }
};

TEST_F(CliTimedPython, ACorrectOneIsVerifiedAndTimed) {
  Outcome o = timed(python_fixture("right.py"), {"--kernel", "mine"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_EQ(records["mine"]["status"], "pass");
  EXPECT_GT(records["mine"]["time"]["median_us"].get<double>(), 10);
  o = timed(python_fixture("right.py"), {"--kernel", "mine", "--graph"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("--graph times CUDA graphs; the cpu device has none"));
}

TEST_F(CliTimedPython, ThreadsAfterTheLaunchAndKeptResultsAreCaught) {
  const Outcome o = timed(python_fixture("late.py"), {});
  EXPECT_EQ(o.exit_code, 1) << o.out << o.err;
  EXPECT_EQ(records["cpu"]["status"], "pass");
  EXPECT_EQ(records["builds_slowly"]["status"], "pass");
  EXPECT_LT(records["builds_slowly"]["time"]["median_us"].get<double>(), 40'000);
  EXPECT_EQ(records["joins_its_thread"]["status"], "pass") << records["joins_its_thread"];
  EXPECT_GT(records["joins_its_thread"]["time"]["median_us"].get<double>(), 20'000);
  for (const char* name : {"works_in_a_thread", "caches"}) EXPECT_EQ(records[name]["status"], "fail") << name;
  EXPECT_THAT(reason("works_in_a_thread"), HasSubstr("what is not written is NaN"));
  EXPECT_THAT(reason("caches"),
              AnyOf(HasSubstr("unlike the verified launch"), HasSubstr("first one with these values")));
}

}  // namespace
}  // namespace attnbench::testing
