// Kernels from outside the tree: the example as a shared library, other builds of it, and files that are no
// plug-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "harness/device/sanitized.h"
#include "kernels/contract/kernel.h"
#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kCase = "{kv: paged, batch: 2q7s33, heads: 4/2, head_dim: 16}";
constexpr const char* kThreeKernels =
    "name: three\nsweeps: [{batch: q5, heads: 2, head_dim: [8, 24, 16], mask: causal}]\n";

std::string plugin(const std::string& name) { return std::string(ATTNBENCH_PLUGIN_DIR) + "/" + name + ".so"; }

/// Runs `run ... --kernel example --no-time --out out` on the cpu device with this plug-in.
Outcome run_with(const Scratch& scratch, const std::string& file, std::vector<std::string> more) {
  std::vector<std::string> args = {"run",     "--device",  "cpu", "--plugin", file, "--kernel",
                                   "example", "--no-time", "-q",  "--out",    "out"};
  args.insert(args.end(), more.begin(), more.end());
  return run_attnbench(scratch, args);
}

// Otherwise the cpu kernel, whose smallest results are subnormal in fp16, would fail beside it.
TEST(CliPlugin, OneThatFlushesSubnormalsSpoilsNoOtherKernel) {
  const Scratch scratch;
  const Outcome o =
      run_attnbench(scratch, {"run", "--case", "{dtype: fp16, batch: q4s1000, heads: 2, head_dim: 64}",
                              "--device", "cpu", "--plugin", plugin("flushes"), "--kernel", "example,cpu",
                              "--no-time", "-q", "--in-process", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("2 passed"));
  EXPECT_THAT(o.err,
              AllOf(HasSubstr("note: --plugin " + plugin("flushes") + ": opening it makes a process flush"),
                    HasSubstr("link without it")));
}

TEST(CliPlugin, LastFailedTakesTheRunOfTheSamePlugIn) {
  namespace fs = std::filesystem;
  const Scratch scratch;
  const auto run = [&](const std::string& name, const std::vector<std::string>& more) {
    std::vector<std::string> args = {"run",      "--case",     kCase,      "--device", "cpu",
                                     "--plugin", plugin(name), "--kernel", "example",  "--no-time"};
    args.insert(args.end(), more.begin(), more.end());
    return run_attnbench(scratch, args);
  };
  ASSERT_EQ(run("wrong", {}).exit_code, 1);
  const fs::path runs = scratch.dir() / "results" / "runs";
  const std::string first = fs::directory_iterator(runs)->path().filename();
  const std::string newer = "20990101-000000-case";
  ASSERT_EQ(run("example", {"--out", (runs / newer).string()}).exit_code, 0);
  json results = read_json(runs / newer / "results.json");
  results["context"]["attnbench"]["complete"] = false;
  scratch.write("results/runs/" + newer + "/results.json", results.dump());

  Outcome o = run("wrong", {"--last-failed", "--dry-run"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.err, AllOf(HasSubstr("note: --last-failed passes over results/runs/" + newer +
                                     " (it ran with " + plugin("example") + ")\n"),
                           HasSubstr(first + ": 1 run failed; 1 of them to run again")));
  o = run("example", {"--last-failed", "--dry-run"});
  EXPECT_THAT(o.err,
              AllOf(HasSubstr(newer + ": interrupted after 1 run; 0 runs failed; nothing to run again"),
                    Not(HasSubstr("passes over")), Not(HasSubstr("note: that run"))));
  o = run("example",
          {"--last-failed", "--dry-run", "--case", "{batch: q3}", "--out", (runs / newer).string()});
  EXPECT_THAT(o.err, HasSubstr("note: that run has only 1 of these 2 runs; --out DIR names"));
  o = run("wrong", {"--last-failed", "--dry-run", "--out", (runs / newer).string()});
  EXPECT_THAT(o.err, HasSubstr(newer + " holds a run with " + plugin("example") + ", and this one has " +
                               plugin("wrong")));
  o = run("slow", {"--last-failed", "--dry-run"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("has no run of 'case' that fits. It passes over results/runs/" + newer));
}

TEST(CliPlugin, ProfileTakesThePlugInsKernelByDefault) {
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"profile", "--case", "{batch: q5, heads: 2, head_dim: 8}",
                                            "--plugin", plugin("example"), "--device", "cpu"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("example on cpu: 3 warm-up launches"));
}

TEST(CliPlugin, IsListedWithItsFile) {
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"kernels", "--plugin", plugin("example")});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("example (attention, cpu): a start"),
                           HasSubstr("    from      " + plugin("example") + "\n"),
                           ContainsRegex("\nattention +cpu .* example  a key that needs it\n"),
                           Not(HasSubstr("cpu (attention, cpu)")), Not(HasSubstr("\nkv_append "))));
  EXPECT_THAT(run_attnbench(scratch, {"kernels"}).out,
              AllOf(Not(HasSubstr("example")), Not(HasSubstr("    from "))));
  const std::string file = scratch.write("three.yaml", kThreeKernels);
  EXPECT_THAT(run_attnbench(scratch, {"list", file, "--device", "cpu", "--plugin", plugin("example")}).out,
              HasSubstr("6 runs on cpu"));
}

