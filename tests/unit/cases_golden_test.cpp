// Ids name cases in baselines that are in other repositories, so the ids of configs/ must not change
// unnoticed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "harness/config/keys.h"

namespace attnbench {
namespace {

/// FNV-1a.
uint64_t digest_of(uint64_t digest, const std::string& text) {
  for (const char c : text) digest = (digest ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return digest;
}

/// One line per sweep of a file: the number of cases, and a digest of their ids in order.
std::string golden_lines(const std::filesystem::path& file) {
  struct Line {
    std::string sweep;
    std::size_t cases = 0;
    uint64_t digest = 0xcbf29ce484222325u;
  };
  std::vector<Line> lines;
  for (const Case& c : expand(load_sweep_file(file.string())).cases) {
    if (lines.empty() || lines.back().sweep != c.sweep) lines.push_back({c.sweep});
    ++lines.back().cases;
    lines.back().digest = digest_of(lines.back().digest, c.id + "\n");
  }
  std::string text;
  for (const Line& l : lines)
    text += fmt::format("{} {} {} {:016x}\n", file.filename().string(), l.sweep, l.cases, l.digest);
  return text;
}

/// The lines of `text` that `other` lacks, each behind `mark`.
std::string lines_without(const std::string& text, const std::string& other, const char* mark) {
  std::stringstream others(other), lines(text);
  std::set<std::string> known;
  std::string line, out;
  while (std::getline(others, line)) known.insert(line);
  while (std::getline(lines, line)) {
    if (!known.count(line)) out += mark + line + "\n";
  }
  return out;
}

/// Keys, or single values of one, that smoke.yaml lacks.
const std::map<std::string, std::string> kNotInSmoke = {
    {"expect: refused", "a kernel may pass without refusals; semantics*.yaml"},
    {"bad_launch", "the same"},
    {"dcp_combine", "takes several GPUs; dcp.yaml"},
    {"page_layout: served", "takes a replayed server; serving_quick.yaml"},
};

/// Every value that a key's schema names; "": some number.
std::set<std::string> values_of(const SweepKey::Json& schema) {
  std::set<std::string> values;
  if (schema.contains("anyOf")) {
    for (const auto& option : schema.at("anyOf")) values.merge(values_of(option));
  } else if (schema.contains("enum")) {
    for (const auto& word : schema.at("enum")) values.insert(word.get<std::string>());
  } else if (schema.contains("const")) {
    values.insert(schema.at("const").get<std::string>());
  } else if (schema.value("type", "") == "boolean") {
    values.insert({"true", "false"});
  } else {
    values.insert("");
  }
  return values;
}

TEST(Golden, SmokeHasEachValueOfEachKey) {
  const auto smoke =
      expand(load_sweep_file((std::filesystem::path(ATTNBENCH_SOURCE_DIR) / "configs/smoke.yaml").string()));
  std::set<std::string> reasons;
  for (const SweepKey& key : sweep_keys()) {
    std::set<std::string> left = values_of(key.schema);
    for (const Case& c : smoke.cases) {
      if (!key.applies(c.params)) continue;
      if (!key.is_default(c.params)) left.erase("");
      left.erase(key.text(c.params));
    }
    for (const std::string& value : left) {
      const std::string what = value.empty() ? key.name : key.name + ": " + value;
      const std::string& listed = kNotInSmoke.contains(what) ? what : key.name;
      EXPECT_TRUE(kNotInSmoke.contains(listed)) << "smoke.yaml has no case with " << what;
      reasons.insert(listed);
    }
  }
  for (const auto& [what, reason] : kNotInSmoke)
    EXPECT_TRUE(reasons.contains(what)) << what << " is in smoke.yaml";
}

TEST(Golden, QuickIsAPartOfSmoke) {
  const auto cases = [](const std::string& name) {
    const std::filesystem::path configs = std::filesystem::path(ATTNBENCH_SOURCE_DIR) / "configs";
    std::map<std::string, uint64_t> seeds;
    for (const Case& c : expand(load_sweep_file((configs / name).string())).cases) seeds[c.id] = c.seed;
    return seeds;
  };
  const auto smoke = cases("smoke.yaml"), quick = cases("quick.yaml");
  for (const auto& [id, seed] : quick) {
    EXPECT_TRUE(smoke.contains(id) && smoke.at(id) == seed)
        << "quick.yaml has " << id << ", which smoke.yaml has no longer: scripts/quick.py chooses anew";
  }
  EXPECT_LT(3 * quick.size(), smoke.size());
}

TEST(Golden, IdsOfConfigsAreWhatTheyWere) {
  const std::filesystem::path root = ATTNBENCH_SOURCE_DIR;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(root / "configs")) {
    if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::string now;
  for (const auto& file : files) now += golden_lines(file);
  std::ifstream in(root / "tests/unit/golden_ids.txt");
  std::stringstream before;
  before << in.rdbuf();
  if (now == before.str()) return;
  const std::filesystem::path written = std::filesystem::path(ATTNBENCH_TEST_BUILD_DIR) / "golden_ids.txt";
  std::ofstream(written) << now;
  ADD_FAILURE() << lines_without(before.str(), now, "- ") << lines_without(now, before.str(), "+ ")
                << "if a change of ids is meant, or a sweep changed: cp " << written.string()
                << " tests/unit/golden_ids.txt; ids that change make baselines useless";
}

}  // namespace
}  // namespace attnbench
