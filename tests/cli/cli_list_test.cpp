// What `list` says of a run before it is made: which cases it skips, how they are grouped, how long it takes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// The case of 2 TB fits no machine of ours; the file has two sweeps.
constexpr const char* kHuge =
    "name: t\nsweeps:\n  - {name: small, batch: [q5, q7], heads: 2, head_dim: 8}\n"
    "  - {name: huge, batch: 512q1s1m}\n";

std::string lines_with(const std::string& text, const std::string& part) {
  std::istringstream in(text);
  std::string found;
  for (std::string line; std::getline(in, line);) {
    if (line.find(part) != line.npos) found += line + "\n";
  }
  return found;
}

TEST(CliListSkips, MarksWhatRunSkipsForMemoryInItsWords) {
  const Scratch scratch;
  const std::string file = scratch.write("huge.yaml", kHuge);
  const Outcome o = run_attnbench(scratch, {"list", file, "--device", "cpu", "--kernel", "cpu"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  // Up to 256 MiB of it are for the cache flush, by the machine's caches.
  const std::string needs = "needs 2203.[4-6][0-9] GB of cpu memory, [0-9.]+ GB are free";
  EXPECT_THAT(lines_with(o.out, "will be skipped here: "),
              ContainsRegex(
                  "^attention/packed/bf16/h32-8/d128/full/512q1s1m  8.8 TFLOP, 2.2 TB least traffic, 2.2 TB "
                  "memory; will be skipped here: " +
                  needs + "\n"));
  EXPECT_THAT(o.out,
              HasSubstr("\n3 cases (0 excluded, 0 duplicates dropped, 0 filtered out), 3 runs on cpu; 1 case "
                        "will be skipped here; largest 2.2 TB; "));
  const Outcome run = run_attnbench(scratch, {"run", file, "--filter", "512q1s1m", "--device", "cpu",
                                              "--kernel", "cpu", "-q", "--out", "out"});
  EXPECT_THAT(run.out, ContainsRegex(needs));
  EXPECT_THAT(read_records(scratch.dir() / "out").at(0)["reason"].get<std::string>(),
              ContainsRegex("^" + needs + "$"));
}

TEST(CliListSkips, ASkippedCaseTakesNoTime) {
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"list", "--case", "{batch: 512q1s1m}", "--device", "cpu"});
  EXPECT_THAT(o.out, HasSubstr("; under 1 s, with --no-time under 1 s\n"));
}

