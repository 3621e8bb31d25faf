// The other subcommands, and --help of each.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kCommands[] = {"run",     "list",   "kernels", "doctor",   "compare", "merge",
                                     "profile", "report", "gate",    "selftest", "fuzz",    "show"};
constexpr const char* kTwoCases = "name: two\nsweeps: [{batch: [q5, 2q7], heads: 4/2, head_dim: 16}]\n";

TEST(CliHelp, EachSubcommandShowsAnExample) {
  const Scratch scratch;
  for (const char* command : kCommands) {
    const Outcome o = run_attnbench(scratch, {command, "--help"});
    EXPECT_THAT(o.out, Not(HasSubstr("\n\n\n"))) << command;
    EXPECT_EQ(o.exit_code, 0) << command;
    EXPECT_THAT(o.out, AllOf(HasSubstr("Example"), HasSubstr(std::string("attnbench ") + command)))
        << command;
    EXPECT_EQ(o.err, "") << command;
    std::istringstream lines(o.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120u) << line;
  }
}

TEST(CliHelp, ProgramListsSubcommandsAndExitCodes) {
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"--help"});
  EXPECT_EQ(o.exit_code, 0);
  for (const char* command : kCommands) EXPECT_THAT(o.out, HasSubstr(command));
  EXPECT_THAT(o.out, AllOf(HasSubstr("Examples:"), HasSubstr("Exit codes:"), HasSubstr("130 interrupted")));
}

TEST(CliHelp, HelpIsACommandToo) {
  const Scratch scratch;
  EXPECT_EQ(run_attnbench(scratch, {"help"}).out, run_attnbench(scratch, {"--help"}).out);
  const Outcome o = run_attnbench(scratch, {"help", "gate"});
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_EQ(o.out, run_attnbench(scratch, {"gate", "--help"}).out);
  EXPECT_EQ(run_attnbench(scratch, {"help", "gat"}).exit_code, 2);
}

TEST(CliHelp, TheOptionsOfRunHaveHeadingsAndTheMostUsedComeFirst) {
  const Scratch scratch;
  const std::string text = run_attnbench(scratch, {"run", "--help"}).out;
  EXPECT_THAT(text, Not(HasSubstr("\nOptions:"))) << "an option has no heading";
  EXPECT_LT(text.find("Most used:"), text.find("Timing:"));
  EXPECT_LT(text.find("--no-time "), text.find("--peers "));
}

TEST(CliCompletion, OffersCommandsOptionsSweepsKernelsAndKeys) {
  const Scratch scratch;
  const auto words = [&](std::vector<std::string> typed) {
    typed.insert(typed.begin(), {"completion", "words", "--"});
    const Outcome o = run_attnbench(scratch, typed);
    EXPECT_EQ(o.exit_code, 0) << o.err;
    return "\n" + o.out;
  };
  EXPECT_THAT(words({"ru"}), AllOf(HasSubstr("\nrun\n"), HasSubstr("\nshow\n")));
  EXPECT_THAT(words({"run", "--dev"}), AllOf(HasSubstr("\n--device\n"), Not(HasSubstr("--judge"))));
  EXPECT_THAT(words({"run", ""}), AllOf(HasSubstr("\nquickstart\n"), HasSubstr("\npeers/vllm\n")));
  EXPECT_THAT(words({"run", "--kernel", ""}), HasSubstr("\ncpu\n"));
  EXPECT_THAT(words({"list", "--set", "bl"}), HasSubstr("\nblock_size=\n"));
  EXPECT_EQ(words({"no such command", ""}), "\n");
}

