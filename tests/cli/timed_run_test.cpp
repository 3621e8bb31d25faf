// Tests that need times: the figures of a record, and compare. They run alone (RUN_SERIAL).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <regex>
#include <set>
#include <thread>

#include "harness/device/sanitized.h"
#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Repeats a run up to four times. A busy machine may measure low ceilings and then times that they do not
/// allow (exit code 4), which is not the program's fault.
Outcome run_timed(const Scratch& scratch, const std::vector<std::string>& args) {
  Outcome o;
  for (int attempt = 0; attempt < 4; ++attempt) {
    o = run_attnbench(scratch, args);
    if (o.exit_code != 4) break;
  }
  return o;
}

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
constexpr const char* kTwoCases = "name: two\nsweeps: [{batch: [q5, 2q7], heads: 4/2, head_dim: 16}]\n";

class CliTimed : public ::testing::Test {
 protected:
  Outcome run(const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {
        "run", scratch_.write("small.yaml", kSmall), "--device", "cpu", "--kernel", "cpu", "--out", "out"};
    args.insert(args.end(), more.begin(), more.end());
    return run_timed(scratch_, args);
  }
  std::vector<json> records() const { return read_records(scratch_.dir() / "out"); }
  Scratch scratch_;
};

/// As on a server whose shells set OMP_NUM_THREADS for other programs.
TEST_F(CliTimed, MoreThreadsThanTheEnvironmentNamesAccuseNobody) {
  ASSERT_EQ(setenv("OMP_NUM_THREADS", "2", 1), 0);
  const Outcome o = run({"--threads", "12", "--no-ceilings"});
  ASSERT_EQ(unsetenv("OMP_NUM_THREADS"), 0);
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
}

TEST_F(CliTimed, CpuTimeHasNoWaitsAndIsNotComparedWithWallTime) {
  const std::vector<std::string> common = {"run",
                                           "--case",
                                           "{batch: q5, heads: 2, head_dim: 16}",
                                           "--device",
                                           "cpu",
                                           "--kernel",
                                           "slow",
                                           "--no-ceilings",
                                           "--trust",
                                           "--max-samples",
                                           "10"};
  std::map<std::string, double> us;
  for (const std::string clock : {"wall", "cpu"}) {
    std::vector<std::string> args = common;
    args.insert(args.end(), {"--clock", clock, "--out", clock});
    const Outcome o = run_faulty(scratch_, args);
    ASSERT_EQ(o.exit_code, 0) << o.out << o.err;
    const json r = read_records(scratch_.dir() / clock).at(0);
    us[clock] = r["time"]["median_us"].get<double>();
    EXPECT_EQ(r["time"].value("clock", "wall"), clock);
    EXPECT_EQ(r["repro"].get<std::string>().find(" --clock cpu") != std::string::npos, clock == "cpu");
  }
  EXPECT_GT(us["wall"], 3e5) << "the kernel sleeps for 300 ms";
  EXPECT_LT(us["cpu"], 5e4);
  const Outcome o = run_attnbench(scratch_, {"compare", "wall", "cpu"});
  EXPECT_EQ(o.exit_code, 2) << o.out;
  EXPECT_THAT(o.err, HasSubstr("clock (--clock): 'wall' in BASE, 'cpu' in NEW"));
}

