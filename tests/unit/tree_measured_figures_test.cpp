// What the READMEs say of the gate's reliability and the harness's cost is what the committed_json files hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tests/unit/tree_files.h"

namespace attnbench {
namespace {

using nlohmann::json;

/// results/baselines/<folder>/NAME, of every folder that has it.
std::vector<json> committed_json(const std::string& name) {
  std::vector<json> out;
  for (const auto& folder : std::filesystem::directory_iterator(tree::root() / "results/baselines")) {
    if (std::filesystem::exists(folder.path() / name))
      out.push_back(json::parse(tree::read(folder.path() / name)));
  }
  return out;
}

std::string text(const char* format, double x) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, format, x);
  return buffer;
}

/// The part of a row of scripts/gate_trust.py --table that decides.
std::string trust_row(const json& file, const json& tally) {
  return "| " + file["device"]["model"].get<std::string>() + " | " + file["config"].get<std::string>() +
         " | " + std::to_string(tally["slower_by_percent"].get<int>()) + " % | " +
         std::to_string(tally["gates"].get<int>()) + " | " +
         text("%.1f %% |", 100 * tally["called_slower_share"].get<double>());
}

TEST(TreeMeasuredFigures, TrustInTheGateIsAsMeasured) {
  auto files = committed_json("gate_trust.json");
  if (files.empty()) GTEST_SKIP() << "no results/baselines/*/gate_trust.json";
  for (json& turns : committed_json("gate_trust_turns.json")) files.push_back(std::move(turns));
  const std::string readme = tree::read(tree::root() / "results/README.md");
  for (const json& file : files) {
    for (const json& tally : file["tallies"]) {
      const std::string row = trust_row(file, tally);
      EXPECT_NE(readme.find(row), std::string::npos) << "results/README.md lacks: " << row;
    }
  }
}

/// The same of a row of gates beside busy processes.
std::string load_row(const json& file, const json& tally) {
  const std::string kind = tally["kind"];
  const auto count = [&](const char* key) { return std::to_string(tally[key].get<int>()); };
  std::string row = "| " + file["device"]["model"].get<std::string>() + " | " +
                    file["config"].get<std::string>() + " | " + count("busy_processes") + " | " +
                    count("gates") + " " + kind;
  if (kind != "equal") row += text(" (%g times)", 1 + file["slower_by_percent"].get<double>() / 100);
  return row + " | " + count("wrong") + " | " + count("inconclusive") + " | " + count("right") + " |";
}

TEST(TreeMeasuredFigures, NoVerdictNamesTheWrongDirectionBesideBusyProcesses) {
  auto files = committed_json("gate_trust_load.json");
  ASSERT_FALSE(files.empty()) << "no results/baselines/*/gate_trust_load.json";
  for (json& turns : committed_json("gate_trust_load_turns.json")) files.push_back(std::move(turns));
  const std::string readme = tree::read(tree::root() / "results/README.md");
  const std::size_t begin = readme.find("<!-- gate_trust_load -->"), end = readme.find("<!-- end -->", begin);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const std::string table = readme.substr(begin, end - begin);
  std::ptrdiff_t rows = 0;
  for (const json& file : files) {
    for (const json& tally : file["loads"]) {
      const std::string row = load_row(file, tally);
      EXPECT_NE(table.find(row), std::string::npos) << "results/README.md lacks: " << row;
      EXPECT_EQ(tally["wrong"], 0) << row;
      EXPECT_GT(tally["gates"], 0) << row;
      EXPECT_EQ(tally["gates"], tally["right"].get<int>() + tally["inconclusive"].get<int>()) << row;
      ++rows;
    }
  }
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), rows + 3) << "marker, two lines of head, rows";
}

TEST(TreeMeasuredFigures, CostOfTheHarnessIsUnderItsBars) {
  const auto files = committed_json("harness_cost.json");
  if (files.empty()) GTEST_SKIP() << "no results/baselines/*/harness_cost.json";
  const std::string readme = tree::read(tree::root() / "harness/README.md");
  for (const json& file : files) {
    const bool cpu = file["context"]["device"] == "cpu";
    double least = 1e9, most = 0;
    for (const json& b : file["benchmarks"]) {
      const std::string name = b["name"];
      const double ms = b["real_time"];
      EXPECT_FALSE(b.value("error_occurred", false)) << name;
      if (name.rfind("expand_100000_cases", 0) == 0) {
        EXPECT_LT(ms, 1000);
      } else if (name.rfind("overhead_of_a_case", 0) == 0) {
        EXPECT_LT(ms, cpu ? 50 : 150) << name;
      } else {
        least = std::min(least, b["host_mib"].get<double>());
        most = std::max(most, b["host_mib"].get<double>());
        continue;
      }
      EXPECT_NE(readme.find(text("%.0f ms", ms)), std::string::npos)
          << "harness/README.md lacks " << name << ", " << ms;
    }
    // A thread of the reference holds the scores of its tile: 4 query heads x 131,072 keys in float64. There
    // are 8 such tiles in the benchmark's case. No tensor may be held whole: K and V are 512 MiB.
    const double scores = 4.0 * std::min(8, file["context"]["num_cpus"].get<int>());
    EXPECT_LT(most - least, 16 + scores) << "MiB of host memory that grow with the keys and values";
  }
}

}  // namespace
}  // namespace attnbench