TEST(CliCompletion, WorksInBash) {
  const Scratch scratch;
  const Outcome script = run_attnbench(scratch, {"completion", "bash"});
  ASSERT_EQ(script.exit_code, 0);
  const std::string program = ATTNBENCH_PROGRAM;
  const std::string file = scratch.write("try.sh", script.out + "COMP_WORDS=(" + program +
                                                       " run smok); COMP_CWORD=2\n_attnbench " + program +
                                                       " smok\nprintf '%s ' \"${COMPREPLY[@]}\"\n");
  const Outcome o = Running(scratch, "/bin/bash", {file}).wait();
  EXPECT_EQ(o.out, "smoke ") << o.err;
  EXPECT_EQ(run_attnbench(scratch, {"completion", "tcsh"}).exit_code, 2);
}

TEST(CliList, PrintsIdsCountsAndMemory) {
  const Scratch scratch;
  const std::string file = scratch.write("two.yaml", kTwoCases);
  const Outcome o = run_attnbench(scratch, {"list", file, "--device", "cpu"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("attention/packed/bf16/h4-2/d16/full/q5 "), HasSubstr("/2q7 "),
                           HasSubstr("2 cases"), HasSubstr("memory")));
}

TEST(CliHelp, VersionIsTheLineOfTheDoctor) {
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"--version"});
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_THAT(o.out, ContainsRegex("^attnbench [0-9.]+ \\(.* build\\)\n$"));
  EXPECT_THAT(run_attnbench(scratch, {"doctor"}).out, HasSubstr(o.out));
}

TEST(CliList, APoolOfWhichACpuHasThePagesThatAreUsedTakesNoMore) {
  const Scratch scratch;
  const std::string far = "{kv: paged, heads: 32, head_dim: 128, pool_blocks: 70000, batch: q1s300}";
  const Outcome o = run_attnbench(scratch, {"list", "--device", "cpu", "--case", far});
  EXPECT_THAT(o.out, ContainsRegex("largest [0-9.]+ MB"));
}

TEST(CliList, CountsTheKernelsOfTheDeviceAsked) {
  const Scratch scratch;
  const std::string file = scratch.write("one.yaml", "name: one\nsweeps: [{batch: q5}]\n");
  EXPECT_THAT(run_attnbench(scratch, {"list", file, "--device", "cpu"}).out,
              ContainsRegex(" [0-9]+ runs? on cpu; "));
  EXPECT_THAT(run_attnbench(scratch, {"list", file, "--device", "cuda"}).out,
              ContainsRegex("[0-9]+ runs? on cuda; "));
  EXPECT_EQ(run_attnbench(scratch, {"list", file, "--device", "gpu"}).exit_code, 2);
}

TEST(CliList, EstimatesARangeForManySmallCases) {
  const Scratch scratch;
  const std::string file = scratch.write(
      "many.yaml",
      "name: many\nsweeps: [{batch: {lengths: [5]}, heads: 2, head_dim: [8, 16, 24, 32, 40, 48, 56, "
      "64], softcap: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], softmax_scale: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}]\n");
  EXPECT_THAT(
      run_attnbench(scratch, {"list", file, "--device", "cpu", "--kernel", "cpu"}).out,
      AllOf(
          HasSubstr("800 cases"),
          ContainsRegex(
              "; about [0-9a-z ]+ to [0-9]+ (min|h), with --no-time about [0-9a-z ]+ to [0-9]+ (s|min)\n")));
}

TEST(CliList, NamesTheValuesThatNoCaseHolds) {
  const Scratch scratch;
  const std::string file =
      scratch.write("cover.yaml",
                    "name: c\nsweeps: [{cover: pairwise, batch: [q9s40, q40s9], kv: [packed, paged], "
                    "mask: [none, causal], block_size: [16, 64], dtype: [bf16, fp16]}]\n");
  const std::string short_list = run_attnbench(scratch, {"list", file}).out;
  EXPECT_THAT(short_list, HasSubstr("; no legal case: 1; no difference: 2 (--impossible lists them)\n"));
  const std::string list = run_attnbench(scratch, {"list", file, "--impossible"}).out;
  EXPECT_THAT(list,
              ContainsRegex("^cover: [0-9]+ pairs of values meet; no legal case: 1; no difference: 2\n"));
  const auto lines = [&](const std::string& begin) {
    int n = 0;
    for (std::size_t at = list.find("\n  " + begin); at != list.npos; at = list.find("\n  " + begin, at + 1))
      ++n;
    return n;
  };
  EXPECT_EQ(lines("no legal case: "), 1);
  EXPECT_EQ(lines("no difference: "), 2);
  EXPECT_THAT(list, HasSubstr("  no legal case: sweep1: batch: q40s9 with mask: causal\n"));
  EXPECT_THAT(list, HasSubstr("  no difference: sweep1: kv: packed with block_size: 16\n"));
}

