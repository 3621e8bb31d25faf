// The estimate of a run's time holds for runs that were made.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "harness/cases/case.h"
#include "harness/session/estimate.h"

namespace attnbench {
namespace {

using nlohmann::json;

CaseParams params_of(const std::string& text) { return expand(parse_inline_case(text)).cases.at(0).params; }

/// The mapping of a line "attnbench run --case '{...}' ...".
std::string mapping_of(const std::string& repro) {
  const std::size_t begin = repro.find('{');
  return repro.substr(begin, repro.find('\'', begin) - begin);
}

TEST(Estimate, HoldsForCommittedRuns) {
  for (const char* name : {"quickstart", "prefill", "decode", "mixed"}) {
    std::ifstream in(std::string(ATTNBENCH_SOURCE_DIR) + "/results/baselines/h100/" + name + ".json");
    const json file = json::parse(in);
    const Machine machine = {DeviceKind::kCuda, file.at("context").at("num_cpus").get<int>(), 0};
    CaseSeconds estimate;
    double check = 0, time = 0;
    for (const json& entry : file.at("benchmarks")) {
      const json& record = entry.at("attnbench");
      if (record.value("status", "pass") == "skip") continue;
      const json& stages = record.at("stages");
      check += stages.at("setup_s").get<double>() + stages.at("verify_s").get<double>();
      time += stages.at("time_s").get<double>();
      const CaseParams params = params_of(mapping_of(record.at("repro").get<std::string>()));
      estimate = estimate + estimated_seconds(params, machine, CheckMode::kSampled, false);
    }
    EXPECT_GT(check, estimate.check.least) << name;
    EXPECT_LT(check, estimate.check.most) << name;
    EXPECT_GT(time, estimate.time.least) << name;
    EXPECT_LT(time, estimate.time.most) << name;
    EXPECT_LT(estimate.check.most, 30 * estimate.check.least) << name << ": says something";
  }
}

TEST(Estimate, IsOfWhatIsAskedFor) {
  const CaseParams params = params_of("{batch: 4q1k}");
  const Machine machine;
  const CaseSeconds off = estimated_seconds(params, machine, CheckMode::kOff, false);
  const CaseSeconds sampled = estimated_seconds(params, machine, CheckMode::kSampled, false);
  const CaseSeconds full = estimated_seconds(params, machine, CheckMode::kFull, false);
  const CaseSeconds invariants = estimated_seconds(params, machine, CheckMode::kSampled, true);
  EXPECT_LT(off.check.most, sampled.check.most);
  EXPECT_LT(sampled.check.most, full.check.most);
  EXPECT_LT(sampled.check.most, invariants.check.least) << "a dozen launches and their comparisons";
  EXPECT_EQ(off.time.most, full.time.most);
  for (const CaseSeconds& s : {off, sampled, full, invariants}) {
    EXPECT_LT(0, s.check.least);
    EXPECT_LT(s.check.least, s.check.most);
    EXPECT_LT(s.time.least, s.time.most);
  }
}

// The stopping rule lets no case have more than a second of samples, unless ten of them take longer.
TEST(Estimate, SmallCasesHaveTheirBudgetOfSamples) {
  const CaseParams params = params_of("{batch: q1, heads: 1}");
  const CaseSeconds small = estimated_seconds(params, {}, CheckMode::kOff, false);
  EXPECT_GT(small.time.least, 0.2);
  EXPECT_LT(small.time.most, 2);
  const CaseSeconds large = estimated_seconds(params_of("{batch: 8q16k}"), {}, CheckMode::kOff, false);
  EXPECT_GT(large.time.least, 10);
}

}  // namespace
}  // namespace attnbench
