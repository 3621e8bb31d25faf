// Options, batch specs and results files with one mistake each: exit code 2 and a sentence that names the
// mistake. Sweep files with one mistake each are in cli_bad_config_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using ::testing::HasSubstr;

struct BadInput {
  const char* name;
  std::vector<const char*> args;
  const char* says;
  const char* file = nullptr;  ///< content of the "in.json", "in.jsonl" or "in.yaml" in the arguments
};

void PrintTo(const BadInput& bad, std::ostream* out) { *out << bad.name; }

/// A million nested lists.
const std::string kDeep = std::string(1000000, '[') + std::string(1000000, ']');
const char* const kDeepList = kDeep.c_str();

const char* const kEndsSource = ATTNBENCH_SOURCE_DIR "/tests/plugins/ends.cpp";

const BadInput kBadInputs[] = {
    // The command line.
    {"NoCommand", {}, "no command given; there are run, init, new-kernel, list"},
    {"UnknownCommand", {"rum"}, "did you mean 'run'"},
    {"NothingToRun", {"run"}, "nothing to run"},
    {"UnknownOption",
     {"run", "--case", "{batch: q4}", "--kernels"},
     "unknown option '--kernels'; did you mean '--kernel'?"},
    {"UnknownLetter",
     {"compare", "-o", "x"},
     "unknown option '-o'; it prints to stdout: > FILE; 'attnbench compare"},
    {"OutOfACommandThatWritesAFile", {"init", "x.yaml", "-o", "d"}, "unknown option '-o'; attnbench run"},
    {"OptionOfOtherCommands",
     {"compare", "--reruns", "3"},
     "unknown option '--reruns'; attnbench gate has it; 'attnbench"},
    {"UnknownOptionOfAll", {"--cpu"}, "attnbench: error: unknown option '--cpu'; 'attnbench --help'"},
    {"UnknownOptionWithAValue",
     {"merge", "a", "--output", "b", "--alow-gaps=1"},
     "did you mean '--allow-gaps'?"},
    {"ArgumentThatNothingTakes", {"kernels", "cpu"}, "attnbench kernels: error: unexpected argument 'cpu'"},
    {"NoSuchFile", {"run", "nowhere.yaml"}, "nowhere.yaml: error: cannot read"},
    {"AFolder", {"run", "."}, "this is a folder; a sweep file is required"},
    {"ADeviceThatNeverEnds",
     {"list", "/dev/zero"},
     "/dev/zero: error: this is a device; a sweep file is required"},
    {"UnknownDevice",
     {"run", "--case", "{batch: q4}", "--device", "gpu"},
     "--device gpu: there is no such device; it is auto (a GPU where one works), cpu, cuda, cuda:N (such as "
     "cuda:1), or in run all"},
    {"UnknownDeviceOfADryRun",
     {"run", "--case", "{batch: q4}", "--device", "gpu", "--dry-run"},
     "--device gpu: there is no such device; it is auto"},
    {"AKernelBesideTheOneOfACase",
     {"run", "quickstart", "--case", "attention/packed/bf16/h32-8/d128/causal/q1_q2_q3_q4/mine", "--kernel",
      "cpu"},
     "--case names the kernel mine, --kernel names cpu: drop one of them"},
    {"ProfileOnTheCpuWithNcu",
     {"profile", "--case", "{batch: q4}", "--device", "cpu", "--tool", "ncu", "--dry-run"},
     "--tool ncu profiles GPUs, and the device is cpu"},
    {"CompareOfOneFile",
     {"compare", "in.json"},
     "compare needs two results, BASE and NEW, and one is given: attnbench compare BASE in.json",
     R"({"benchmarks": []})"},
    {"NoSuchGpu", {"run", "--case", "{batch: q4}", "--device", "cuda:999"}, "--device cpu needs no GPU"},
    {"PerfIsNoTool", {"profile", "--case", "{batch: q4}", "--tool", "perf"}, "perf goes round this command"},
    {"SourceIsNoPlugin",
     {"run", "--case", "{batch: q4}", "--plugin", kEndsSource},
     "it is source code: compile it"},
    {"UnknownKernel", {"run", "--case", "{batch: q4}", "--kernel", "cpuu"}, "did you mean 'cpu'"},
    {"UnknownKernelInAList", {"run", "--case", "{batch: q4}", "--kernel", "cpu,cpuu"}, "did you mean 'cpu'"},
    {"UnknownFormat", {"run", "--case", "{batch: q4}", "--format", "xml"}, "unknown format 'xml'"},
    {"UnknownCheck", {"run", "--case", "{batch: q4}", "--check", "fulll"}, "--check"},
    {"NegativeThreads", {"run", "--case", "{batch: q4}", "--threads", "-1"}, "--threads"},
    {"WordForThreads", {"run", "--case", "{batch: q4}", "--threads", "all"}, "--threads"},
    {"TimeoutOfZero", {"run", "--case", "{batch: q4}", "--timeout", "0"}, "--timeout"},
    {"RepeatsOfNothing",
     {"run", "--case", "{batch: q4}", "--device", "cpu", "--repeats", "5"},
     "add --check sampled,invariants"},
    {"WorkersWithTimes",
     {"run", "--case", "{batch: q4}", "--device", "cpu", "--workers", "2"},
     "--workers disturbs times"},
    {"GraphOnTheCpu",
     {"run", "--case", "{batch: q4}", "--device", "cpu", "--graph"},
     "the cpu device has none"},
    {"ColdCodeOnTheCpu",
     {"run", "--case", "{batch: q4}", "--device", "cpu", "--cache", "cold_data"},
     "on the cpu, take --cache cold"},
    {"ShardPastTheEnd", {"run", "--case", "{batch: q4}", "--shard", "3/2"}, "give I/N"},
    {"ResumeNowhere", {"run", "--case", "{batch: q4}", "--resume", "nowhere"}, "there is no such folder"},
    {"ResumeWithoutItsConfig", {"run", "--resume", "."}, "give the run's CONFIG and options again"},
    {"ResumeAndOut", {"run", "--case", "{batch: q4}", "--resume", ".", "--out", "x"}, "drop --out"},
    {"FilterIsNoExpression",
     {"run", "--case", "{batch: q4}", "--filter", "("},
     "not a regular expression: missing )"},
    {"FilterLooksAhead",
     {"list", "--case", "{batch: q4}", "--filter", "(?!paged)q4"},
     "invalid perl operator: (?!; the syntax is RE2's (github.com/google/re2/wiki/Syntax), which has no "
     "lookahead"},
    {"FaultsByBackReference", {"selftest", "--device", "cpu", "--filter", "(a)\\1"}, "escape sequence: \\1;"},
    {"EffectOfNestedRepeats",
     {"compare", "in.json", "in.json", "--min-effect-of", "((x{1,100}){1,100}){1,100}=5"},
     "--min-effect-of '((x{1,100}){1,100}){1,100}' is not a regular expression: invalid repetition size",
     R"({"benchmarks": [{"name": "a", "real_time": 1}]})"},
    {"SetWithoutAValue", {"run", "--case", "{batch: q4}", "--set", "dtype"}, "--set"},
    {"SetOfAnUnknownKey", {"run", "--case", "{batch: q4}", "--set", "dtipe=fp16"}, "did you mean 'dtype'"},
    {"SeedIsAWord", {"run", "--case", "{batch: q4}", "--seed", "lucky"}, "given 'lucky'"},
    {"SeedIsNegative", {"run", "--case", "{batch: q4}", "--seed", "-1"}, "given '-1'"},
    {"SeedIsTooLarge",
     {"run", "--case", "{batch: q4}", "--seed", "18446744073709551616"},
     "a whole number from 0"},
    {"CaseWithoutItsFile", {"run", "--case", "attention/packed"}, "this is an id, which needs the CONFIG"},
    {"CaseWithoutABatch", {"run", "--case", "{kv: paged}"}, "key 'batch' is missing"},
    {"SweepWithoutABatch",
     {"list", "in.yaml"},
     "in.yaml:4:5: error: key 'batch' is missing in sweep 'b'",
     "name: x\nsweeps:\n  - {name: a, batch: q4}\n  - {name: b, kv: paged}\n"},
    {"CaseWithoutBraces",
     {"run", "--case", "batch: q4"},
     "a case of its own is in braces: --case '{batch: q4}'"},
    {"CausalIsAMask", {"run", "--case", "{batch: q4, causal: true}"}, "did you mean 'mask: causal'?"},
    {"KernelOfAFile", {"run", "--case", "{batch: q4}", "--kernel", "mine"}, "--plugin FILE adds"},
    {"OutIsEmpty", {"run", "--case", "{batch: q4}", "--out", ""}, "--out: a name is required, given ''"},
    {"ResumeIsEmpty", {"run", "--case", "{batch: q4}", "--resume", ""}, "--resume: a name is required"},
    {"BaselineIsEmpty",
     {"gate", "--case", "{batch: q4}", "--baseline", ""},
     "--baseline: a name is required"},
    {"TimeoutIsNotANumber",
     {"run", "--case", "{batch: q4}", "--timeout", "nan"},
     "--timeout: a number from 0.001 to 1e+06 is required, given 'nan'"},
    {"MinTimeIsNotANumber",
     {"run", "--case", "{batch: q4}", "--min-time", "nan"},
     "--min-time: a number from 0 to 3600 is required"},
    {"MinEffectIsNotANumber",
     {"compare", "in.json", "in.json", "--min-effect", "nan"},
     "--min-effect: a number from 0.01 to 99 is required",
     "{}"},
    {"YamlNestedDeeply", {"list", "in.yaml"}, "YAML syntax: nested too deeply", kDeepList},
    {"OutIsNoFolder",
     {"run", "--case", "{batch: q4}", "--device", "cpu", "--out", "/dev/null"},
     "/dev/null: error: cannot make the folder: Not a directory; name a place where you may write"},
    {"PlotsIntoOneFile",
     {"report", "in.json", "--format", "svg", "-o", "plots.svg"},
     "name a folder",
     "{\"benchmarks\": []}"},
    {"MinTimePastAnHour", {"run", "--case", "{batch: q4}", "--min-time", "9999"}, "--min-time"},
    {"UnknownCache", {"run", "--case", "{batch: q4}", "--cache", "warm"}, "--cache"},
    // Batch specs.
    {"BatchEmpty", {"list", "--case", "{batch: \"\"}"}, "--case"},
    {"BatchEndsInASeparator", {"list", "--case", "{batch: q4_}"}, "batch spec 'q4_'"},
    {"BatchCountTooLarge", {"list", "--case", "{batch: 99999999999999999999q1}"}, "asks for too much"},
    {"BatchLengthTooLarge", {"list", "--case", "{batch: q1s99999999999m}"}, "asks for too much"},
    {"BatchTwoTotals", {"list", "--case", "{batch: q1s2s3}"}, "batch spec 'q1s2s3'"},
    {"BatchNegative", {"list", "--case", "{batch: q-4}"}, "batch spec 'q-4'"},
    {"BatchFraction", {"list", "--case", "{batch: q1.5}"}, "batch spec 'q1.5'"},
    {"BatchFullWidthDigits", {"list", "--case", "{batch: q\xef\xbc\x94}"}, "batch spec"},
    // Sizes.
    {"AFolderInPlaceOfATrace",
     {"trace", "."},
     ".: error: this is a folder; a file of requests is required (attnbench trace --help)"},
    {"MoreThanAMillionCases",
     {"list", "in.yaml"},
     "past 1000000 cases",
     "name: x\ndefaults: {batch: q4}\nsweeps:\n"
     "  - {gap_tokens: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], head_dim: [8, 16, 24, 32, 40, 48, 56, 64, 72, 80],\n"
     "     heads: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], softcap: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9],\n"
     "     softmax_scale: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], dtype: [bf16, fp16, fp32],\n"
     "     window: [\"1,0\", \"2,0\", \"3,0\", \"4,0\", \"5,0\", \"6,0\", \"7,0\"]}\n"},
    {"MoreSequencesThanMemory",
     {"list", "in.yaml"},
     "past 100000000 sequences in all",
     "name: x\nsweeps:\n"
     "  - {batch: 60000q1, gap_tokens: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], heads: [1, 2, 3, 4, 5, 6, 7, 8, 9, "
     "10],\n"
     "     head_dim: [8, 16, 24, 32, 40, 48, 56, 64, 72, 80], softcap: [0, 1]}\n"},
    // Results.
    {"CompareNothing",
     {"compare", "nowhere.json", "nowhere.json"},
     "; give a results.json, or the folder of a run"},
    {"CompareAnEmptyFolder", {"compare", ".", "."}, "holds neither results.json nor journal.jsonl"},
    {"ResultsEmpty", {"compare", "in.json", "in.json"}, "the file is empty", " \n"},
    {"ResultsNestedDeeply", {"compare", "in.json", "in.json"}, "nested more than 64 deep", kDeepList},
    {"MergeNestedDeeply", {"merge", "in.json", "-o", "out.json"}, "nested more than 64 deep", kDeepList},
    {"ReportOfADeviceThatNeverEnds",
     {"report", "/dev/zero", "--format", "svg", "-o", "out.json"},
     "/dev/zero: error: this is a device; a file of results is required"},
    {"MergeOfADeviceThatNeverEnds",
     {"merge", "/dev/zero", "-o", "out.json"},
     "/dev/zero: error: this is a device; a file of results is required"},
    {"ReportOverItsInput",
     {"report", "in.json", "--format", "svg", "-o", "./in.json"},
     "-o ./in.json: that is one of the results that are read",
     "{}"},
    {"MergeOverItsInput", {"merge", "in.json", "-o", "./in.json"}, "that is one of the results", "{}"},
    {"MergeOfNoFile", {"merge", "nowhere", "-o", "out.json"}, "nowhere: error: cannot be read: No such file"},
    {"ResultsCutShort", {"compare", "in.json", "in.json"}, "not JSON", "{\"benchmarks\": ["},
    {"ResultsAreAList", {"compare", "in.json", "in.json"}, "no list 'benchmarks'", "[]"},
    {"BenchmarksAreAWord",
     {"compare", "in.json", "in.json"},
     "no list 'benchmarks'",
     R"({"benchmarks": "x"})"},
    {"EntryIsANumber",
     {"compare", "in.json", "in.json"},
     "benchmarks[0]: not an object",
     R"({"benchmarks": [1]})"},
    {"NumberPastDoubles", {"compare", "in.json", "in.json"}, "not JSON", R"({"benchmarks": [1e999]})"},
    {"StatusUnknown",
     {"compare", "in.json", "in.json"},
     "status 'great' is not one of",
     R"({"benchmarks": [{"name": "a", "attnbench": {"id": "a", "status": "great"}}]})"},
    {"IdMissing",
     {"compare", "in.json", "in.json"},
     "'attnbench.id' is missing",
     R"({"benchmarks": [{"name": "a", "attnbench": {"status": "pass"}}]})"},
    {"MedianIsAWord",
     {"compare", "in.json", "in.json"},
     "'median_us' is not a number",
     R"({"benchmarks": [{"name": "a", "attnbench": {"id": "a", "status": "pass", "time": {"median_us": "1"}}}]})"},
    {"SamplesAreANumber",
     {"compare", "in.json", "in.json"},
     "'samples_us' is not a list",
     R"({"benchmarks": [{"name": "a", "attnbench": {"id": "a", "status": "pass", "time": {"samples_us": 1}}}]})"},
    {"UnitUnknown",
     {"compare", "in.json", "in.json"},
     "time_unit 'h'",
     R"({"benchmarks": [{"name": "a", "real_time": 1, "time_unit": "h"}]})"},
    {"OnlyAggregates",
     {"compare", "in.json", "in.json"},
     "holds only aggregates",
     R"({"benchmarks": [{"name": "a", "run_type": "aggregate", "real_time": 1}]})"},
    {"JournalBrokenInTheMiddle",
     {"compare", "in.jsonl", "in.jsonl"},
     "in.jsonl:1: error: not JSON, and not the last line either",
     "{\"name\":\n{}\n"},
    {"ContextsWithoutSensitivity", {"selftest", "--contexts", "512"}, "--contexts requires --sensitivity"},
    {"SelftestIntoAFolderThatTakesNothing",
     {"selftest", "--device", "cpu", "--out", "/proc"},
     "/proc/selftest.json: error: cannot write"},
    {"BaselineIntoAFolderThatTakesNothing",
     {"gate", "--case", "{batch: q4}", "--device", "cpu", "--no-time", "--baseline", "/proc/b.json",
      "--update-baseline"},
     "/proc/b.json: error: cannot write"},
    {"NoiseIntoAFolderThatTakesNothing",
     {"gate", "--case", "{batch: q4}", "--device", "cpu", "--noise", "/proc/n.json", "--calibrate"},
     "/proc/n.json: error: cannot write"},
    {"SelftestIntoNoFolder",
     {"selftest", "--device", "cpu", "--out", "/dev/null"},
     "/dev/null: error: cannot make the folder"},
    {"MergeWithoutOutput", {"merge", "in.json"}, "--out is required", "{}"},
    {"MergeOfNoResults", {"merge", "in.json", "-o", "out.json"}, "'context' is missing", "{}"},
    {"MergeOfGoogleBenchmark",
     {"merge", "in.json", "-o", "out.json"},
     "'attnbench' is missing: not the results of an attnbench run",
     R"({"context": {}, "benchmarks": [{"name": "a", "real_time": 1}]})"},
    {"MergeOfAnOldFile",
     {"merge", "in.json", "-o", "out.json"},
     "'plan' is missing",
     R"({"context": {"attnbench": {"device": {}}}, "benchmarks": []})"},
    {"MergeWithAWordForASize",
     {"merge", "in.json", "-o", "out.json"},
     "'size' is of a wrong type",
     R"({"context": {"attnbench": {"plan": {"digest": "0", "size": "1"}}}, "benchmarks": []})"},
    {"MergeIntoAFolder",
     {"merge", "in.json", "-o", "."},
     "'device' is missing",
     R"({"context": {"attnbench": {"plan": {"digest": "0", "size": 0, "shard": 1, "shards": 1}}}, "benchmarks": []})"},
};

class CliBadInput : public ::testing::TestWithParam<BadInput> {};

TEST_P(CliBadInput, IsExitCodeTwoAndASentence) {
  const BadInput& bad = GetParam();
  const Scratch scratch;
  std::vector<std::string> args(bad.args.begin(), bad.args.end());
  for (const char* name : {"in.json", "in.jsonl", "in.yaml"}) {
    if (bad.file != nullptr && std::find(args.begin(), args.end(), name) != args.end()) {
      scratch.write(name, bad.file);
    }
  }
  const Outcome o = run_attnbench(scratch, args);
  EXPECT_EQ(o.exit_code, 2) << o.out << o.err;
  EXPECT_THAT(o.err, HasSubstr(bad.says));
  EXPECT_FALSE(std::filesystem::exists(scratch.path("out.json"))) << "nothing may be written";
  EXPECT_FALSE(std::filesystem::exists(scratch.path("results"))) << "nothing may be written";
}

INSTANTIATE_TEST_SUITE_P(, CliBadInput, ::testing::ValuesIn(kBadInputs),
                         [](const auto& p) { return std::string(p.param.name); });

static_assert(std::size(kBadInputs) >= 50);

}  // namespace
}  // namespace attnbench::testing