TEST(CliList, SaysWhatASampleLacks) {
  const Scratch scratch;
  const std::string file = scratch.write(
      "sample.yaml", "name: s\nsweeps: [{cover: {sample: 9}, batch: [q1, q2, q3], heads: [1, 2]}]\n");
  EXPECT_THAT(
      run_attnbench(scratch, {"list", file}).out,
      AllOf(HasSubstr("6 cases ("), HasSubstr("sample: sweep1: 6 of 9: no other legal case was found\n")));
}

TEST(CliList, NothingMatchedIsSix) {
  const Scratch scratch;
  EXPECT_EQ(
      run_attnbench(scratch, {"list", scratch.write("two.yaml", kTwoCases), "--filter", "nope"}).exit_code,
      6);
}

TEST(CliList, SchemaIsJsonAndTheOneInConfigs) {
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"list", "--schema"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  const json schema = json::parse(o.out, nullptr, false);
  ASSERT_FALSE(schema.is_discarded());
  EXPECT_THAT(schema["$schema"].get<std::string>(), HasSubstr("2020-12"));
  EXPECT_EQ(read_json(source_path("configs/attnbench.schema.json")), schema)
      << "attnbench list --schema > configs/attnbench.schema.json";
}

TEST(CliList, KeysThatChangeNothingAreNoted) {
  const Scratch scratch;
  const Outcome unused =
      run_attnbench(scratch, {"list", "--case", "{batch: q4, kv: paged, gap_tokens: 4, block_size: 32}"});
  EXPECT_EQ(unused.exit_code, 0) << unused.err;
  EXPECT_THAT(unused.err, HasSubstr("--case:1:36: note: gap_tokens changes no case"));
  EXPECT_THAT(unused.err, Not(HasSubstr("block_size")));
  const Outcome axes = run_attnbench(
      scratch, {"list", "--case", "{batch: q4, kv: [paged, packed], gap_tokens: 4, block_size: 32}"});
  EXPECT_EQ(axes.err, "");
}

TEST(CliList, KeysAreTheTableOfTheReadme) {
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"list", "--keys"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("| `kv_layout` | `nhd`, `hnd` | `nhd` |"));
  EXPECT_THAT(read_text(source_path("configs/keys.md")),
              HasSubstr("<!-- keys -->\n" + o.out + "<!-- end -->"))
      << "attnbench list --keys";
}

TEST(CliKernels, ListsEachWithWhatItSupports) {
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"kernels"});
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_THAT(o.out,
              AllOf(HasSubstr("cpu (attention, cpu)"), HasSubstr("cpu (kv_append, cpu)"),
                    HasSubstr("head_dim 1..256"), ContainsRegex("\nsoftcap +yes"),
                    ContainsRegex("\npaged +yes"), ContainsRegex("\ndevice +cpu( +cuda sm_[0-9]+\\+)*\n"),
                    ContainsRegex("\nattention .*  a key that needs it"),
                    ContainsRegex("\ne4m3_kv +yes .*  kv_dtype: e4m3\n")));
  EXPECT_EQ(run_attnbench(scratch, {"kernels", "--device", "cuda"}).out.find("(attention, cpu)"),
            std::string::npos);
  EXPECT_THAT(run_attnbench(scratch, {"kernels", "--device", "cpu"}).out, HasSubstr("cpu (kv_append, cpu)"));
}

