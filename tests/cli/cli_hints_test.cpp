// Stops of a first-time author: what people write who know other programs, slips, and right things in wrong
// places. Each error names the mend. To add one, add a line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "tests/cli/pins.h"
#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

struct Hint {
  const char* line;  ///< two blanks stand between words
  const char* says;
};

void PrintTo(const Hint& hint, std::ostream* out) { *out << hint.line; }

const Hint kHints[] = {
    // Keys.
    {"list  --case  {batch: {q: 1, k: 4k, count: 8}}", "unknown key 'k' in 'batch'; did you mean 's'?"},
    {"list  --case  {batch: {seqlen_q: 1, s: 4k}}", "did you mean 'q'?"},
    {"list  --case  {batch: {q: 1, context_len: 4k}}", "did you mean 'context'?"},
    {"list  --case  {batch: {q: 1, s: 4k, batch_size: 8}}", "did you mean 'count'?"},
    {"list  --case  {batch: q4, num_kv_heads: 8}", "did you mean 'heads: 32/8'?"},
    {"list  --case  {batch: q4, num_attention_heads: 32}", "did you mean 'heads: 32/8'?"},
    {"list  --case  {batch: q4, page_size: 16}", "did you mean 'block_size'?"},
    {"list  --case  {seqlen: 512}", "did you mean 'batch: 8q1s4k'?"},
    {"list  --case  {batch: q4, sliding_window: 255}", "did you mean 'window: \"4095,0\"'?"},
    {"list  --case  {batch: q4, mask: top_left}", "did you mean 'causal_top_left'?"},
    {"list  --case  {batch: q4, block_size: 16,64}",
     "a value is written block_size: 16, a list block_size: [16, 64]"},
    {"list  --case  {batch: q4}  --set  head_size=64", "did you mean 'head_dim'?"},
    {"list  --case  {batch: q4}  --set  block_size=16,sixty", "key 'block_size': got 'sixty'"},
    {"list  --case  {batch: q4}  --set  dtype=fp16,fp23", "unknown value 'fp23'; did you mean 'fp32'?"},
    {"list  --case  {batch: q4, block_size: '16,64'}", "got the string '16,64'"},
    // Options.
    {"run  quickstart  --warmup  10", "unknown option '--warmup'; each case is launched before it is timed"},
    {"run  quickstart  --warmup=10", "each case is launched before it is timed"},
    {"run  quickstart  --iters  100", "--min-time S and --max-samples N bound that"},
    {"run  quickstart  --repeat  5", "--min-time S and --max-samples N bound that"},
    {"run  quickstart  -n  5", "--min-time S and --max-samples N bound that"},
    {"kernels  --repeat  5", "attnbench run and gate have --max-samples"},
    {"run  quickstart  --dtype  fp16",
     "'dtype' is a key of a case: --set dtype=VALUE, or --case '{batch: 8q1s4k, dtype"},
    {"run  quickstart  --num-kv-heads  8", "'heads' is a key of a case"},
    {"run  quickstart  --seqlen  512",
     "'batch' is a key of a case: --set batch=VALUE, or --case '{batch: 8q1s4k}'"},
    {"run  quickstart  --causal", "'mask' is a key of a case"},
    {"run  quickstart  --model  llama-3.1-8b", "--case '{model: llama-3.1-8b, batch: 8q1s4k}'"},
    {"run  quickstart  --seeds  3", "did you mean '--seed'?"},
    {"run  quickstart  --csv", "--format json,csv,md,junit chooses reports"},
    {"list  quickstart  --csv", "; attnbench run, compare, gate, report, show and selftest have --format"},
    {"report  x  --csv", "and --resume DIR --format csv,md,junit, writes those"},
    {"selftest  --md", "--format chooses the reports"},
    {"run  quickstart  --output-dir  x", "--out PATH does that"},
    {"list  quickstart  --output  x", "it prints to stdout: > FILE"},
    {"run  quickstart  --gpu  1", "--device cpu, cuda or cuda:1 does that"},
    {"run  quickstart  --rtol  1e-3", "tolerances follow from the arithmetic that a kernel declares"},
    {"run  quickstart  -k  paged", "--filter REGEX chooses cases"},
    {"run  --config  mine.yaml", "CONFIG needs no option"},
    {"run  quickstart  --version", "attnbench --version prints it"},
    {"compare  --gpu  1", "attnbench run, list, kernels, gate, profile, selftest and fuzz have --device"},
    {"export  --case  {batch: q4}  --output  x.safetensors", "--out PATH does that"},
    {"compare  --no-time", "unknown option '--no-time'; attnbench run and gate have it"},
    {"report  base.json  -o  x.csv",
     "the page is HTML; attnbench run, with the command of the run and --resume DIR"},
    {"report  base.json  -o  x.svg", "the page is HTML; --format svg -o FOLDER writes plots"},
    {"report  base.json  --format  csv", "--resume DIR --format csv,md,junit, writes those without running"},
    {"fuzz  --iterations  5", "--cases N does that"},
    // Commands and cases.
    {"quickstart", "a file stands behind one: attnbench run quickstart;"},
    {"model.yaml", "a file stands behind one: attnbench run model.yaml;"},
    {"bench  quickstart", "unknown command 'bench'; did you mean 'run'?"},
    {"diff  base.json  base.json", "did you mean 'compare'?"},
    {"run  --case  8q1s4k", "a mapping in braces: --case '{batch: 8q1s4k}'"},
    {"run  quickstart  --case  8q1s4k", "a case of its own: --case '{batch: 8q1s4k}'"},
    {"run  8q1s4k", "8q1s4k: a batch is no file: give it as --case '{batch: 8q1s4k}'"},
    {"run  --case  {batch:  q4}", "q4}: a mapping is one word, in quotes: --case '{batch: q4}'"},
    {"run  --case  {8q1s4k}", "a value is written block_size: 16"},
    {"kernels  old.so", "unexpected argument 'old.so'; this is a plug-in; give it as --plugin old.so"},
    // Files that are not there. The folder holds model.yaml, base.json, old.so and sub/other.yaml.
    {"list  modle.yaml", "modle.yaml: error: cannot read: No such file here; did you mean 'model.yaml'?"},
    {"list  modle", "did you mean 'model.yaml'?"},
    {"list  ./modle.yaml", "did you mean './model.yaml'?"},
    {"list  model.yml", "did you mean 'model.yaml'?"},
    {"list  configs/model.yaml", "did you mean 'model.yaml'?"},
    {"list  other.yaml", "did you mean 'sub/other.yaml'?"},
    {"list  sub/othr.yaml", "did you mean 'sub/other.yaml'?"},
    {"list  configs/smok.yaml", "the sweep that comes with attnbench has the name 'smoke'"},
    {"compare  bsae.json  base.json", "that holds one; did you mean 'base.json'?"},
    {"gate  quickstart  --baseline  bsae.json", "--update-baseline makes one; did you mean 'base.json'?"},
    {"run  quickstart  --plugin  ./odl.so",
     "--plugin ./odl.so: there is no such file; did you mean './old.so'?"},
    {"run  quickstart  --plugin  old", "did you mean 'old.so'?"},
    {"run  quickstart  --plugin  ./model.so", "did you mean './model.yaml'?"},
    {"trace  bsae.json", "did you mean 'base.json'?"},
    {"check  tenors.safetensors  x.npy", "did you mean 'tensors.safetensors'?"},
    {"run  tenors.safetensors", "did you mean 'tensors.safetensors'?"},
    // Files in a place that takes others.
    {"gate  quickstart  --against  ./old.so", "this is a plug-in; give it as --against-plugin ./old.so"},
    {"gate  quickstart  --against  old.py", "give it as --against-plugin old.py"},
    {"gate  quickstart  --against  base.json", "give it as --baseline base.json"},
    {"gate  quickstart  --against  runs", "give it as --baseline runs"},
    {"gate  quickstart  --against  ./nowhere",
     "--against ./nowhere: No such file or directory; a build of attnbench"},
    {"gate  quickstart  --against-plugin  base.json", "give it as --baseline base.json"},
    {"gate  quickstart  --against-plugin  ./program", "this is a program; --against ./program compares"},
    {"gate  quickstart  --baseline  old.so", "give it as --against-plugin old.so"},
    {"gate  quickstart  --baseline  model.yaml",
     "this is a sweep; give it without an option: attnbench gate model.yaml"},
    {"gate  quickstart  --baseline  ./program", "--against ./program compares"},
    {"gate  quickstart  --kernel  a  --against-kernel  ./old.so", "give it as --against-plugin ./old.so"},
    {"gate  base.json  --baseline  base.json", "base.json: this is a file or folder of results"},
    {"run  base.json", "attnbench compare BASE NEW and attnbench report read it"},
    {"run  runs", "attnbench compare BASE NEW and attnbench report read it"},
    {"run  old.so", "old.so: this is a plug-in; give it as --plugin old.so"},
    {"run  mine.cu", "this is source code; compile it as a plug-in"},
    {"run  quickstart  --plugin  model.yaml", "give it without an option: attnbench run model.yaml"},
    {"run  quickstart  --kernel  ./old.so", "give it as --plugin ./old.so"},
    {"compare  old.so  new.so", "attnbench gate CONFIG --plugin NEW --against-plugin OLD compares two"},
    {"check  out.npy  tensors.safetensors",
     "out.npy: this is an array; attnbench check CASE.safetensors OUT.npy"},
    {"check  tensors.safetensors  out.npy  lse.npy",
     "unexpected argument 'lse.npy'; an LSE is given by --lse"},
    {"report  model.yaml", "attnbench run model.yaml makes results of it"},
};