TEST_F(CliTimed, OneThreadBesideOtherWorkIsTimedByItsCpuTime) {
  const Busy busy(std::thread::hardware_concurrency());
  const Outcome o = run({"--threads", "1", "--filter", "2q40"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.err, HasSubstr("--clock wall takes wall time"));
  for (const json& r : records()) {
    EXPECT_EQ(r["time"]["clock"], "cpu");
    EXPECT_EQ(r["time"]["disturbed"], 0) << r["case"];
  }
  run({"--threads", "1", "--filter", "2q40", "--clock", "wall"});
  for (const json& r : records()) EXPECT_FALSE(r["time"].contains("clock"));
}

TEST_F(CliTimed, WithoutCountersTheRunGoesOnAndSaysWhy) {
  const Outcome o = run({"--counters"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  const auto all = records();
  ASSERT_EQ(all.size(), kSmallCases);
  for (const json& r : all) {
    EXPECT_EQ(r["status"], "pass") << r["reason"];
    EXPECT_THAT(r["counters"]["reason"].get<std::string>(), HasSubstr("CUDA GPUs only, not of cpu"));
    EXPECT_TRUE(r["counters"]["dram_read_bytes"].is_null());
    EXPECT_GT(r["time"]["median_us"].get<double>(), 0);
    EXPECT_THAT(r["repro"].get<std::string>(), HasSubstr(" --counters"));
  }
  EXPECT_THAT(o.err, HasSubstr("no counters for 5 cases: counters are read of CUDA GPUs only"));
}

TEST_F(CliTimed, CountersNeedTiming) {
  const Outcome o = run({"--counters", "--no-time"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("drop --no-time"));
}

TEST_F(CliTimed, RecordsHoldEveryCaseWithItsFigures) {
  const Outcome o = run();
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  const json results = read_json(scratch_.dir() / "out" / "results.json");
  const json& context = results["context"]["attnbench"];
  EXPECT_EQ(context["name"], "small");
  EXPECT_EQ(context["complete"], true);
  EXPECT_EQ(context["planned"], kSmallCases);
  EXPECT_EQ(context["device"]["name"], "cpu");
  EXPECT_FALSE(context["version"].get<std::string>().empty());
  EXPECT_FALSE(context["revision"].get<std::string>().empty());
  EXPECT_GT(context["ceilings"]["read_gbs"].get<double>(), 0);
  EXPECT_GT(context["ceilings"]["matmul_tflops"]["bf16"].get<double>(), 0);

  ASSERT_EQ(results["benchmarks"].size(), kSmallCases);
  std::set<std::string> ids;
  for (const json& entry : results["benchmarks"]) {
    const json& r = entry["attnbench"];
    const std::string id = r["id"];
    SCOPED_TRACE(id);
    ids.insert(id);
    // The members of Google Benchmark.
    EXPECT_THAT(entry["name"].get<std::string>(), AllOf(HasSubstr(id), HasSubstr(r["kernel"])));
    EXPECT_EQ(entry["run_name"], entry["name"]);
    EXPECT_EQ(entry["run_type"], "iteration");
    EXPECT_EQ(entry["time_unit"], "us");
    EXPECT_EQ(entry["real_time"], r["time"]["median_us"]);
    EXPECT_GE(entry["iterations"].get<int>(), 10);
    EXPECT_FALSE(entry.contains("error_occurred"));
    // The members of attnbench.
    EXPECT_EQ(r["status"], "pass") << r["reason"];
    EXPECT_EQ(r["reason"], "");
    EXPECT_EQ(r["seed"], 7);
    EXPECT_EQ(r["device"], "cpu");
    EXPECT_EQ(r["params"]["head_dim"], 32);
    EXPECT_THAT(r["repro"].get<std::string>(), StartsWith("attnbench run "));
    const json& check = r["check"];
    EXPECT_EQ(check["pass"], true);
    EXPECT_GT(check["rows"].get<int>(), 0);
    EXPECT_EQ(check["rows"], check["rows_total"]);  // small cases are checked in full
    for (const char* figure :
         {"max_z", "max_row_z2", "bias_se", "slope", "lse_max_z", "max_abs", "max_rel"}) {
      EXPECT_TRUE(check[figure].is_number()) << figure;
    }
    EXPECT_LE(check["max_z"].get<double>(), 6);
    const json& time = r["time"];
    EXPECT_GT(time["lo_us"].get<double>(), 0);
    EXPECT_LE(time["lo_us"].get<double>(), time["median_us"].get<double>());
    EXPECT_LE(time["median_us"].get<double>(), time["hi_us"].get<double>());
    EXPECT_GE(time["samples_us"].size(), 10u);
    EXPECT_EQ(time["cache"], "cold");
    EXPECT_TRUE(r["sol"].is_number());
    EXPECT_GT(r["sol"].get<double>(), 0);
    EXPECT_TRUE(r["bound"].is_string());
    EXPECT_GT(r["bytes"].get<double>(), 0);
    EXPECT_GT(r["gbs"].get<double>(), 0);
  }
  EXPECT_EQ(ids.size(), kSmallCases);
  EXPECT_THAT(o.out, AllOf(HasSubstr("5 passed"), HasSubstr("GFLOP/s"), HasSubstr("%SOL")));
}

TEST_F(CliTimed, CheckOffTimesOnly) {
  ASSERT_EQ(run({"--check", "off", "--filter", "paged16.*4q1s100", "--max-samples", "12"}).exit_code, 0);
  ASSERT_EQ(records().size(), 1u);
  const json r = records()[0];
  EXPECT_EQ(r["status"], "pass");
  EXPECT_TRUE(r["check"].is_null());
  EXPECT_LE(r["time"]["samples_us"].size(), 12u);
  EXPECT_THAT(r["repro"].get<std::string>(), HasSubstr("--check off"));
}

/// Compare reads times from files. Here the times are quiet, so that the verdict is certain.
class CliCompare : public ::testing::Test {
 protected:
  void SetUp() override {
    const Outcome o = run_timed(scratch_, {"run", scratch_.write("two.yaml", kTwoCases), "--device", "cpu",
                                           "--kernel", "cpu", "--out", "measured", "--max-samples", "10"});
    ASSERT_EQ(o.exit_code, 0) << o.out << o.err;
  }

  /// Results with 40 samples within 0.3 % of `us` for each case; returns the path.
  std::string results(const std::string& name, double us) {
    json j = read_json(scratch_.dir() / "measured" / "results.json");
    for (json& entry : j["benchmarks"]) {
      json& time = entry["attnbench"]["time"];
      time["samples_us"] = json::array();
      for (int i = 0; i < 40; ++i) time["samples_us"].push_back(us * (1 + 0.003 * (i % 11 - 5) / 5));
      entry["real_time"] = time["median_us"] = us;
      time["lo_us"] = us * 0.999;
      time["hi_us"] = us * 1.001;
    }
    return scratch_.write(name, j.dump());
  }
  Outcome compare(const std::string& base, const std::string& other) {
    return run_attnbench(scratch_, {"compare", base, other});
  }
  Scratch scratch_;
};

TEST_F(CliCompare, TellsSlowerFasterAndSame) {
  const std::string base = results("base.json", 100);
  Outcome o = compare(base, base);
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("attention/packed/bf16/h4-2/d16/full/q5"), HasSubstr("2q7"),
                           HasSubstr("2 same")));
  o = compare(base, results("slow.json", 110));
  EXPECT_EQ(o.exit_code, 3) << o.out << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("2 slower"), HasSubstr("+10.0")));
  o = compare(base, results("fast.json", 90));
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("2 faster"));
}