TEST(CliListGroups, AHeadingPerSweepWhereThereAreSeveral) {
  const Scratch scratch;
  const std::string two = scratch.write("two.yaml", kHuge);
  const std::string one =
      scratch.write("one.yaml", "name: o\nsweeps: [{name: \"a\\tb\", batch: [q1, q2, q3]}]\n");
  const std::string alone = run_attnbench(scratch, {"list", one, "--device", "cpu"}).out;
  EXPECT_THAT(alone, AllOf(StartsWith("attention/"), Not(HasSubstr("sweep \""))));
  const Outcome o = run_attnbench(scratch, {"list", two, one, "--device", "cpu", "--filter", "q[57123]$",
                                            "--case", "{batch: q1}", "--case", "{batch: q2, heads: 3}"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_EQ(lines_with(o.out, "sweep \""),
            "sweep \"small\" of " + two + ": 2 cases\nsweep \"a b\" of " + one + ": 3 cases\n")
      << "of a sweep whose cases are filtered out there is none";
  EXPECT_THAT(o.out, HasSubstr("\n--case: 1 case\nattention/packed/bf16/h3-3/d128/full/q2 "))
      << "q1 was dropped";
}

TEST(CliListVerbose, PrintsTheLengthsBehindADigest) {
  const Scratch scratch;
  const std::vector<std::string> args = {"list",
                                         "--device",
                                         "cpu",
                                         "--case",
                                         "{batch: q7}",
                                         "--case",
                                         "{batch: {lengths: {uniform: [100, 999]}, count: 16}}"};
  std::vector<std::string> verbose = args;
  verbose.push_back("-v");
  EXPECT_THAT(run_attnbench(scratch, args).out, Not(HasSubstr("batch: ")));
  const std::string out = run_attnbench(scratch, verbose).out;
  const std::regex line("\\n(attention/[^ ]*/(16seqs-[^ ]*))  .*\\n  batch: ([^ ]*)\\n");
  std::smatch found;
  ASSERT_TRUE(std::regex_search(out, found, line)) << out;
  EXPECT_EQ(lines_with(out, "batch: "), "  batch: " + found[3].str() + "\n")
      << "the short one says it in its id";
  const Outcome again =
      run_attnbench(scratch, {"list", "--device", "cpu", "--case", "{batch: " + found[3].str() + "}"});
  EXPECT_THAT(again.out, StartsWith(found[1].str() + "  ")) << "the batch that is written out is the case's";
}

TEST(CliListNothing, SaysWhyAsRunDoes) {
  const Scratch scratch;
  const std::string file = scratch.write("huge.yaml", kHuge);
  const Outcome o = run_attnbench(scratch, {"list", file, "--device", "cpu", "--filter", "nothing"});
  EXPECT_EQ(o.exit_code, 6);
  EXPECT_THAT(o.err,
              StartsWith("nothing matched: 3 cases filtered out, 0 excluded; --filter looks in ids, such "
                         "as attention/packed/"));
  const std::string named =
      scratch.write("named.yaml", "name: n\nsweeps: [{name: short, batch: q4}, {name: long, batch: q99}]\n");
  EXPECT_THAT(
      run_attnbench(scratch, {"list", named, "--device", "cpu", "--filter", "lon"}).err,
      HasSubstr("'lon' is found in the name of sweep 'long', but it looks in ids alone: give a part that "
                "the ids of this sweep share, such as attention/packed/bf16/h32-8/d128/full/q99"));
  EXPECT_EQ(run_attnbench(scratch, {"run", file, "--device", "cpu", "--filter", "nothing"}).exit_code, 6);
}

TEST(CliListNothing, NoPatternTakesLongOrTooMuchStack) {
  const Scratch scratch;
  for (const std::string& pattern :
       {std::string("(.*)*(.*)*(.*)*x$"), std::string(60000, '(') + "x" + std::string(60000, ')')}) {
    const Outcome o =
        run_attnbench(scratch, {"list", "--case", "{batch: q4}", "--device", "cpu", "--filter", pattern});
    EXPECT_EQ(o.exit_code, 6) << pattern.substr(0, 20);
  }
}

TEST(CliListNothing, AnExclusionThatMatchesNothingIsNoted) {
  const Scratch scratch;
  const std::string file =
      scratch.write("exclude.yaml",
                    "name: t\nsweeps:\n  - name: a\n    batch: [q1, q2]\n"
                    "    head_dim: [64, 128]\n    exclude:\n      - {batch: q1, head_dim: 64}\n"
                    "      - {head_dim: 96}\n");
  const Outcome o = run_attnbench(scratch, {"list", file, "--device", "cpu"});
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_EQ(o.err, file + ":8:20: note: this row of 'exclude' matches no case of sweep 'a'\n");
  EXPECT_EQ(run_attnbench(scratch, {"list", file, "--device", "cpu", "--set", "head_dim=128"}).err, "");
}

TEST(CliListSet, TheLastOfTwoHoldsAndIsNoted) {
  const Scratch scratch;
  const Outcome o =
      run_attnbench(scratch, {"list", "--case", "{batch: q4}", "--set", "dtype=fp16", "--set", "dtype=bf16"});
  EXPECT_EQ(o.err, "note: --set dtype=bf16 replaces --set dtype=fp16\n");
  EXPECT_THAT(o.out, HasSubstr("attention/packed/bf16/"));
}

TEST(CliListKernel, MarksAndCountsWhatItRefusesItself) {
  const Scratch scratch;
  const std::string plugin = std::string(ATTNBENCH_PLUGIN_DIR) + "/example.so";
  const std::string file = scratch.write(
      "two.yaml", "name: t\nsweeps: [{batch: q5, heads: 2, head_dim: 8, sinks: [false, true]}]\n");
  const auto list = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"list", file, "--device", "cpu", "--plugin", plugin};
    args.insert(args.end(), more.begin(), more.end());
    return run_attnbench(scratch, args);
  };
  const Outcome one = list({"--kernel", "example"});
  EXPECT_EQ(one.exit_code, 0) << one.err;
  const Outcome run = run_attnbench(scratch, {"run", file, "--device", "cpu", "--plugin", plugin, "--kernel",
                                              "example", "--no-time", "-q", "--out", "out"});
  std::string reason;
  for (const auto& r : read_records(scratch.dir() / "out")) {
    if (r["status"] == "skip") reason = r["reason"];
  }
  ASSERT_NE(reason, "") << run.out;
  EXPECT_THAT(one.out, AllOf(HasSubstr("; will be skipped here: " + reason + "\n"),
                             HasSubstr("; 1 case will be skipped here; "),
                             HasSubstr("\nexample will refuse 1 case: " + reason + "\n"),
                             HasSubstr(", if the plug-in is as fast as the built-in kernels\n")));
  const Outcome both = list({"--kernel", "example", "--kernel", "cpu"});
  EXPECT_THAT(both.out, AllOf(Not(HasSubstr("will be skipped here")),
                              HasSubstr("\nexample will refuse 1 case: " + reason + "\n")));
  EXPECT_THAT(list({}).out, Not(HasSubstr("will refuse"))) << "no kernel is chosen";
}