TEST(CliPlugin, OneOfAGpuIsListedAndSkippedOnTheCpu) {
  const Scratch scratch;
  EXPECT_THAT(run_attnbench(scratch, {"kernels", "--plugin", plugin("gpu")}).out,
              AllOf(HasSubstr("mistaken (merge_states, cuda sm_80+): does nothing\n"),
                    HasSubstr("    instances 2, each for bf16 and fp16 (-v lists them)\n")));
  EXPECT_THAT(run_attnbench(scratch, {"kernels", "-v", "--plugin", plugin("gpu")}).out,
              HasSubstr("bf16 and fp16\n"
                        "      d8        head_dim 8, use kAll, split\n"
                        "      d64_full  head_dim 64\n"));
  const Outcome o = run_attnbench(
      scratch, {"run", "--case", "{op: merge_states, heads: 2, head_dim: 8, batch: q5}", "--device", "cpu",
                "--plugin", plugin("gpu"), "--kernel", "mistaken", "-q", "--out", "out"});
  EXPECT_EQ(o.exit_code, 6) << o.err;
  const auto records = read_records(scratch.dir() / "out");
  ASSERT_EQ(records.size(), 1u) << o.err;
  EXPECT_EQ(records[0]["reason"], "no kernel of the chosen names for merge_states on cpu");
}

TEST(CliPlugin, TheDeviceFollowsFromTheKernelThatIsNamed) {
  const Scratch scratch;
  // Runs on the cpu on every machine, because the kernel is a cpu kernel.
  const Outcome o = run_attnbench(scratch, {"run", "--case", kCase, "--plugin", plugin("example"), "--kernel",
                                            "example", "--no-time", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_EQ(read_records(scratch.dir() / "out").at(0)["device"], "cpu");
  EXPECT_THAT(o.err, Not(HasSubstr("device auto")));
  if (run_attnbench(scratch, {"run", "--case", kCase, "--device", "cuda", "--dry-run"}).exit_code == 0)
    GTEST_SKIP() << "a GPU works here";
  for (const char* command : {"run", "profile", "selftest"}) {
    std::vector<std::string> args = {command, "--plugin", plugin("gpu"), "--kernel", "mistaken"};
    if (args[0] != "selftest") args.insert(args.end(), {"--case", "{op: merge_states, batch: q5}"});
    const Outcome refused = run_attnbench(scratch, args);
    EXPECT_EQ(refused.exit_code, 2) << command;
    EXPECT_THAT(
        refused.err,
        HasSubstr(
            "error: --kernel mistaken: it needs a GPU, as it declares device cuda (a kernel in Python does unless it says device=\"cpu\"): "))
        << command;
  }
}

TEST(CliPlugin, RunsInWorkersAndInThisProcess) {
  const Scratch scratch;
  const std::string file = scratch.write("three.yaml", kThreeKernels);
  for (const char* mode : {"--verbose", "--in-process", "--workers=2"}) {
    const Outcome o = run_with(scratch, plugin("example"), {file, mode, "--check", "full,invariants"});
    EXPECT_EQ(o.exit_code, 0) << mode << o.err;
    const auto records = read_records(scratch.dir() / "out");
    ASSERT_EQ(records.size(), 3u) << mode;
    for (const json& r : records) {
      EXPECT_EQ(r["status"], "pass") << mode;
      EXPECT_EQ(r["kernel"], "example");
    }
  }
}

TEST(CliPlugin, TheReproLineWorksFromAnotherFolder) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch.dir() / "sub dir");
  std::filesystem::copy(plugin("example"), scratch.dir() / "sub dir" / "it's.so");
  ASSERT_EQ(run_with(scratch, "sub dir/it's.so", {"--case", kCase, "--kernel", "cpu"}).exit_code, 0);
  const auto records = read_records(scratch.dir() / "out");
  ASSERT_EQ(records.size(), 2u);
  EXPECT_THAT(records[0]["repro"].get<std::string>(), Not(HasSubstr("--plugin"))) << "the program's own";
  const std::string line = records[1]["repro"];
  const Scratch elsewhere;
  const std::string rest = line.substr(line.find(' '));
  const std::string shell =
      "cd " + elsewhere.dir().string() + " && " + ATTNBENCH_PROGRAM + rest + " -q --out again";
  EXPECT_EQ(std::system((shell + " > shell.txt 2>&1").c_str()), 0) << shell;
  const auto again = read_records(elsewhere.dir() / "again");
  ASSERT_EQ(again.size(), 1u) << shell;
  EXPECT_EQ(again[0]["kernel"], "example");
  EXPECT_EQ(again[0]["check"]["max_z"], records[1]["check"]["max_z"]);
}

