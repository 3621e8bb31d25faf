// `attnbench run` with valid configurations: what it writes, and what its options change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kSmall = R"(name: small
seed: 7
defaults: {heads: 4/2, head_dim: 32, mask: causal, dtype: bf16}
sweeps:
  - name: packed
    batch: [q1_q2_q3, 2q40]
  - name: paged
    kv: paged
    block_size: [16, 64]
    batch: 4q1s100
  - name: append
    op: kv_append
    kv: paged
    batch: 3q2s20
)";
constexpr std::size_t kSmallCases = 5;

class CliRun : public ::testing::Test {
 protected:
  /// Runs kSmall on the cpu with reports in "out".
  Outcome run(std::vector<std::string> more = {}) {
    std::vector<std::string> args = {
        "run", scratch_.write("small.yaml", kSmall), "--device", "cpu", "--kernel", "cpu", "--out", "out"};
    args.insert(args.end(), more.begin(), more.end());
    return run_attnbench(scratch_, args);
  }
  std::vector<json> records() const { return read_records(scratch_.dir() / "out"); }
  bool has_report(const char* name) const { return std::filesystem::exists(scratch_.dir() / "out" / name); }

  Scratch scratch_;
};

TEST_F(CliRun, JournalHoldsTheSameEntries) {
  ASSERT_EQ(run({"--no-time"}).exit_code, 0);
  const json results = read_json(scratch_.dir() / "out" / "results.json");
  std::istringstream journal(read_text(scratch_.dir() / "out" / "journal.jsonl"));
  std::size_t n = 0;
  for (std::string line; std::getline(journal, line); ++n) {
    ASSERT_LT(n, results["benchmarks"].size());
    EXPECT_EQ(json::parse(line)["attnbench"]["id"], results["benchmarks"][n]["attnbench"]["id"]);
  }
  EXPECT_EQ(n, kSmallCases);
}

TEST_F(CliRun, SaysWhatItRuns) {
  const Outcome o = run({"--no-time"});
  EXPECT_THAT(o.out,
              AllOf(HasSubstr("5 passed"), HasSubstr("report: out/results.json"), HasSubstr("max|z|")));
  EXPECT_THAT(o.err, AllOf(HasSubstr("[1/5] pass"), HasSubstr("[5/5] pass")));
}

TEST_F(CliRun, WritesTheFormatsAskedFor) {
  ASSERT_EQ(run({"--no-time", "--format", "json,csv,md,junit"}).exit_code, 0);
  const std::string csv = read_text(scratch_.dir() / "out" / "results.csv");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), static_cast<long>(kSmallCases + 1));
  EXPECT_THAT(csv, AllOf(HasSubstr("median_us"), HasSubstr("max_z"), HasSubstr("attention/packed/bf16")));
  const std::string md = read_text(scratch_.dir() / "out" / "results.md");
  EXPECT_THAT(md, AllOf(HasSubstr("| status |"), HasSubstr("| pass |"), HasSubstr("5 passed")));
  const std::string junit = read_text(scratch_.dir() / "out" / "junit.xml");
  EXPECT_THAT(
      junit, AllOf(StartsWith("<?xml"), HasSubstr("tests=\"5\" failures=\"0\""), HasSubstr("</testsuites>")));
}

TEST_F(CliRun, WritesJsonAloneUnlessAsked) {
  ASSERT_EQ(run({"--no-time"}).exit_code, 0);
  EXPECT_TRUE(has_report("results.json"));
  for (const char* other : {"results.csv", "results.md", "junit.xml"})
    EXPECT_FALSE(has_report(other)) << other;
}

TEST_F(CliRun, UnknownFormatIsAUsageError) {
  const Outcome o = run({"--format", "json,xml"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("'xml'"), HasSubstr("junit")));
  EXPECT_FALSE(has_report("results.json"));
}

TEST_F(CliRun, NoTimeVerifiesOnly) {
  ASSERT_EQ(run({"--no-time"}).exit_code, 0);
  for (const json& r : records()) {
    EXPECT_EQ(r["status"], "pass");
    EXPECT_TRUE(r["check"].is_object());
    EXPECT_TRUE(r["time"].is_null());
    EXPECT_TRUE(r["sol"].is_null());
    EXPECT_THAT(r["repro"].get<std::string>(), HasSubstr("--no-time"));
  }
}