TEST(CliListKernel, ARefusedTypeOrCacheSaysWhichTheKernelTakes) {
  const Scratch scratch;
  const std::string file = scratch.write(
      "three.yaml",
      "name: t\nsweeps: [{batch: q5, heads: 2, head_dim: 8, kv: [packed, contiguous]}, {batch: q5, dtype: fp32}]\n");
  const Outcome o =
      run_attnbench(scratch, {"list", file, "--device", "cpu", "--plugin",
                              std::string(ATTNBENCH_PLUGIN_DIR) + "/example.so", "--kernel", "example"});
  EXPECT_THAT(
      o.out,
      AllOf(HasSubstr("example: contiguous is not supported; it takes packed, paged (--set kv=packed)\n"),
            HasSubstr("example: fp32 is not supported; it takes bf16, fp16 (--set dtype=bf16)\n")));
}

TEST(CliListKernel, CountsAndMarksForTheseAlone) {
  const Scratch scratch;
  const std::string file = scratch.write("ops.yaml",
                                         "name: t\ndefaults: {heads: 2, head_dim: 8, batch: q5}\n"
                                         "sweeps: [{op: attention}, {op: kv_append, kv: paged}]\n");
  const auto list = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"list", file, "--device", "cpu"});
    return run_faulty(scratch, more);
  };
  const Outcome all = list({});
  const Outcome one = list({"--kernel", "cpu"});
  const Outcome two = list({"--kernel", "cpu", "--kernel", "drop_last_key"});
  EXPECT_THAT(one.out, HasSubstr("), 2 runs on cpu; largest"));
  EXPECT_THAT(two.out, HasSubstr("), 3 runs on cpu; largest")) << two.err;
  EXPECT_THAT(all.out, Not(HasSubstr("), 2 runs")));
  const Outcome marked = list({"--kernel", "drop_last_key"});
  EXPECT_THAT(marked.out,
              AllOf(HasSubstr("), 1 run on cpu; 1 case will be skipped here; "),
                    HasSubstr("; will be skipped here: no kernel of the chosen names for kv_append on "
                              "cpu\n")));
  const Outcome unknown = list({"--kernel", "cpo"});
  EXPECT_EQ(unknown.exit_code, 2);
  const std::string of_run = run_faulty(scratch, {"run", file, "--device", "cpu", "--kernel", "cpo"}).err;
  EXPECT_EQ(unknown.err.substr(unknown.err.find(": error"), 200), of_run.substr(of_run.find(": error"), 200));
  EXPECT_THAT(unknown.err, HasSubstr("--kernel cpo: no such kernel; did you mean 'cpu'?"));
  EXPECT_THAT(run_faulty(scratch, {"list", file, "--device", "cpu", "--case",
                                   "kv_append/paged16-nhd-shuffled/bf16/h2/d8/q5/cpu"})
                  .out,
              HasSubstr("), 1 run on cpu; "))
      << "an id may name the kernel, as in run";
}

}  // namespace
}  // namespace attnbench::testing