TEST(CliPlugin, TheContextTellsBuildsApart) {
  const Scratch scratch;
  const auto context_of = [&](const std::string& name) {
    run_with(scratch, plugin(name), {"--case", kCase});
    return read_json(scratch.dir() / "out" / "results.json")["context"]["attnbench"]["plugins"];
  };
  const json example = context_of("example"), again = context_of("example"), wrong = context_of("wrong");
  ASSERT_EQ(example.size(), 1u);
  EXPECT_EQ(example[0]["path"], plugin("example"));
  EXPECT_EQ(example[0]["kernels"], json::array({"example"}));
  EXPECT_THAT(example[0]["digest"].get<std::string>(), ContainsRegex("^[0-9a-f]{16}$"));
  EXPECT_EQ(example, again);
  EXPECT_NE(example[0]["digest"], wrong[0]["digest"]);
}

TEST(CliPlugin, AWrongOneIsOneAndACrashIsTheErrorOfItsCase) {
  const Scratch scratch;
  const std::string file = scratch.write("three.yaml", kThreeKernels);
  const Outcome wrong = run_with(scratch, plugin("wrong"), {file});
  EXPECT_EQ(wrong.exit_code, 1) << wrong.out;
  for (const json& r : read_records(scratch.dir() / "out")) EXPECT_EQ(r["status"], "fail");
  EXPECT_EQ(run_with(scratch, plugin("wrong"), {file, "--in-process"}).exit_code, 1);

  EXPECT_EQ(run_with(scratch, plugin("crashes"), {file}).exit_code, 5);
  const auto records = read_records(scratch.dir() / "out");
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0]["status"], "pass");
  EXPECT_EQ(records[1]["status"], "error");
  EXPECT_THAT(records[1]["reason"].get<std::string>(), HasSubstr(kSanitized ? "exit code" : "signal 11"));
  EXPECT_EQ(records[2]["status"], "pass") << "in a new worker, which opened it again";
}

