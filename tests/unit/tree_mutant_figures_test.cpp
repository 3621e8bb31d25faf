// What results/README.md says of mutants is what the committed file holds, and every survivor has its reason.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/unit/tree_tables.h"

namespace attnbench {
namespace {

using nlohmann::json;

const std::filesystem::path kFile = "results/baselines/cpu/mutants.json";

json committed() { return json::parse(tree::read(tree::root() / kFile)); }

/// Changes that scripts/mutate_equivalent.json explains: file, old line, new line.
std::map<json, std::string> reasons() {
  std::map<json, std::string> out;
  for (const json& e : json::parse(tree::read(tree::root() / "scripts/mutate_equivalent.json"))) {
    EXPECT_GT(e["why"].get<std::string>().size(), 10u);
    for (const json& change : e["changes"]) out[change] = e["why"];
  }
  return out;
}

TEST(TreeMutantFigures, EverySurvivorIsExplained) {
  const json file = committed();
  const auto known = reasons();
  EXPECT_GE(file["mutants"].size(), 80u);
  std::set<std::string> files;
  for (const json& m : file["mutants"]) {
    files.insert(m["file"]);
    EXPECT_NE(m["old"], m["new"]);
    if (m["verdict"] != "survived") continue;
    EXPECT_EQ(known.count({m["file"], m["old"], m["new"]}), 1u) << m.dump();
  }
  EXPECT_GE(files.size(), 20u) << "mutants of all files";
}

TEST(TreeMutantFigures, TablesAreAsMeasured) {
  const json file = committed();
  std::map<std::string, std::map<std::string, int>> tallies;
  std::map<std::string, int> survivors;
  const auto known = reasons();
  for (const json& m : file["mutants"]) {
    const std::string verdict = m["verdict"] == "caught" ? m["config"] : m["verdict"];
    for (const std::string& row : {m["file"].get<std::string>(), std::string("all")}) {
      ++tallies[row][verdict];
      ++tallies[row]["mutants"];
    }
    if (verdict == "survived") ++survivors[known.at({m["file"], m["old"], m["new"]})];
  }
  const std::string readme = tree::read(tree::root() / "results/README.md");
  const auto rows = tree::table(readme, "| file | mutants |");
  EXPECT_EQ(rows.size(), tallies.size());
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 7u);
    auto& tally = tallies[row[0]];
    const char* columns[] = {"mutants", "configs/smoke.yaml", "configs/semantics.yaml",
                             "refused", "survived",           "same code"};
    for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(row[i + 1], std::to_string(tally[columns[i]])) << row[0];
  }
  const auto whys = tree::table(readme, "| survivors |");
  EXPECT_EQ(whys.size(), survivors.size());
  for (const auto& row : whys) EXPECT_EQ(row[0], std::to_string(survivors[row[1]])) << row[1];
}

}  // namespace
}  // namespace attnbench