class CliHints : public ::testing::TestWithParam<Hint> {};

/// Runs a line of kHints or kWrong among the files that they name.
Outcome outcome_of(const Scratch& scratch, std::string line) {
  scratch.write("model.yaml", "name: m\nsweeps: [{batch: q4}]\n");
  scratch.write("base.json", "{}");
  scratch.write("old.so", "");
  scratch.write("tensors.safetensors", "");
  scratch.write("program", "#!/bin/sh\n");
  for (const char* folder : {"sub", "runs"}) std::filesystem::create_directory(scratch.path(folder));
  scratch.write("sub/other.yaml", "");
  scratch.write("runs/results.json", "{}");
  std::vector<std::string> words;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find("  "), line.size());
    words.push_back(line.substr(0, end));
    line.erase(0, end + 2);
  }
  return run_attnbench(scratch, words);
}

TEST_P(CliHints, NameTheMend) {
  const Scratch scratch;
  const Outcome o = outcome_of(scratch, GetParam().line);
  EXPECT_EQ(o.exit_code, 2) << o.out << o.err;
  EXPECT_THAT(o.err, HasSubstr(GetParam().says));
  std::istringstream lines(o.err);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 500u) << line;
  EXPECT_FALSE(std::filesystem::exists(scratch.path("results"))) << "nothing may be written";
}