TEST(CliPlugin, IsSelftestedAndProfiled) {
  const Scratch scratch;
  Outcome o =
      run_attnbench(scratch, {"selftest", "--device", "cpu", "--plugin", plugin("example"), "--kernel",
                              "example", "--filter", "^mask/", "--seeds", "1", "-q", "--out", "s"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  const json selftest = read_json(scratch.dir() / "s" / "selftest.json");
  EXPECT_GT(selftest["faults"].size(), 3u);
  EXPECT_EQ(selftest["context"]["attnbench"]["plugins"].size(), 1u);
  const std::vector<std::string> profile = {"profile",  "--case",  kCase,      "--device",       "cpu",
                                            "--kernel", "example", "--plugin", plugin("example")};
  o = run_attnbench(scratch, profile);
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("example on cpu: "));
  auto dry = profile;
  dry.insert(dry.end(), {"--tool", "nsys", "--dry-run"});
  EXPECT_THAT(run_attnbench(scratch, dry).out, HasSubstr("--tool none --plugin " + plugin("example") + "\n"));
}

TEST(CliPlugin, ResumeAndMergeTakeTheSameBuildOnly) {
  const Scratch scratch;
  const std::string file = scratch.write("three.yaml", kThreeKernels);
  const std::string moved = scratch.path("moved.so");
  std::filesystem::copy(plugin("example"), moved);
  const auto run = [&](const std::string& so, std::vector<std::string> more) {
    std::vector<std::string> args = {"run", file,       "--device", "cpu",       "--plugin",
                                     so,    "--kernel", "example",  "--no-time", "-q"};
    args.insert(args.end(), more.begin(), more.end());
    return run_attnbench(scratch, args);
  };
  ASSERT_EQ(run(plugin("example"), {"--out", "r"}).exit_code, 0);
  EXPECT_EQ(run(moved, {"--resume", "r"}).exit_code, 0) << "the same build in another place";
  const Outcome other = run(plugin("slow"), {"--resume", "r"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("the folder holds another run (plug-ins: "));

  ASSERT_EQ(run(plugin("example"), {"--shard", "1/2", "--out", "1"}).exit_code, 0);
  ASSERT_EQ(run(moved, {"--shard", "2/2", "--out", "2"}).exit_code, 0);
  ASSERT_EQ(run(plugin("slow"), {"--shard", "2/2", "--out", "3"}).exit_code, 0);
  EXPECT_EQ(run_attnbench(scratch, {"merge", "1", "2", "-o", "all.json"}).exit_code, 0);
  const Outcome mixed = run_attnbench(scratch, {"merge", "1", "3", "-o", "all.json"});
  EXPECT_EQ(mixed.exit_code, 2);
  EXPECT_THAT(mixed.err, HasSubstr("list of plug-ins (digests)"));
  // Two builds may be compared.
  EXPECT_THAT(run_attnbench(scratch, {"compare", "2", "3"}).err, Not(HasSubstr("mismatch")));
}

TEST(CliPlugin, AWorkerTakesNoOtherBuild) {
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"run", "--worker", "--plugin", plugin("example"),
                                            "--plugin-digest", "0123", "--worker-opens", "0"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("built anew while the run went on"));
}

TEST(CliPlugin, TheGateComparesTwoBuilds) {
  const Scratch scratch;
  const std::string file = scratch.write("three.yaml", kThreeKernels);
  const auto gate = [&](const std::string& fresh, std::vector<std::string> more) {
    std::vector<std::string> args = {"gate",  file, "--device", "cpu",        "--no-time",
                                     "--out", "g",  "--plugin", plugin(fresh)};
    args.insert(args.end(), more.begin(), more.end());
    return run_attnbench(scratch, args);
  };
  Outcome o = gate("example", {"--against-plugin", plugin("crashes")});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("\n2 right on both sides, 1 not compared\n")) << "their kernels alone";
  EXPECT_THAT(
      o.out,
      AllOf(
          HasSubstr(
              "gate: 'attnbench run' for the base side (turn 1 of 4: all cases; the turns are base, new, new, base) "
              "failed with exit code 5; it printed:\n"),
          ContainsRegex("\ngate: to repeat what failed: .* run .*three.yaml .* --plugin ")));
  o = gate("example", {"--against-plugin", plugin("crashes"), "-q"});
  EXPECT_THAT(o.out, AllOf(HasSubstr("not compared"),
                           HasSubstr(kSanitized ? "BASE: error: the worker process ended with exit code"
                                                : "BASE: error: the worker process was killed"),
                           Not(HasSubstr("it printed"))));
  EXPECT_EQ(gate("wrong", {"--against-plugin", plugin("example")}).exit_code, 1);
  EXPECT_EQ(gate("crashes", {"--against-plugin", plugin("example")}).exit_code, 5);
  EXPECT_EQ(gate("example", {"--against", ATTNBENCH_PROGRAM, "--kernel", "example"}).exit_code, 0);
  EXPECT_EQ(gate("wrong", {"--kernel", "example", "--against-kernel", "cpu"}).exit_code, 1);
  o = gate("example", {"--against-plugin", plugin("example")});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.err, HasSubstr("note: --plugin and --against-plugin have the same content"));
  o = gate("example", {"--against-plugin", plugin("example"), "--plugin", plugin("example")});
  EXPECT_EQ(o.exit_code, 2);
  o = gate("example", {"--against-plugin", plugin("old_abi")});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("--against-plugin " + plugin("old_abi") + ": it was compiled for kernel ABI"));
  o = gate("example", {"--against-plugin", plugin("gpu")});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(
      o.err,
      HasSubstr("no kernel of --plugin (example) has the name of one of --against-plugin (mistaken): give "
                "both files by --plugin, and --kernel example --against-kernel mistaken\n"));
}

