// The figures of the README's table are those of the committed results.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/unit/tree_tables.h"

namespace attnbench {
namespace {

using nlohmann::json;

/// The rows of the table between <!-- NAME --> and <!-- end -->.
std::vector<std::vector<std::string>> table(const std::string& text, const std::string& name) {
  const std::size_t begin = text.find("<!-- " + name + " -->");
  const std::size_t end = text.find("<!-- end -->", begin);
  if (begin == std::string::npos || end == std::string::npos) return {};
  return tree::table(text.substr(begin, end - begin), "| ");
}

/// What a row says wrongly of its entry; empty where all of it is true.
std::string wrong_in(const std::vector<std::string>& row, const json& a) {
  const json& t = a["time"];
  const json& c = a["check"];
  if (a["status"] != "pass") return "status";
  const double median = t["median_us"];
  if (tree::differs(row[3], median)) return "time";
  if (tree::differs(row[4], (t["hi_us"].get<double>() - t["lo_us"].get<double>()) / 2 / median * 100))
    return "interval";
  if (row[5] != "-" && tree::differs(row[5], a["tflops"])) return "TFLOP/s";
  if (tree::differs(row[6], a["gbs"])) return "GB/s";
  if (tree::differs(row[7], 100 * a["sol"].get<double>())) return "%SOL";
  if (row[8] == "exact" ? c["method"] != "bitwise" : tree::differs(row[8], c["max_z"])) return "z";
  const std::string rows =
      std::to_string(c["rows"].get<int64_t>()) + "/" + std::to_string(c["rows_total"].get<int64_t>());
  return row[9] == rows ? "" : "rows";
}

/// The attnbench object of a case and kernel in a baseline; null where there is none.
json entry(const std::string& device, const std::string& id, const std::string& kernel) {
  const json results =
      json::parse(tree::read(tree::root() / "results/baselines" / device / "quickstart.json"));
  for (const json& b : results["benchmarks"]) {
    if (b["attnbench"]["id"] == id && b["attnbench"]["kernel"] == kernel) return b["attnbench"];
  }
  return nullptr;
}

TEST(TreeReadmeFigures, QuickstartTableIsTheCommittedResults) {
  const auto rows = table(tree::read(tree::root() / "README.md"), "quickstart");
  ASSERT_GE(rows.size(), 10u);
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 10u) << row[1];
    const json a = entry(row[0], row[1], row[2]);
    ASSERT_FALSE(a.is_null()) << "no such result: " << row[0] << " " << row[1] << " " << row[2];
    EXPECT_EQ(wrong_in(row, a), "") << row[0] << " " << row[1] << " " << row[2];
  }
}

TEST(TreeReadmeFigures, AWrongFigureIsSeen) {
  auto row = table(tree::read(tree::root() / "README.md"), "quickstart").at(0);
  const json a = entry(row[0], row[1], row[2]);
  ASSERT_EQ(wrong_in(row, a), "");
  row[3] = std::to_string(std::stod(row[3]) * 0.98);
  EXPECT_EQ(wrong_in(row, a), "time");
}

/// What the matrix of tests/faults/README.md says wrongly of the committed selftest; empty where all is true.
std::string wrong_in_matrix(const std::string& readme, const json& result) {
  std::istringstream lines(readme);
  std::map<std::string, std::string> rows;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t name = line.find("| `");
    if (name != std::string::npos) rows[line.substr(name + 3, line.find('`', name + 3) - name - 3)] = line;
  }
  for (const json& f : result["faults"]) {
    const std::string name = f["name"];
    if (!rows.count(name)) return name + " is missing";
    const std::string& row = rows[name];
    // null: the rule has nothing to say of this fault.
    const auto word = [](const json& w) { return w.is_null() ? std::string() : w.get<std::string>(); };
    const std::string rules = "| " + word(f["allclose_1e2"]) + " | " + word(f["twice_naive"]) + " |";
    if (row.size() < rules.size() || row.substr(row.size() - rules.size()) != rules)
      return name + ": " + rules;
    std::set<std::string> columns;
    for (const json& d : f["caught_by"]) {
      const std::string detector = d.get<std::string>().substr(d.get<std::string>().find(':') + 1);
      const bool own =
          std::set<std::string>{"poison", "empty_row", "max_z", "row_z2", "bias", "lse"}.count(detector) > 0;
      if (own) columns.insert(detector);
      if (!own && row.find(detector) == std::string::npos) return name + ": " + detector;
    }
    std::size_t marks = 0;
    for (std::size_t at = row.find(" x |"); at != std::string::npos; at = row.find(" x |", at + 1)) ++marks;
    if (marks != columns.size()) return name + ": detectors";
    if (f["outcome"] != "caught") return name + " escaped";
  }
  if (result["clean"]["false_alarms"] != 0) return "false alarms";
  return rows.size() == result["faults"].size() ? "" : "a row without a result";
}

TEST(TreeReadmeFigures, FaultMatrixIsTheCommittedSelftest) {
  const std::string readme = tree::read(tree::root() / "tests/faults/README.md");
  json result = json::parse(tree::read(tree::root() / "results/baselines/cpu/selftest.json"));
  EXPECT_EQ(wrong_in_matrix(readme, result), "");
  EXPECT_GE(result["faults"].size(), 45u);
  EXPECT_GE(result["clean"]["runs"].get<int>(), 500);
  json& first = result["faults"][0];
  first["allclose_1e2"] = first["allclose_1e2"] == "pass" ? "fail" : "pass";
  EXPECT_NE(wrong_in_matrix(readme, result), "") << "a wrong cell is seen";
}

}  // namespace
}  // namespace attnbench
