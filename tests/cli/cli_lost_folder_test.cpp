// A folder of results that vanishes while its command runs. It is made anew with all records; where it cannot
// be, the exit code is not 0, and the error says where the results are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class CliLostFolder : public ::testing::Test {
 protected:
  /// Runs four cases, and calls `lose` during the second one.
  Outcome run(const std::function<void()>& lose) {
    const std::string file = scratch_.write(
        "four.yaml", "name: four\nsweeps: [{batch: q5, heads: 2, head_dim: 8, gap_tokens: [0, 1, 2, 3]}]\n");
    Running run(scratch_, ATTNBENCH_FAULTY,
                {"run", file, "--device", "cpu", "--kernel", "slow", "--no-time", "-v", "--out", "out"});
    EXPECT_TRUE(run.wait_for_stderr("[2/4]", 60));
    lose();
    return run.wait();
  }
  int lines_of(const fs::path& file) const {
    const std::string text = read_text(file);
    return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }

  const Scratch scratch_;
  const fs::path out_ = scratch_.dir() / "out";
};

TEST_F(CliLostFolder, IsMadeAnewWithAllRecords) {
  const Outcome o = run([&] { fs::remove_all(out_); });
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_EQ(read_records(out_).size(), 4u);
  EXPECT_EQ(lines_of(out_ / "journal.jsonl"), 4);
}

TEST_F(CliLostFolder, ThatWasRenamedIsMadeAnew) {
  const Outcome o = run([&] { fs::rename(out_, scratch_.dir() / "other"); });
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_EQ(read_records(out_).size(), 4u);
  EXPECT_EQ(lines_of(out_ / "journal.jsonl"), 4);
}

TEST_F(CliLostFolder, ThatCannotBeMadeAnewIsAnErrorAndNoLoss) {
  const fs::path other = scratch_.dir() / "temporary";
  fs::create_directory(other);
  setenv("TMPDIR", other.c_str(), 1);
  const Outcome o = run([&] {
    fs::remove_all(out_);
    scratch_.write("out", "a file");
  });
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("out: error: cannot make the folder: Not a directory"));
  EXPECT_THAT(o.err, HasSubstr(" of 4 records are not there, but in " + (other / "out").string() +
                               ", and --resume continues from it\n"));
  EXPECT_GE(read_records(other / "out").size(), 1u);
  const Outcome more = run_faulty(scratch_, {"run", scratch_.path("four.yaml"), "--device", "cpu", "--kernel",
                                             "slow", "--no-time", "--resume", (other / "out").string()});
  EXPECT_EQ(more.exit_code, 0) << more.err;
  EXPECT_EQ(read_records(other / "out").size(), 4u);

  setenv("TMPDIR", "/nowhere", 1);
  fs::remove_all(out_);
  const Outcome lost = run([&] {
    fs::remove_all(out_);
    scratch_.write("out", "a file");
  });
  unsetenv("TMPDIR");
  EXPECT_EQ(lost.exit_code, 2);
  EXPECT_THAT(lost.err, HasSubstr(" of 4 records are lost with the folder"));
}

TEST_F(CliLostFolder, OfAGateIsMadeAnew) {
  ASSERT_EQ(run([] {}).exit_code, 0);
  Running gate(scratch_, ATTNBENCH_FAULTY,
               {"gate", "four.yaml", "--device", "cpu", "--kernel", "slow", "--no-time", "--baseline",
                "out/results.json", "--out", "gate"});
  EXPECT_TRUE(gate.wait_for_stderr("[2/4]", 60));
  fs::remove_all(scratch_.dir() / "gate");
  const Outcome o = gate.wait();
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_TRUE(fs::exists(scratch_.dir() / "gate" / "compare.json"));
  EXPECT_EQ(lines_of(scratch_.dir() / "gate" / "gate.jsonl"), 3) << "settings, begin and end of the turn";
}

TEST_F(CliLostFolder, OfASelftestAndAFuzzIsMadeAnew) {
  const std::vector<std::string> common = {"--device", "cpu", "--kernel", "cpu", "--out", "out"};
  for (std::vector<std::string> args :
       {std::vector<std::string>{"selftest", "--filter", "scores/sink_ignored", "--seeds", "1"},
        {"fuzz", "--workers", "1", "--cases", "100", "--seed", "1"}}) {
    args.insert(args.end(), common.begin(), common.end());
    fs::remove_all(out_);
    Running command(scratch_, ATTNBENCH_PROGRAM, args);
    EXPECT_TRUE(command.wait_for_stderr(" on cpu\n", 60));
    fs::remove_all(out_);
    const Outcome o = command.wait();
    EXPECT_EQ(o.exit_code, 0) << o.err;
    EXPECT_TRUE(fs::exists(out_ / (args[0] + ".json"))) << args[0];
  }
}

}  // namespace
}  // namespace attnbench::testing
