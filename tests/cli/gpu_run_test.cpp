// The program on a GPU; skipped, with the reason, where none works.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class CliGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    const Outcome o = run_attnbench(scratch_, {"doctor"});
    ASSERT_EQ(o.exit_code, 0) << o.err;
    const std::size_t absent = o.out.find("  absent ");
    if (absent != std::string::npos) GTEST_SKIP() << "no GPU: " << o.out.substr(absent + 9);
  }
  void expect_all_pass(const char* config) {
    const Outcome o = run_attnbench(
        scratch_, {"run", source_path(config), "--device", "cuda", "--no-time", "--out", "out"});
    EXPECT_EQ(o.exit_code, 0) << o.out;
    const auto records = read_records(scratch_.dir() / "out");
    EXPECT_FALSE(records.empty());
    for (const json& r : records) {
      EXPECT_THAT(r["status"].get<std::string>(), ::testing::AnyOf("pass", "skip")) << r["id"] << r["reason"];
    }
  }
  Scratch scratch_;
};

TEST_F(CliGpu, AutoTakesTheGpu) {
  const Outcome o = run_attnbench(scratch_, {"run", "--case", "{batch: 4q1s100, kv: paged}", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.err, Not(HasSubstr("device auto: cpu")));
  for (const json& r : read_records(scratch_.dir() / "out")) EXPECT_EQ(r["device"], "cuda:0");
}

TEST_F(CliGpu, GraphReplayIsTimed) {
  const Outcome o = run_attnbench(scratch_, {"run", "--case", "{batch: 4q1s100, kv: paged}", "--device",
                                             "cuda", "--kernel", "cuda_simt", "--graph", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_EQ(read_records(scratch_.dir() / "out").at(0)["time"]["graph"], true);
}

TEST_F(CliGpu, QuickstartIsCorrect) { expect_all_pass("configs/quickstart.yaml"); }
TEST_F(CliGpu, GoldenIsCorrect) { expect_all_pass("configs/golden.yaml"); }
TEST_F(CliGpu, SmokeIsCorrect) { expect_all_pass("configs/smoke.yaml"); }

}  // namespace
}  // namespace attnbench::testing