TEST_F(CliCompare, UnclearDifferencesAreFour) {
  json j = read_json(results("base.json", 100));
  for (json& entry : j["benchmarks"]) {
    json& samples = entry["attnbench"]["time"]["samples_us"];
    for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = i % 2 == 0 ? 60.0 : 150.0;
  }
  const Outcome o = compare(scratch_.path("base.json"), scratch_.write("noisy.json", j.dump()));
  EXPECT_EQ(o.exit_code, 4) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("2 inconclusive"));
}

// Two tries, since a busy machine is no part of the estimate.
TEST(TimedRun, TakesAsLongAsListSays) {
  if (kSanitized) GTEST_SKIP() << "list estimates the time of a build without sanitizers";
  const Scratch scratch;
  const std::string file = source_path("configs/gate.yaml");
  const std::string list = run_attnbench(scratch, {"list", file, "--device", "cpu"}).out;
  std::smatch range;
  ASSERT_TRUE(std::regex_search(list, range, std::regex("; about ([0-9.]+) to ([0-9.]+) s, "))) << list;
  const double least = std::stod(range[1]), most = std::stod(range[2]);
  double seconds = 0;
  for (int attempt = 0; attempt < 2 && (attempt == 0 || seconds > most); ++attempt) {
    const auto begin = std::chrono::steady_clock::now();
    run_timed(scratch, {"run", file, "--device", "cpu", "-q", "--out", "out"});
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
  EXPECT_GT(seconds, least);
  const std::vector<json> records = read_records(scratch.dir() / "out");
  const auto disturbed =
      std::ranges::count_if(records, [](const json& r) { return r["time"]["disturbed"] > 0; });
  if (seconds > most && disturbed > 0) GTEST_SKIP() << "others took the cores in " << disturbed << " cases";
  EXPECT_LT(seconds, most);
}

}  // namespace
}  // namespace attnbench::testing
