// run --require, and gate --require and --min-coverage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

const std::string kEndsPlugin = ATTNBENCH_PLUGIN_DIR "/ends.so";

class CliRequire : public ::testing::Test {
 protected:
  /// On head_dim 24 the kernel declares P in bf16 and sums in fp16; it refuses 300.
  void SetUp() override { setenv("ATTNBENCH_TEST_END", "numerics less", 1); }
  void TearDown() override { unsetenv("ATTNBENCH_TEST_END"); }

  Outcome command(const std::string& name, const std::vector<std::string>& more) {
    const std::string sweep =
        scratch_.write("s.yaml", "name: s\nsweeps: [{batch: q5, heads: 2, head_dim: [8, 24, 300]}]\n");
    std::vector<std::string> args = {name,        sweep,      "--device", "cpu", "--no-time", "--plugin",
                                     kEndsPlugin, "--kernel", "example",  "-q",  "--out",     "out"};
    args.insert(args.end(), more.begin(), more.end());
    return run_attnbench(scratch_, args);
  }
  Scratch scratch_;
};

TEST_F(CliRequire, AKernelThatDeclaresLessFailsTheCase) {
  for (const bool in_process : {false, true}) {
    std::vector<std::string> more = {"--require", "acc=fp32,p=bf16"};
    if (in_process) more.push_back("--in-process");
    EXPECT_EQ(command("run", more).exit_code, 1);
    const auto records = read_records(scratch_.dir() / "out");
    ASSERT_EQ(records.size(), 3u);
    EXPECT_EQ(records[0]["status"], "pass");
    EXPECT_EQ(records[0]["check"]["numerics"]["acc"], "fp32");
    EXPECT_EQ(records[1]["status"], "fail");
    EXPECT_EQ(records[1]["check"]["failed_by"], json({"numerics"}));
    EXPECT_EQ(records[1]["reason"], "the kernel declares sums in fp16, and --require asks for acc=fp32");
    EXPECT_EQ(records[1]["check"]["numerics"]["acc"], "fp16");
    EXPECT_THAT(records[1]["repro"].get<std::string>(), HasSubstr(" --require acc=fp32,p=bf16"));
    EXPECT_EQ(records[2]["status"], "skip");
  }
  EXPECT_EQ(command("run", {"--require", "acc=fp16", "--require", "p=e4m3"}).exit_code, 0);
}

TEST_F(CliRequire, MistakesAreUsageErrors) {
  const auto says = [&](const std::string& name, const std::vector<std::string>& more, const char* text) {
    const Outcome o = command(name, more);
    EXPECT_EQ(o.exit_code, 2) << text;
    EXPECT_THAT(o.err, HasSubstr(text));
  };
  says("run", {"--require", "acc=fp64"}, "--require: acc=fp64: 'fp64' is not a type of acc: give fp32, fp16");
  says("run", {"--require", "acc=fp32,q=fp32"}, "--require: 'q=fp32' is not known: give acc=TYPE");
  says("gate", {"--require", "q", "--against-plugin", kEndsPlugin}, "--require: 'q' is not known");
  const Outcome off = run_attnbench(scratch_, {"run", "--case", "{batch: q5}", "--device", "cpu", "--check",
                                               "off", "--require", "acc=fp32"});
  EXPECT_EQ(off.exit_code, 2);
  EXPECT_THAT(off.err, HasSubstr("--require is part of the check, which is off"));
  says("gate", {"--min-coverage", "101", "--against-plugin", kEndsPlugin}, "--min-coverage");
  says("gate", {"--min-coverage", "95", "--baseline", "b.json", "--update-baseline"},
       "--min-coverage judges a comparison, and --update-baseline makes none");
}

TEST_F(CliRequire, AGateAsksItOfTheRuns) {
  const Outcome o = command("gate", {"--require", "acc=fp32", "--against-plugin", kEndsPlugin});
  EXPECT_EQ(o.exit_code, 1) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("sums in fp16, and --require asks for acc=fp32"));
  EXPECT_EQ(command("gate", {"--require", "acc=fp16", "--against-plugin", kEndsPlugin}).exit_code, 0);
}

TEST_F(CliRequire, TooLittleCoverageFailsAGate) {
  const Outcome low = command("gate", {"--min-coverage", "95", "--against-plugin", kEndsPlugin});
  EXPECT_EQ(low.exit_code, 1) << low.out << low.err;
  EXPECT_THAT(
      low.out,
      AllOf(
          HasSubstr("gate: example ran 2 of 3 cases (66.7 %), and --min-coverage asks for 95 %; most "
                    "were skipped for: example: head_dim 1..256 required, given 300\n"),
          EndsWith(
              "no case incorrect or missing, but 1 kernel ran too few cases (--min-coverage); exit code 1\n")));
  const Outcome enough = command("gate", {"--min-coverage", "66", "--against-plugin", kEndsPlugin});
  EXPECT_EQ(enough.exit_code, 0) << enough.out << enough.err;
}

}  // namespace
}  // namespace attnbench::testing
