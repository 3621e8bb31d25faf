// Each key of the YAML format and each of its words has a switch: a fault of the selftest that ignores it
// (each must be caught, cli_selftest_test.cpp), or a test in which a kernel accepts it and ignores it. The
// switches are those that the faults name (Fault::ignores).
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "harness/config/keys.h"
#include "harness/selftest/fault.h"

namespace attnbench {
namespace {

const std::string kPaths = "tests/unit/session_paths_test.cpp: ";
const std::string kRanks = "tests/unit/session_ranks_test.cpp: ";

/// Switches that no fault can show, because a fault changes one launch: the tests that show them, as
/// "file: name".
const std::map<std::string, std::vector<std::string>>& shown_by_tests() {
  static const std::map<std::string, std::vector<std::string>> all = {
      {"shared_prefix", {kPaths + "CascadeOfAShorterPrefix"}},
      {"path: cascade", {kPaths + "CascadeWithoutItsPrefix", kPaths + "CascadeWithTwoSinks"}},
      {"path: split_decode", {kPaths + "SplitPacked"}},
      {"path: dcp", {kPaths + "DcpOneCacheForAll", kPaths + "DcpLocalLengths"}},
      {"decode_threshold", {kPaths + "SplitPagedByThreshold"}},
      {"dcp_ranks", {kPaths + "DcpLocalLengths"}},
      {"dcp_interleave", {kPaths + "DcpInterleaveIgnored"}},
      {"dcp_combine: all_gather",
       {kRanks + "WithAnLseInTheWrongBaseFail", kRanks + "OfWhichOneWritesNothingFail"}},
      {"dcp_combine: all_to_all",
       {kRanks + "WithAnLseInTheWrongBaseFail", kRanks + "OfWhichOneWritesNothingFail"}},
      {"dcp_combine: fused",
       {kRanks + "WithAnLseInTheWrongBaseFail", kRanks + "OfWhichOneWritesNothingFail"}},
      // A fault that ignores a shuffled table ignores these, too. That they are what they should be, tests show.
      {"page_layout: lifo_aged",
       {"tests/unit/tensors_plan_test.cpp: AgedBlocksLieBetweenOrderedAndShuffledOnes"}},
      {"page_layout: served",
       {"tests/unit/tensors_served_test.cpp: AnAppendWritesTheStepsNewTokensThroughItsTable"}},
      // No key enables these mistakes.
      {"",
       {kPaths + "FindsAKernelThatKeepsTheLengthsOfItsFirstLaunch",
        "tests/kernels/cpu_far_offsets_test.cpp: TEST(FarOffsets, Pages)",
        "tests/kernels/cpu_append_test.cpp: SmallCachesAreRefusedBeforeAnythingIsWritten"}},
  };
  return all;
}

/// Words that request nothing, and kinds of values, which show what other keys request.
const std::set<std::string> kPlain = {"op: attention",
                                      "q_dtype: same",
                                      "kv_dtype: same",
                                      "alibi: none",
                                      "path: one_call",
                                      "dcp_combine: one_device",
                                      "append: none",
                                      "rotary: none",
                                      "cache_batch_idx: identity",
                                      "block_table_rows: sequence",
                                      "data: normal",
                                      "data: peaked",
                                      "data: outlier",
                                      "data: corners",
                                      "lse_layout: head_major",
                                      "out_lse_layout: head_major",
                                      "partial_lse: dense",
                                      "lse_log: natural",
                                      "states_per_row: equal",
                                      "empty_lse: minus_inf",
                                      "slots: sequence",
                                      "pools: same",
                                      "starts: none",
                                      "query_out: none",
                                      "positions: int32",
                                      "expect: result",
                                      "bad_launch: none",
                                      "kv_layout: nhd",
                                      "expired: kept",
                                      "q_descales: usual",
                                      "k_descales: usual",
                                      "v_descales: usual",
                                      "out_dtype: same",
                                      "custom_mask: none",
                                      "topk_length: full"};

bool is_key(const std::string& name) {
  const auto& keys = sweep_keys();
  return std::any_of(keys.begin(), keys.end(), [&](const SweepKey& key) { return key.name == name; });
}

/// The key of a switch, and its word; empty if it has none.
std::pair<std::string, std::string> parts_of(const std::string& text) {
  const std::size_t colon = text.find(": ");
  if (colon == std::string::npos) return {text, ""};
  return {text.substr(0, colon), text.substr(colon + 2)};
}

/// Whether a mapping sets the key, and sets it to the word if one is given.
bool sets(const std::string& mapping, const std::string& key, const std::string& word) {
  for (const std::string before : {"{", " "}) {
    const std::size_t at = mapping.find(std::string(before).append(key).append(": ").append(word));
    if (at == std::string::npos) continue;
    const std::size_t end = at + before.size() + key.size() + 2 + word.size();
    if (word.empty() || end == mapping.size() || mapping[end] == ',' || mapping[end] == '}') return true;
  }
  return false;
}

TEST(Switches, SetsFindsKeysAndWords) {
  EXPECT_TRUE(sets("{kv: paged, kv_dtype: int8_k}", "kv_dtype", "int8_k"));
  EXPECT_FALSE(sets("{kv: paged, kv_dtype: int8_k}", "kv_dtype", "int8"));
  EXPECT_FALSE(sets("{kv: paged, kv_dtype: int8_k}", "dtype", ""));
}

TEST(Switches, EveryFaultSetsWhatItIgnores) {
  for (const FaultClass& group : all_faults()) {
    for (const Fault& fault : group.faults) {
      for (const std::string& text : fault.ignores) {
        const auto [key, word] = parts_of(text);
        EXPECT_TRUE(is_key(key)) << fault.name << ": no key is called " << key;
        EXPECT_TRUE(std::any_of(fault.cases.begin(), fault.cases.end(),
                                [&, k = key, w = word](const auto& mapping) { return sets(mapping, k, w); }))
            << fault.name << " has no case with " << text;
      }
    }
  }
}

TEST(Switches, NoFaultOfTheMatrixIsLost) {
  std::set<std::string> names;
  for (const FaultClass& group : all_faults()) {
    for (const Fault& fault : group.faults) EXPECT_TRUE(names.insert(fault.name).second) << fault.name;
  }
  std::ifstream file(ATTNBENCH_SOURCE_DIR "/results/baselines/cpu/selftest.json");
  const nlohmann::json matrix = nlohmann::json::parse(file);
  EXPECT_GE(matrix["faults"].size(), 200u);
  for (const auto& fault : matrix["faults"]) {
    EXPECT_TRUE(names.count(fault["name"].get<std::string>()))
        << fault["name"] << " of results/baselines/cpu/selftest.json is not in the table";
  }
}

TEST(Switches, TheTestsThatShowTheOthersAreThere) {
  for (const auto& [text, tests] : shown_by_tests()) {
    EXPECT_TRUE(text.empty() || is_key(parts_of(text).first)) << text;
    for (const std::string& test : tests) {
      const auto [path, name] = parts_of(test);
      std::ifstream file(std::string(ATTNBENCH_SOURCE_DIR "/") + path);
      std::stringstream source;
      source << file.rdbuf();
      EXPECT_NE(source.str().find(name), std::string::npos) << test << " is not there";
    }
  }
}

TEST(Switches, EveryKeyAndWordHasOne) {
  std::set<std::string> keys, words;
  const auto add = [&](const std::string& text) {
    keys.insert(parts_of(text).first);
    words.insert(text);
  };
  for (const FaultClass& group : all_faults()) {
    for (const Fault& fault : group.faults) std::for_each(fault.ignores.begin(), fault.ignores.end(), add);
  }
  for (const auto& [text, tests] : shown_by_tests()) add(text);
  for (const SweepKey& key : sweep_keys()) {
    EXPECT_TRUE(keys.count(key.name))
        << "no switch for " << key.name << ": add a fault that ignores it, with \"" << key.name
        << "\" in Fault::ignores (harness/selftest/faults_ignored.cpp)";
    if (!key.schema.contains("enum")) continue;
    for (const auto& value : key.schema["enum"]) {
      const std::string word = key.name + ": " + value.get<std::string>();
      EXPECT_TRUE(words.count(word) || kPlain.count(word)) << "no switch for " << word;
    }
  }
}

}  // namespace
}  // namespace attnbench