TEST_F(CliRun, CheckFullTakesEveryRowAndSampledFewer) {
  // Above the limit up to which every row is checked: 8 x 4 x 64 x 2 x 2200^2 = 2e10 flop.
  const std::vector<std::string> args = {"run",      "--case",    "{batch: 2q2200, heads: 8/2, head_dim: 64}",
                                         "--device", "cpu",       "--kernel",
                                         "cpu",      "--no-time", "--timeout",
                                         "1000",     "--out",     "out"};
  ASSERT_EQ(run_attnbench(scratch_, args).exit_code, 0);
  json check = records().at(0)["check"];
  EXPECT_EQ(check["method"], "sampled");
  EXPECT_EQ(check["rows_total"], 2 * 2200 * 8);
  EXPECT_LT(check["rows"].get<int>(), 2 * 2200 * 8);
  EXPECT_GE(check["rows"].get<int>(), 8);

  std::vector<std::string> full = args;
  full.insert(full.end(), {"--check", "full"});
  ASSERT_EQ(run_attnbench(scratch_, full).exit_code, 0);
  check = records().at(0)["check"];
  EXPECT_EQ(check["method"], "full");
  EXPECT_EQ(check["rows"], 2 * 2200 * 8);
}

TEST_F(CliRun, FilterKeepsWhatMatches) {
  ASSERT_EQ(run({"--no-time", "--filter", "^attention/paged"}).exit_code, 0);
  ASSERT_EQ(records().size(), 2u);
  for (const json& r : records()) EXPECT_THAT(r["id"].get<std::string>(), StartsWith("attention/paged"));
}

TEST_F(CliRun, NothingMatchedIsSix) {
  const Outcome o = run({"--filter", "no_such_case"});
  EXPECT_EQ(o.exit_code, 6);
  EXPECT_THAT(o.err, HasSubstr("nothing matched"));
  EXPECT_FALSE(std::filesystem::exists(scratch_.dir() / "out"));
}

