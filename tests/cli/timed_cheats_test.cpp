// selftest --cheats: kernels that cheat are caught, odd honest ones are not accused, and a cheat that gets
// through is reported as such.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "harness/device/sanitized.h"
#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

Outcome run_cheats(const Scratch& scratch, const std::vector<std::string>& kernels,
                   std::vector<std::string> more = {ATTNBENCH_CHEATS_DIR}) {
  std::vector<std::string> args = {"selftest", "--device", "cpu", "--out", "out", "-q"};
  for (const std::string& k : kernels) args.insert(args.end(), {"--kernel", k});
  args.push_back("--cheats");
  args.insert(args.end(), more.begin(), more.end());
  return run_attnbench(scratch, args);
}

/// The entries of cheats.json by name.
std::map<std::string, json> entries(const Scratch& scratch) {
  std::map<std::string, json> found;
  const json report = read_json(scratch.dir() / "out" / "cheats.json");
  for (const json& e : report.at("cheats")) found[e.at("name").get<std::string>()] = e;
  return found;
}

class TimedCheats : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "cheats race and overwrite on purpose";
  }
};

TEST_F(TimedCheats, AreCaughtWithASentenceThatSaysHowTheTimedLaunchDiffered) {
  const Scratch scratch;
  const Outcome o =
      run_cheats(scratch, {"counts_launches", "finishes_later", "odd_launches", "writes_constant"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("4 cheats, 0 got through\n1 honest kernel, 0 accused\n"));
  const auto all = entries(scratch);
  // On a busy machine what finishes_later leaves to a thread is late in the verified launch, too.
  for (const char* name : {"counts_launches", "odd_launches", "writes_constant"}) {
    EXPECT_THAT(all.at(name).at("verdict"), AnyOf(StartsWith("timed_launch, "), "late_write", "early_write"))
        << name;
    EXPECT_THAT(all.at(name).at("reason"), StartsWith("timed launch ")) << name;
  }
  EXPECT_THAT(all.at("counts_launches").at("reason"),
              AllOf(AnyOf(HasSubstr("unlike the verified launch"), HasSubstr("first one with these values")),
                    HasSubstr("NaN")));
  const json record = read_records(scratch.dir() / "out" / "cheats" / "counts_launches").at(0);
  EXPECT_THAT(record.at("check").at("clues").dump(),
              AllOf(HasSubstr("are of heads 2, 3"), HasSubstr("keep something from launch to launch")));
}

TEST_F(TimedCheats, ThoseInPythonAreCaught) {
  if (std::system("python3 -c 'import numpy' > /dev/null 2>&1") != 0) GTEST_SKIP() << "no python3 with NumPy";
  const Scratch scratch;
  const std::vector<std::string> names = {"py_caches_output",     "py_changes_inputs", "py_global_state",
                                          "py_lazy_tensor",       "py_side_thread",    "py_patches_functions",
                                          "py_patches_attnbench", "py_patches_clock"};
  const Outcome o = run_cheats(scratch, names);
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("8 cheats, 0 got through\n1 honest kernel, 0 accused\n"));
  const auto all = entries(scratch);
  EXPECT_THAT(all.at("py_changes_inputs").at("reason"), HasSubstr(" of q (an input) in launch of "));
  EXPECT_EQ(all.at("py_patches_clock").at("verdict"), "gained nothing");
  EXPECT_THAT(all.at("py_patches_attnbench").at("reason"), HasSubstr("NaN"));
}

TEST_F(TimedCheats, OneThatLooksForItsResultFindsPoison) {
  const Scratch scratch;
  const Outcome o = run_cheats(scratch, {"looks_if_done"}, {});  // the default folder
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_EQ(entries(scratch).at("looks_if_done").at("verdict"), "gained nothing");
}

