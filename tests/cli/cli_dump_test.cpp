// run --dump: the arrays of a failing case, and the script that finds its worst element with NumPy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CliDump : public ::testing::Test {
 protected:
  Outcome run(const std::string& mapping, const std::string& kernel, std::vector<std::string> more) {
    std::vector<std::string> args = {"run",       "--case",   mapping, "--device", "cpu",
                                     "--no-time", "--kernel", kernel,  "--out",    "out"};
    args.insert(args.end(), more.begin(), more.end());
    return run_faulty(scratch, args);
  }
  bool has(const std::string& file) const { return std::filesystem::exists(scratch.path("dump/" + file)); }
  /// What the script of the folder prints.
  std::string worst() const {
    const std::string to = scratch.path("worst.txt");
    EXPECT_EQ(std::system(("python3 '" + scratch.path("dump/worst.py") + "' > '" + to + "'").c_str()), 0);
    return read_text(to);
  }
  const Scratch scratch;
};

TEST_F(CliDump, TheScriptPrintsTheWorstElementOfTheRecord) {
  if (std::system("python3 -c 'import numpy' > /dev/null 2>&1") != 0)
    GTEST_SKIP() << "no python3 with NumPy (Debian: python3-numpy)";
  const std::string mapping = "{batch: q3s20_q1s9, heads: 4/2, head_dim: 32, mask: causal}";
  const Outcome failed = run(mapping, "drop_last_key", {});
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.out, HasSubstr("add --dump DIR to a line above"));
  const Outcome o = run(mapping, "drop_last_key", {"--dump", "dump"});
  EXPECT_EQ(o.exit_code, 1) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("dump: python dump/worst.py prints"), Not(HasSubstr("--dump DIR"))));
  const json check = read_records(scratch.dir() / "out").at(0).at("check");
  const json& w = check.at("worst");
  const int token = (w["seq"] == 0 ? 0 : 3) + w["pos"].get<int>();
  const std::string printed = worst();
  EXPECT_THAT(printed, HasSubstr("out " + std::to_string(token) + " " + w["head"].dump() + " " +
                                 w["channel"].dump() + " got "));
  EXPECT_NEAR(std::stod(printed.substr(printed.find(" got ") + 5)), w["got"].get<double>(), 1e-5);
  const double z = std::stod(printed.substr(printed.find(" z ") + 3));
  EXPECT_NEAR(z, check["max_z"].get<double>(), 1e-4 * z);
  EXPECT_THAT(printed, HasSubstr("\nlse "));
}

TEST_F(CliDump, ALaunchThatDoesNotEndLeavesInputsAndExpectedOutputs) {
  const std::string mapping = "{batch: q5, heads: 2, head_dim: 24}";
  for (const char* kernel : {"segfaults", "hangs"}) {
    std::filesystem::remove_all(scratch.path("dump"));
    const Outcome o = run(mapping, kernel, {"--dump", "dump", "--timeout", "3"});
    EXPECT_EQ(o.exit_code, 5) << o.err;
    EXPECT_TRUE(has("q.npy") && has("v.npy") && has("expected_out.npy") && has("expected_lse.npy"));
    EXPECT_FALSE(has("out.npy") || has("z_out.npy"));
    EXPECT_THAT(worst(), HasSubstr("no outputs: the launch failed"));
  }
}

TEST_F(CliDump, WhatCannotBeWrittenIsRefused) {
  const auto error = [&](const std::string& mapping, const std::string& kernel, const std::string& dir) {
    const Outcome o = run(mapping, kernel, {"--dump", dir});
    EXPECT_EQ(o.exit_code, 2) << o.out;
    return o.err;
  };
  const std::string small = "{batch: q5, heads: 2, head_dim: 8}";
  EXPECT_THAT(error(small, "cpu,drop_last_key", "dump"),
              HasSubstr("one case on one kernel, and 2 are given"));
  EXPECT_THAT(error("{batch: [q5, q6], heads: 2, head_dim: 8}", "cpu", "dump"), HasSubstr("and 2 are given"));
  EXPECT_THAT(error("{batch: q1s9, heads: 32, head_dim: 128, kv: paged, pool_blocks: 70000}", "cpu", "dump"),
              HasSubstr("its tensors take 18.35 GB, and at most 2.00 GB are written"));
  EXPECT_THAT(
      run_faulty(scratch, {"run", "--case", small, "--kernel", "cpu", "--check", "off", "--dump", "dump"})
          .err,
      HasSubstr("drop --check off"));
  EXPECT_FALSE(has(""));
  scratch.write("file", "");
  EXPECT_THAT(error(small, "cpu", "file"), HasSubstr("file: error: cannot make the folder"));
  ASSERT_EQ(run(small, "cpu", {"--dump", "dump"}).exit_code, 0);
  EXPECT_THAT(error(small, "cpu", "dump"), HasSubstr("--dump dump: it exists and is not empty"));
}

}  // namespace
}  // namespace attnbench::testing
