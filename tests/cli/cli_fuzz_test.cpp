// attnbench fuzz is clean if kernels are right. It finds a wrong kernel, shrinks the case, and the repro line
// fails again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/device/sanitized.h"
#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST(CliFuzz, TheCpuKernelsAreClean) {
  const Scratch scratch;
  const Outcome o =
      run_attnbench(scratch, {"fuzz", "--device", "cpu", "--cases", "120", "--seed", "1", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, ContainsRegex("seed 1: [0-9]+ ran, [0-9]+ skipped, 0 failed"));
  EXPECT_THAT(o.err, HasSubstr("fuzz: seed 1 on cpu"));
  const json j = read_json(scratch.dir() / "out" / "fuzz.json");
  EXPECT_EQ(j["seed"], 1);
  int of_cpu = 0, with_invariants = 0, ran = 0, skipped = 0;
  for (const json& k : j["kernels"]) {
    EXPECT_EQ(k["failed"], 0) << k["kernel"];
    ran += k["ran"].get<int>();
    skipped += k["skipped"].get<int>();
    if (k["kernel"] != "cpu") continue;
    ++of_cpu;
    EXPECT_GT(k["ran"].get<int>(), 0);
    with_invariants += k["with_invariants"].get<int>();
  }
  EXPECT_EQ(ran, 120);
  EXPECT_EQ(j["cases"], ran + skipped);
  EXPECT_EQ(of_cpu, 5) << "one for each op";
  EXPECT_GT(with_invariants, 0);
  EXPECT_TRUE(j["findings"].empty());
  EXPECT_TRUE(read_records(scratch.dir() / "out").empty());
}

/// This kernel is wrong only if a window meets a sequence one key shorter than the longest. No sweep covers
/// that.
TEST(CliFuzz, FindsAndShrinksARareFault) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer leaves no time to shrink it";
  const Scratch scratch;
  const Outcome o = run_faulty(scratch, {"fuzz", "--kernel", "one_key_short", "--cases", "600", "--seed", "3",
                                         "--max-findings", "1", "--out", "out", "-q"});
  ASSERT_EQ(o.exit_code, 1) << o.out << o.err;
  EXPECT_THAT(o.out,
              AllOf(HasSubstr("finding 1: one_key_short: fail: "), HasSubstr("reproduce: attnbench run")));
  const json j = read_json(scratch.dir() / "out" / "fuzz.json");
  ASSERT_EQ(j["findings"].size(), 1u);
  const std::string id = j["findings"][0]["id"];
  EXPECT_THAT(id, ContainsRegex("^attention/packed/bf16/h1-1/d[0-9]+/full/window[0-9]+,(-1|0)/q")) << id;
  EXPECT_EQ(std::count(id.begin(), id.end(), 'q'), 2) << id;  // two sequences are left
  const auto records = read_records(scratch.dir() / "out");
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0]["status"], "fail");

  std::vector<std::string> words = shell_words(j["findings"][0]["repro"]);
  words.erase(words.begin());  // the program's name
  const Outcome again = run_faulty(scratch, words);
  EXPECT_EQ(again.exit_code, 1) << again.out << again.err;
  EXPECT_THAT(again.out, HasSubstr(id));
}

TEST(CliFuzz, ACrashIsAFindingAndNotTheEnd) {
  const Scratch scratch;
  const Outcome o = run_faulty(
      scratch, {"fuzz", "--kernel", "segfaults_with_sinks", "--cases", "300", "--seed", "1", "-q"});
  EXPECT_EQ(o.exit_code, 5) << o.out << o.err;
  EXPECT_THAT(
      o.out,
      AllOf(HasSubstr(
                kSanitized
                    ? "finding 1: segfaults_with_sinks: error: the worker process ended with exit code"
                    : "finding 1: segfaults_with_sinks: error: the worker process was killed by signal 11"),
            ContainsRegex("--case '[^']*sinks: true[^']*batch: q0}'"), HasSubstr("(1 distinct)")));
}

TEST(CliFuzz, SaysWhereNothingRan) {
  const Scratch scratch;
  // Which draws the kernel refuses depends on the table of keys: most seeds begin with twenty of them.
  Outcome o;
  for (int seed = 1; seed <= 10 && o.exit_code != 6; ++seed)
    o = run_faulty(scratch, {"fuzz", "--kernel", "refuses", "--cases", "1", "--seed", std::to_string(seed)});
  EXPECT_EQ(o.exit_code, 6) << o.out << o.err;
  EXPECT_THAT(
      o.out, AllOf(ContainsRegex(
                       "seed [0-9]+: 0 ran, 20 skipped, .*; ended before 1 case ran, because 20 were skipped "
                       "for each of them\n"),
                   HasSubstr("values: different values of sweep keys in the cases that ran\n"),
                   ContainsRegex("[0-9]+ % of the skips of refuses .attention., for example: refuses: "
                                 "head_dim [0-9]+ not in .64.\n  a skipped case: attnbench run --case ")));
  // The line gives the same refusal.
  const std::string mark = "  a skipped case: attnbench ";
  const std::size_t begin = o.out.find(mark) + mark.size();
  const std::string line = o.out.substr(begin, o.out.find('\n', begin) - begin);
  std::vector<std::string> words = shell_words(line);
  words.insert(words.end(), {"--out", "again"});
  EXPECT_EQ(run_faulty(scratch, words).exit_code, 6) << line;
  const std::size_t reason = o.out.find("refuses: head_dim");
  EXPECT_EQ(read_records(scratch.dir() / "again").at(0)["reason"],
            o.out.substr(reason, o.out.find('\n', reason) - reason));
}

TEST(CliFuzz, RefusesWhatIsNoSeedAndNoKernel) {
  const Scratch scratch;
  for (const char* seed : {"-1", "x", "18446744073709551616"})
    EXPECT_EQ(run_attnbench(scratch, {"fuzz", "--seed", seed}).exit_code, 2) << seed;
  const Outcome o = run_attnbench(scratch, {"fuzz", "--kernel", "cpuu"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("did you mean 'cpu'?"));
}

TEST(CliFuzz, FuzzesAPlugIn) {
  const Scratch scratch;
  const std::string plugin = std::string(ATTNBENCH_PLUGIN_DIR) + "/wrong.so";
  const Outcome o = run_attnbench(scratch, {"fuzz", "--plugin", plugin, "--kernel", "example", "--cases",
                                            "300", "--seed", "1", "--max-findings", "1", "-q"});
  EXPECT_EQ(o.exit_code, 1) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("--plugin " + plugin));
}

}  // namespace
}  // namespace attnbench::testing