TEST_F(CliRun, BrokenFilterIsAUsageError) {
  const Outcome o = run({"--filter", "(paged"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("regular expression"));
}

TEST_F(CliRun, CaseByIdRunsThatOne) {
  ASSERT_EQ(run({"--no-time"}).exit_code, 0);
  const std::string id = records().at(3)["id"];
  ASSERT_EQ(run({"--no-time", "--case", id}).exit_code, 0);
  ASSERT_EQ(records().size(), 1u);
  EXPECT_EQ(records()[0]["id"], id);
  const Outcome o = run({"--no-time", "--case", id + "x"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("did you mean '" + id + "'"));
}

TEST_F(CliRun, InlineCaseNeedsNoFile) {
  const Outcome o =
      run_attnbench(scratch_, {"run", "--case", "{kv: paged, batch: 2q1s50, heads: 4/2, head_dim: 16}",
                               "--device", "cpu", "--kernel", "cpu", "--no-time", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  ASSERT_EQ(records().size(), 1u);
  EXPECT_EQ(records()[0]["params"]["block_size"], 16);
}

TEST_F(CliRun, SetReplacesAKeyInEverySweep) {
  ASSERT_EQ(run({"--no-time", "--set", "dtype=fp32", "--set", "block_size=[1, 2, 4]"}).exit_code, 0);
  const auto all = records();
  ASSERT_EQ(all.size(), 2u + 3u + 3u);  // the append also has the axis
  for (const json& r : all) EXPECT_EQ(r["params"]["dtype"], "fp32");
}

TEST_F(CliRun, SetReadsAsStrictlyAsAFile) {
  Outcome o = run({"--set", "dtyp=fp32"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("--set dtyp=fp32"), HasSubstr("did you mean 'dtype'")));
  o = run({"--set", "head_dim=577"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("from 1 to 576"));
  EXPECT_EQ(run({"--set", "dtype"}).exit_code, 2);
}

TEST_F(CliRun, SeedOverridesTheFile) {
  ASSERT_EQ(run({"--no-time", "--seed", "99"}).exit_code, 0);
  for (const json& r : records()) {
    EXPECT_EQ(r["seed"], 99);
    EXPECT_THAT(r["repro"].get<std::string>(), HasSubstr("--seed 99"));
  }
}

TEST_F(CliRun, ReproLineReproducesTheRecord) {
  // Drawn lengths and odd shapes: the line itself must hold all of them.
  const std::string file = scratch_.write("odd.yaml", R"(name: odd
seed: 5
sweeps:
  - {heads: 6/2, head_dim: 24, mask: causal, window: "20,0", softcap: 15, dtype: fp32, data: peaked,
     batch: {lengths: {lognormal: {median: 30, sigma: 1.0}, clip: [1, 90]}, count: 40}}
  - {kv: paged, kv_layout: hnd, block_size: 7, allow_short_kv: true, mask: causal, heads: 3/1, head_dim: 5,
     softmax_scale: 0.3, batch: q9s4_q1s30}
  - {gap_tokens: 3, batch: q4_q3, heads: 2, head_dim: 2}
  - {op: kv_append, block_size: 8, padding_tokens: 3, dtype: fp16, batch: q2s9_q5}
)");
  ASSERT_EQ(run_attnbench(scratch_, {"run", file, "--device", "cpu", "--kernel", "cpu", "--no-time",
                                     "--check", "full", "--out", "out"})
                .exit_code,
            0);
  const auto originals = records();
  ASSERT_EQ(originals.size(), 4u);
  for (const json& original : originals) {
    std::vector<std::string> words = shell_words(original["repro"]);
    SCOPED_TRACE(original["repro"].get<std::string>());
    ASSERT_EQ(words.at(0), "attnbench");
    words.erase(words.begin());
    words.insert(words.end(), {"--out", "again"});
    const Outcome o = run_attnbench(scratch_, words);
    EXPECT_EQ(o.exit_code, 0) << o.err;
    const auto again = read_records(scratch_.dir() / "again");
    ASSERT_EQ(again.size(), 1u);
    EXPECT_EQ(again[0]["id"], original["id"]);
    EXPECT_EQ(again[0]["params"], original["params"]);
    EXPECT_EQ(again[0]["repro"], original["repro"]);
    json a = again[0]["check"], b = original["check"];
    a.erase("reference_s");
    b.erase("reference_s");
    // Sums over rows depend on the order in which threads finish, so some figures may differ in their last digits.
    const json power = b.value("power", json::object());
    for (const auto& [name, value] : power.items()) {
      if (!value.is_number()) continue;
      EXPECT_NEAR(a["power"][name].get<double>(), value.get<double>(), 1e-6 * value.get<double>()) << name;
    }
    a.erase("power");
    b.erase("power");
    for (const char* figure : {"slope", "bias_se", "rms_z"}) {
      EXPECT_NEAR(a[figure].get<double>(), b[figure].get<double>(), 1e-9 * (1 + b[figure].get<double>()))
          << figure;
      a.erase(figure);
      b.erase(figure);
    }
    EXPECT_EQ(a, b);
  }
}

TEST_F(CliRun, SeveralFilesAreOneRun) {
  const std::string other =
      scratch_.write("other.yaml", "name: other\nsweeps: [{batch: q3, heads: 2, head_dim: 8}]\n");
  ASSERT_EQ(run({other, "--no-time"}).exit_code, 0);
  EXPECT_EQ(records().size(), kSmallCases + 1);
}

TEST_F(CliRun, DryRunPrintsLinesAndRunsNothing) {
  const Outcome o = run({"--dry-run"});
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), static_cast<long>(kSmallCases + 1));
  EXPECT_FALSE(has_report("results.json"));
}

TEST_F(CliRun, DefaultFolderIsUnderResultsRuns) {
  const std::string file = scratch_.write("small.yaml", kSmall);
  const Outcome o = run_attnbench(scratch_, {"run", file, "--device", "cpu", "--no-time", "--quiet"});
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_THAT(o.out, MatchesRegex("(.|\n)*report: results/runs/[0-9]+-[0-9]+-small/results.json\n(.|\n)*"));
  EXPECT_EQ(o.err, "");
}

TEST_F(CliRun, UnwritableFolderIsSaidBeforeAnyWork) {
  scratch_.write("taken", "a file\n");
  const std::string file = scratch_.write("small.yaml", kSmall);
  Outcome o = run_attnbench(scratch_, {"run", file, "--device", "cpu", "--no-time", "--out", "taken/below"});
  EXPECT_EQ(o.exit_code, 2) << o.err;
  EXPECT_THAT(o.err, AllOf(HasSubstr("taken/below"), HasSubstr("Not a directory"), Not(HasSubstr("[1/"))));
  std::filesystem::create_directories(scratch_.dir() / "odd" / "results.json");
  o = run_attnbench(scratch_, {"run", file, "--device", "cpu", "--no-time", "--out", "odd"});
  EXPECT_EQ(o.exit_code, 2) << o.err;
  EXPECT_THAT(o.err, AllOf(HasSubstr("odd/results.json"), Not(HasSubstr("[1/"))));
}

TEST_F(CliRun, SameFolderTwiceReplacesTheReports) {
  ASSERT_EQ(run({"--no-time"}).exit_code, 0);
  const std::string first = read_text(scratch_.dir() / "out" / "results.json");
  Outcome o = run({"--no-time", "--filter", "2q40"});
  ASSERT_EQ(o.exit_code, 0);
  EXPECT_EQ(records().size(), 1u);
  EXPECT_THAT(o.err,
              ContainsRegex("note: out/results.json held a finished run of [0-9]+ results; it is kept as "
                            "results.previous.json\n"));
  EXPECT_EQ(read_text(scratch_.dir() / "out" / "results.previous.json"), first);
  const std::string second = read_text(scratch_.dir() / "out" / "results.json");
  o = run({"--no-time"});
  EXPECT_THAT(o.err, HasSubstr("a finished run of 1 result; it is kept as results.previous.2.json\n"));
  EXPECT_EQ(read_text(scratch_.dir() / "out" / "results.previous.json"), first) << "nothing is ever lost";
  EXPECT_EQ(read_text(scratch_.dir() / "out" / "results.previous.2.json"), second);
  scratch_.write("out/results.json", "somebody's");
  o = run({"--no-time"});
  EXPECT_THAT(o.err, HasSubstr("a file that attnbench cannot read; it is kept as results.previous.3.json"));
  EXPECT_EQ(read_text(scratch_.dir() / "out" / "results.previous.3.json"), "somebody's");
  EXPECT_EQ(run_attnbench(scratch_, {"compare", "out/results.previous.json", "out"}).exit_code, 6)
      << "no times";
}

TEST_F(CliRun, NothingToDoIsRefused) {
  Outcome o = run({"--check", "off", "--no-time"});
  EXPECT_EQ(o.exit_code, 2) << o.out;
  EXPECT_THAT(o.err,
              HasSubstr("--check off and --no-time leave nothing to do: leave out the first, to verify, or"));
  EXPECT_FALSE(std::filesystem::exists(scratch_.dir() / "out"));
  const std::string file =
      scratch_.write("off.yaml", "name: off\ncheck: off\nsweeps: [{batch: q4, heads: 2}]\n");
  o = run_attnbench(scratch_, {"run", file, "--device", "cpu", "--no-time"});
  EXPECT_EQ(o.exit_code, 2) << o.out;
  EXPECT_THAT(o.err, HasSubstr("the file's 'check: off' and --no-time leave nothing to do"));
  EXPECT_EQ(
      run_attnbench(scratch_, {"run", file, "--device", "cpu", "--no-time", "--check", "full", "--out", "o"})
          .exit_code,
      0);
  o = run_attnbench(scratch_, {"gate", file, "--device", "cpu", "--no-time", "--against", ATTNBENCH_PROGRAM});
  EXPECT_EQ(o.exit_code, 2) << o.out;
  EXPECT_THAT(o.err, HasSubstr("leave nothing to do"));
}

TEST_F(CliRun, MistakesOnTheCommandLineAreTwo) {
  const std::string file = scratch_.write("small.yaml", kSmall);
  const auto expect = [&](const std::vector<std::string>& args, const std::string& text) {
    const Outcome o = run_attnbench(scratch_, args);
    EXPECT_EQ(o.exit_code, 2) << o.out << o.err;
    EXPECT_THAT(o.err, HasSubstr(text));
  };
  expect({"run"}, "nothing to run");
  expect({"run", "missing.yaml"}, "missing.yaml: error: cannot read: No such file");
  expect({"run", scratch_.dir().string()}, "this is a folder; a sweep file is required");
  expect({"run", file, "--devise", "cpu"}, "--devise");
  expect({"run", file, "--device", "tpu"}, "tpu");
  expect({"run", file, "--device", "cuda:99"}, "cuda:99");
  expect({"run", file, "--device", "cpu", "--kernel", "cpuu"}, "did you mean 'cpu'");
  expect({"run", file, "--check", "most"}, "most");
  expect({"run", file, "--cache", "warm"}, "warm");
  expect({"run", file, "--seed", "x"}, "--seed");
  expect({"run", file, "--seed"}, "--seed");
  expect({"run", file, "--max-samples", "0"}, "--max-samples");
  expect({"run", file, "--device", "cpu", "--graph"}, "--graph");
  expect({"run", "--case", "{batch: 4q}"}, "--case:1:");
  expect({"run", "--case", "{batch: q4, bach: q5}"}, "did you mean 'batch'");
  expect({"run", file, "--case", "no/such/id"}, "no case has this id");
  expect({"rum", file}, "did you mean 'run'?");
  expect({}, "no command given");
}

TEST(CliSample, RowsOfASampleAreDrawnAnewAndTheReproLineRepeatsThem) {
  const Scratch scratch;
  const auto check = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {
        "run",      "--case", "{batch: q300s40k, heads: 2/1, head_dim: 128, mask: none}",
        "--device", "cpu",    "--no-time",
        "-q",       "--out",  "out"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome o = run_attnbench(scratch, args);
    EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
    return read_records(scratch.dir() / "out").at(0);
  };
  const json first = check({}), other = check({});
  const std::string seed = first["check"]["rows_seed"].dump();
  EXPECT_NE(other["check"]["rows_seed"].dump(), seed);
  EXPECT_THAT(first["repro"].get<std::string>(), HasSubstr(" --seed-order " + seed));
  const json again = check({"--seed-order", seed});
  for (const char* field : {"rows_seed", "rows", "max_z"})
    EXPECT_EQ(again["check"][field], first["check"][field]);
}

}  // namespace
}  // namespace attnbench::testing