TEST_F(TimedCheats, LowerPrecisionDamagedInputsAndSkippedCasesAreCaught) {
  const Scratch scratch;
  const Outcome o =
      run_cheats(scratch, {"claims_precision", "stores_in_inputs", "shrinks_support", "exits_in_launch"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  const auto all = entries(scratch);
  EXPECT_THAT(all.at("claims_precision").at("verdict"), StartsWith("max_z"));
  EXPECT_EQ(all.at("stores_in_inputs").at("verdict"), "guard");
  EXPECT_EQ(all.at("shrinks_support").at("verdict"), "coverage 1 of 3");
  EXPECT_EQ(all.at("exits_in_launch").at("verdict"), "error");
}

TEST_F(TimedCheats, ForgedAndEditedAnswersAreErrorsOfTheirCases) {
  const Scratch scratch;
  const Outcome o = run_cheats(scratch, {"edits_records", "forges_records", "forks_in_launch"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  const auto all = entries(scratch);
  EXPECT_EQ(all.at("forges_records").at("verdict"), "error");
  EXPECT_THAT(all.at("forges_records").at("reason"),
              StartsWith("the kernel's process sent what is no answer"));
  for (const char* name : {"edits_records", "forks_in_launch"})
    EXPECT_EQ(all.at(name).at("verdict"), "gained nothing") << name;
}

TEST_F(TimedCheats, WhoeverKeepsResultsUntilAskedIsCaughtByItsOwnSamples) {
  const Scratch scratch;
  const Outcome o = run_cheats(scratch, {"kept_until_asked", "limits_memory"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  const auto all = entries(scratch);
  const json& kept = all.at("kept_until_asked");
  if (kept.at("marked") == 0) {  // else the machine is busy, and its time wins nothing
    EXPECT_THAT(kept.at("reason"), AnyOf(StartsWith("it keeps results of earlier launches"),
                                         HasSubstr(" us with new values by a clock")));
  }
  EXPECT_THAT(all.at("limits_memory").at("reason"), StartsWith("limits_memory: workspace_bytes wants "));
}

TEST_F(TimedCheats, HonestKernelsAreNotAccused) {
  const Scratch scratch;
  const Outcome o = run_cheats(
      scratch, {"non_deterministic", "offsets_v", "own_pool", "prints_megabytes", "slow_first_launch"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("0 cheats, 0 got through\n6 honest kernels, 0 accused\n"),
                           Not(HasSubstr("ACCUSED"))));
  EXPECT_THAT(o.err, IsEmpty());
}

TEST_F(TimedCheats, OneThatPassesInLessTimeHasGotThroughAndAWrongHonestOneIsAccused) {
  const Scratch scratch;
  const std::filesystem::path from(ATTNBENCH_CHEATS_DIR), cpu = scratch.dir() / "mixed" / "cpu";
  std::filesystem::create_directories(cpu / "honest");
  // A cheat named honest must be accused. Without `plain`, no time excuses a kernel that passes.
  std::filesystem::copy_file(from / "cpu" / "writes_constant.so", cpu / "honest" / "writes_constant.so");
  std::filesystem::copy_file(from / "cpu" / "honest" / "offsets_v.so", cpu / "offsets_v.so");
  const Outcome o = run_cheats(scratch, {}, {"mixed"});
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_THAT(o.out, AllOf(HasSubstr("GOT THROUGH"), HasSubstr("ACCUSED by timed_launch"),
                           HasSubstr("1 cheat, 1 got through: offsets_v\n"),
                           HasSubstr("1 honest kernel, 1 accused: writes_constant\n")));
}

TEST_F(TimedCheats, MistakesAreErrors) {
  const Scratch scratch;
  Outcome o = run_cheats(scratch, {}, {"nowhere"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("--cheats: no plug-ins in nowhere/cpu"),
                           HasSubstr("--target attnbench_cheats")));
  o = run_cheats(scratch, {}, {"nowhere", "--plugin", ATTNBENCH_CHEATS_DIR "/cpu/odd_launches.so"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("not --plugin"));
  o = run_cheats(scratch, {"odd_launch"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("--kernel odd_launch: did you mean 'odd_launches'?"));
}

}  // namespace
}  // namespace attnbench::testing