struct Mistake {
  std::string file;
  int exit_code;
  std::string says;
};

TEST(CliPlugin, TheGateJudgesNoBuiltInKernelBesideIt) {
  const Scratch scratch;
  const std::string baseline = scratch.path("b.json");
  const Outcome o =
      run_attnbench(scratch, {"gate", "--case", kCase, "--device", "cpu", "--plugin", plugin("example"),
                              "--no-time", "--baseline", baseline, "--update-baseline", "--out", "g"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.err, HasSubstr("kernels of plug-ins and of the baseline run: example\n"));
  const json runs = read_json(baseline)["benchmarks"];
  ASSERT_FALSE(runs.empty());
  for (const json& run : runs) EXPECT_THAT(run["name"].get<std::string>(), HasSubstr("/example"));
}

TEST(CliPlugin, EachMistakeIsOneSentenceWithItsMend) {
  const Scratch scratch;
  const std::string whole = read_text(plugin("example"));
  const Mistake mistakes[] = {
      {"nowhere.so", 2, "there is no such file"},
      {".", 2, "this is a folder; a plug-in's file is required"},
      {scratch.write("text.so", "hello"), 2, "it is text; a shared library is required"},
      {scratch.write("empty.so", ""), 2, "it is empty: "},
      {scratch.write("cut.so", whole.substr(0, whole.size() / 4)), 2, "it is cut off: it has "},
      {ATTNBENCH_PROGRAM, 2, "; a shared library is required, made by g++ or nvcc with -fPIC and -shared"},
      {plugin("undefined_symbol"), 2,
       "undefined symbol: a_function_of_nobody; add the source or the library"},
      {plugin("no_table"), 2,
       "it exports no attnbench_plugin; one of its sources must say ATTNBENCH_PLUGIN("},
      {plugin("not_ours"), 2, "its attnbench_plugin is no table of kernels"},
      {plugin("old_abi"), 2,
       "it was compiled for kernel ABI " + std::to_string(kKernelAbiVersion - 1) + ", and this program has " +
           std::to_string(kKernelAbiVersion) + "; compile it again with -I"},
      {plugin("other_headers"), 2, "its AttentionParams has "},
      {plugin("no_launch"), 2, "kernel 1 (mistaken) of its table lacks launch"},
      {plugin("bad_name"), 2, "kernel 1 (Mine-2) of its table has a name that is not snake_case"},
      {plugin("ends_at_load"), 5,  // tsan has its own code for an exit inside dlopen
       kSanitized ? "ended the process with exit code " : "ended the process with exit code 3\n"},
      {plugin("crashes_at_load"), 5,
       kSanitized ? "ended the process " : "ended the process by signal 11 (Segmentation fault)"},
  };
  for (const Mistake& m : mistakes) {
    const Outcome o = run_attnbench(scratch, {"run", "--case", kCase, "--plugin", m.file, "--out", "out"});
    EXPECT_EQ(o.exit_code, m.exit_code) << m.file << o.err;
    EXPECT_THAT(o.err,
                AllOf(HasSubstr("attnbench run: error: --plugin " + m.file + ": "), HasSubstr(m.says)));
    if (!kSanitized || m.exit_code == 2) {  // else the report of the sanitizer comes first
      EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
    }
    EXPECT_FALSE(std::filesystem::exists(scratch.dir() / "out")) << m.file;
  }
}

TEST(CliPlugin, NamesThatAreTakenAreRefused) {
  const Scratch scratch;
  const std::string example = plugin("example");
  Outcome o = run_attnbench(scratch, {"kernels", "--plugin", example, "--plugin", plugin("slow")});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("--plugin " + plugin("slow") + ": " + example +
                               " has a kernel example for attention on cpu already"));
  o = run_faulty(scratch, {"kernels", "--plugin", example});  // it has the example built in
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr(example + ": this program has a kernel example for attention on cpu already"));
  EXPECT_EQ(run_attnbench(scratch, {"kernels", "--plugin"}).exit_code, 2);
}