INSTANTIATE_TEST_SUITE_P(, CliHints, ::testing::ValuesIn(kHints));

/// Wrong in other ways; each line is pinned, those of kHints too.
constexpr const char* kWrong[] = {
    "run",
    "run  nofile.yaml",
    "run  sub/other.yaml",
    "run  model.yaml  --filter  nope  --device  cpu",
    "run  model.yaml  --case  nope",
    "run  model.yaml  --shard  3/2",
    "run  model.yaml  --timeout  -1",
    "run  model.yaml  --format  pdf",
    "run  --case  {batch: q4, heads: 3/2}",
    "run  --case  {batch: q4, head_dim: 0}",
    "run  --case  {batch: q4, mask: diagonal}",
    "run  --case  {batch: q4s2, mask: causal}",
    "run  --case  {batch: [q4",
    "run  --case  {op: attend, batch: q4}",
    "run  --resume  nofolder",
    "list  model.yaml  --set  nokey=1",
    "compare  base.json",
    "compare  base.json  nofile.json",
    "gate  model.yaml",
    "merge  runs",
    "report  --format  svg  nofile.json",
    "selftest  --device  cpu  --filter  ^nope$",
    "fuzz  --device  cpu  --minutes  -1",
    "export  --case  {batch: q4}",
    "serve-sim  nofile.yaml",
    "trace  nofile.csv",
    "profile  nofile.yaml",
};