TEST(CliDoctor, SaysWhatIsThereAndWhyAGpuIsNot) {
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"doctor"});
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_THAT(o.out, AllOf(HasSubstr("attnbench "), HasSubstr("device cpu"), HasSubstr("device cuda"),
                           ContainsRegex("memory +[0-9.]+ GB \\([0-9.]+ GB free; .+ sets the limit\\)\n")));
  if (o.out.find("built without CUDA") == std::string::npos) return;
  EXPECT_THAT(o.out, ContainsRegex("without CUDA: (ATTNBENCH_CUDA is OFF|nvcc was not found)\n"));
  EXPECT_THAT(o.out, HasSubstr("to have it   build anew with nvcc"));
}

TEST(CliProfile, LaunchesOneCase) {
  const Scratch scratch;
  const std::string file = scratch.write("two.yaml", kTwoCases);
  const std::string id = "attention/packed/bf16/h4-2/d16/full/q5";
  Outcome o = run_attnbench(
      scratch, {"profile", file, "--case", id, "--device", "cpu", "--tool", "none", "--launches", "3"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("3 in the profiled range"), HasSubstr(id)));
  o = run_attnbench(scratch, {"profile", file, "--device", "cpu"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("--case"));
}

TEST(CliProfile, PrintsTheLineOfTheTool) {
  const Scratch scratch;
  for (const char* tool : {"ncu", "nsys"}) {
    const Outcome o =
        run_attnbench(scratch, {"profile", "--case", "{batch: q5, heads: 2, head_dim: 8}", "--device", "cpu",
                                "--tool", tool, "--tool-path", tool, "--dry-run"});
    EXPECT_EQ(o.exit_code, 0) << o.err;
    EXPECT_THAT(o.out, AllOf(HasSubstr(tool), HasSubstr(" profile --case '{op: attention"),
                             HasSubstr("--tool none")));
  }
}

TEST(CliProfile, DryRunLaunchesNothing) {
  const Scratch scratch;
  const Outcome o = run_attnbench(
      scratch, {"profile", "--case", "{batch: q5, heads: 2, head_dim: 8}", "--device", "cpu", "--dry-run"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr(" profile --case '{op: attention"), HasSubstr("--tool none\n"),
                           Not(HasSubstr("in the profiled range"))));
}

TEST(CliCompareFiles, BadOnesAreTwo) {
  const Scratch scratch;
  const std::string broken = scratch.write("broken.json", "{\"context\": ");
  for (const std::string& file : {broken, std::string("missing.json")}) {
    const Outcome o = run_attnbench(scratch, {"compare", file, file});
    EXPECT_EQ(o.exit_code, 2) << o.out;
    EXPECT_THAT(o.err, HasSubstr(file));
  }
  EXPECT_EQ(run_attnbench(scratch, {"compare", broken}).exit_code, 2);
}

TEST(CliCompareFiles, AMinimumEffectOfNoCaseIsSaid) {
  const Scratch scratch;
  const std::string file = source_path("results/baselines/cpu/quickstart.json");
  const auto compare = [&](std::vector<std::string> effects) {
    std::vector<std::string> args = {"compare", file, file};
    for (std::string& e : effects) args.insert(args.end(), {"--min-effect-of", std::move(e)});
    return run_attnbench(scratch, args);
  };
  EXPECT_EQ(compare({"kv_append=5"}).err, "");
  Outcome o = compare({"kv_append=5", "kv_apend=5"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.err, AllOf(HasSubstr("warning: --min-effect-of 'kv_apend=5' matches no case"),
                           HasSubstr("such as 'attention/"), Not(HasSubstr("kv_append=5'"))));
  o = compare({"kv_apend=5", "pagd=5"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_EQ(o.out, "");
  EXPECT_THAT(o.err, HasSubstr("'kv_apend=5', 'pagd=5' matches no case"));
}

}  // namespace
}  // namespace attnbench::testing