TEST(CliPlugin, TheLinesOfTheReadmeMakeOne) {
  const Scratch scratch;
  const std::string readme = read_text(source_path("README.md"));
  // The README's commands from writing the start to compiling it.
  const std::size_t begin = readme.find("attnbench new-kernel mine.cpp");
  const std::size_t compile = readme.find("\ng++ ", begin);
  ASSERT_NE(compile, std::string::npos);
  std::string lines = readme.substr(begin, readme.find('\n', compile + 1) - begin);
  const auto replace = [&](const std::string& what, const std::string& by) {
    const std::size_t at = lines.find(what);
    ASSERT_NE(at, std::string::npos) << what;
    lines.replace(at, what.size(), by);
  };
  replace("$(attnbench ", "$(" ATTNBENCH_PROGRAM " ");
  replace("attnbench ", ATTNBENCH_PROGRAM " ");
  replace("g++ ", ATTNBENCH_CXX " ");
  const std::string shell = "set -e; cd " + scratch.dir().string() + "\n" + lines + "\n";
  ASSERT_EQ(std::system(shell.c_str()), 0) << shell;
  const Outcome o = run_attnbench(scratch, {"run", "--case", kCase, "--device", "cpu", "--plugin",
                                            "./mine.so", "--kernel", "mine", "--no-time", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << o.err;

  // The mistake that the README shows must give the message that the README shows.
  const std::size_t cut = readme.find("(all 60 wrong rows", readme.find("\n  O of seq "));
  ASSERT_NE(cut, std::string::npos);
  const std::size_t said = readme.rfind("\n  O of seq ", cut) + 1;
  const std::size_t option = readme.find("run --case '") + 12;
  const std::string mistake =
      "set -e; cd " + scratch.dir().string() +
      "\nsed -i 's,head / (p.num_heads_q / p.num_heads_kv),head % p.num_heads_kv,' mine.cpp\n" +
      lines.substr(lines.rfind('\n') + 1) + "\n";
  ASSERT_EQ(std::system(mistake.c_str()), 0) << mistake;
  const Outcome wrong = run_attnbench(
      scratch, {"run", "--case", readme.substr(option, readme.find('\'', option) - option), "--device", "cpu",
                "--plugin", "./mine.so", "--kernel", "mine", "--no-time", "--out", "wrong"});
  EXPECT_EQ(wrong.exit_code, 1) << wrong.err;
  // The last digits of the expected value depend on the compiler and its options.
  const std::regex expected("(expected [0-9.]{8})[0-9]*");
  EXPECT_THAT(
      std::regex_replace(wrong.out, expected, "$1"),
      HasSubstr(std::regex_replace(readme.substr(said, readme.find('\n', cut) - said), expected, "$1")));
}

TEST(CliPlugin, TheWrapperOfTheReadmeCompiles) {
  const Scratch scratch;
  const std::string readme = read_text(source_path("kernels/README.md"));
  const std::size_t begin = readme.find("```cpp\n") + 7;
  const std::string code = readme.substr(begin, readme.find("```", begin) - begin);
  ASSERT_THAT(code, HasSubstr("lib::varlen_forward"));
  const std::string file =
      scratch.write("wrapper.cpp",
                    "#include \"kernels/common/checks.h\"\n"
                    "#include \"kernels/contract/plugin.h\"\n"
                    "using cudaStream_t = struct CUstream_st*;\n"
                    "namespace lib { template <class... Args> int varlen_forward(Args...); }\n"
                    "namespace attnbench::mine {\nextern const Kernel kAttention;\n" +
                        code + "}\n");
  const std::string shell = std::string(ATTNBENCH_CXX) +
                            " -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I " + source_path("") + " " +
                            file;
  EXPECT_EQ(std::system(shell.c_str()), 0) << shell;
}

}  // namespace
}  // namespace attnbench::testing