TEST(CliHintsThatWork, WrongInputsAreToldAsBefore) {
  std::vector<std::string> pinned;
  const auto pin = [&](const char* line) {
    const Scratch scratch;
    const Outcome o = outcome_of(scratch, line);
    EXPECT_NE(o.exit_code, 0) << line;
    std::string first = o.err.substr(0, o.err.find('\n'));
    for (std::size_t at; (at = first.find(scratch.dir().string())) != first.npos;)
      first.replace(at, scratch.dir().string().size(), "SCRATCH");
    pinned.push_back(std::to_string(o.exit_code) + " | " + line + " | " + first);
  };
  for (const Hint& hint : kHints) pin(hint.line);
  for (const char* line : kWrong) pin(line);
  EXPECT_GE(pinned.size(), 100u);
  expect_pinned("wrong_inputs", pinned);
}

TEST(CliHintsThatWork, SetTakesAListWithoutBrackets) {
  const Scratch scratch;
  const auto listed = [&](const std::string& set) {
    return run_attnbench(scratch, {"list", "--case", "{kv: paged, batch: q4}", "--set", set}).out;
  };
  for (const auto& [bare, list] : {std::pair("block_size=16,64", "block_size=[16, 64]"),
                                   {"dtype=fp16,fp32", "dtype=[fp16, fp32]"},
                                   {"heads=4/2,8/2", "heads=[4/2, 8/2]"},
                                   {"batch=q4,2q1s1k", "batch=[q4, 2q1s1k]"},
                                   {"window=7,0", "window='7,0'"}}) {
    EXPECT_EQ(listed(bare), listed(list)) << bare;
    EXPECT_THAT(listed(bare), HasSubstr("case"));
  }
}

TEST(CliHintsThatWork, BatchesInAnotherSpellingFindTheirCase) {
  const Scratch scratch;
  scratch.write("a.yaml", "name: a\nsweeps: [{batch: [2q1s4k, q512, q1k_2q3], heads: 4/2}]\n");
  const std::string part = "attention/packed/bf16/h4-2/d128/full/";
  const auto dry = [&](const std::string& option, const std::string& value) {
    return run_attnbench(scratch, {"run", "a.yaml", option, value, "--device", "cpu", "--dry-run"});
  };
  for (const auto& [given, batch] : {std::pair("2q1s4096", "2q1s4k"),
                                     {"q1s4k_q1s4k", "2q1s4k"},
                                     {"1q512s512/cpu", "q512"},
                                     {"q1024_q3_q3", "q1k_2q3"}}) {
    const Outcome o = dry("--case", part + given);
    EXPECT_THAT(o.out, AllOf(HasSubstr(std::string("batch: ") + batch + "}"), HasSubstr("\n1 run"))) << o.err;
  }
  EXPECT_THAT(dry("--case", part + "2q1s4095").err, HasSubstr("did you mean"));
  EXPECT_THAT(run_attnbench(scratch, {"list", "a.yaml", "--filter", "2q1s4096"}).err,
              HasSubstr("ids write this batch 2q1s4k"));
}

TEST(CliHintsThatWork, AFinishedRunGetsACsv) {
  const Scratch scratch;
  std::vector<std::string> run = {
      "run",   "--case", "{batch: q4, heads: 4/2}", "--device", "cpu", "--kernel", "cpu", "--no-time",
      "--out", "out"};
  EXPECT_EQ(run_attnbench(scratch, run).exit_code, 0);
  run[run.size() - 2] = "--resume";
  run.insert(run.end(), {"--format", "csv"});
  const Outcome o = run_attnbench(scratch, run);
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("1 of 1 runs are finished"));
  EXPECT_TRUE(std::filesystem::exists(scratch.path("out/results.csv")));
}

TEST(CliHintsThatWork, LongCasesAreAnnounced) {
  const Scratch scratch;
  const auto run = [&](const char* batch,
                       const char* timeout) {  // the kernel refuses the case: nothing takes long
    return run_attnbench(scratch,
                         {"run", "--case", std::string("{kv: contiguous, heads: 1, batch: ") + batch + "}",
                          "--device", "cpu", "--plugin", std::string(ATTNBENCH_PLUGIN_DIR) + "/example.so",
                          "--kernel", "example", "--timeout", timeout})
        .err;
  };
  EXPECT_THAT(run("q256k", "1000000"),
              AllOf(HasSubstr("[1/1] expected to take about "),
                    HasSubstr(", if the plug-in is as fast as the built-in kernels")));
  EXPECT_THAT(run("q256k", "10"),
              HasSubstr("[1/1] may take longer than --timeout 10: attention/contiguous/"));
  EXPECT_THAT(run("q32", "10"), AllOf(HasSubstr("[1/1] skip"), Not(HasSubstr("longer than"))));
  // The time of a short case tells that the kernel is slow.
  scratch.write("two.yaml",
                "name: two\ndefaults: {heads: 8}\nsweeps: [{batch: 2q64}, {kv: contiguous, batch: q16k}]\n");
  EXPECT_THAT(run_attnbench(scratch, {"run", "two.yaml", "--device", "cpu", "--no-ceilings", "--min-time",
                                      "0.01", "--plugin", std::string(ATTNBENCH_PLUGIN_DIR) + "/example.so",
                                      "--kernel", "example", "--timeout", "1000000"})
                  .err,
              ContainsRegex("\\[2/2\\] (expected to take about [0-9]+ (min|h)|may take longer than)"));
}

TEST(CliHintsThatWork, ReproLinesWithAnotherCommand) {
  const Scratch scratch;
  scratch.write("x.py", "");  // is not opened
  const std::vector<std::string> repro = {"--case",     "{batch: q4, heads: 4/2}",
                                          "--seed",     "7",
                                          "--device",   "cpu",
                                          "--kernel",   "cpu",
                                          "--check",    "sampled,invariants",
                                          "--require",  "acc=fp32",
                                          "--repeats",  "3",
                                          "--no-time",  "--cache",
                                          "hot",        "--graph",
                                          "--trust",    "--seed-order",
                                          "5",          "--no-ceilings",
                                          "--counters", "--threads",
                                          "2",          "--timeout",
                                          "60",         "--min-time",
                                          "0.1",        "--max-samples",
                                          "20"};
  const auto with = [&](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), repro.begin(), repro.end());
    words.insert(words.end(), more.begin(), more.end());
    return run_attnbench(scratch, words);
  };
  const Outcome exported = with({"export"}, {"--plugin", "x.py", "-o", "c.safetensors"});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(exported.err,
              HasSubstr("note: attnbench export ignores --device, --kernel, --plugin, --check"));
  EXPECT_THAT(exported.out, HasSubstr("import ml_dtypes"));
  const Outcome listed = with({"list"}, {});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(listed.err,
              AllOf(HasSubstr("note: attnbench list ignores --check"), Not(HasSubstr("--device"))));
  EXPECT_EQ(with({"profile"}, {"--dry-run", "--tool", "nsys"}).exit_code,
            run_attnbench(scratch, {"profile", "--case", "{batch: q4}", "--device", "cpu", "--dry-run",
                                    "--tool", "nsys"})
                .exit_code);
  const Outcome checked = run_attnbench(
      scratch, {"check", "c.safetensors", "nowhere.npy", "--kernel", "cpu", "--device", "cpu", "--no-time"});
  EXPECT_THAT(checked.err,
              AllOf(HasSubstr("ignores --device, --kernel, --no-time"), HasSubstr("nowhere.npy")));
}

}  // namespace
}  // namespace attnbench::testing
