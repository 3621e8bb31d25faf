// Every row of the key table: the parser reads its value back from text, its default is the field's default,
// and reports name it once.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "harness/config/feature_keys.h"
#include "harness/config/keys.h"
#include "harness/config/serving_value.h"
#include "harness/config/sweep_file.h"
#include "kernels/contract/kernel.h"

namespace attnbench {
namespace {

using Json = SweepKey::Json;

/// Values that the schema allows: all words, both ends of integers, and a number between.
void add_values(const Json& schema, std::vector<std::string>& values) {
  if (schema.contains("anyOf")) {
    for (const Json& option : schema.at("anyOf")) add_values(option, values);
  } else if (schema.contains("enum")) {
    for (const Json& word : schema.at("enum")) values.push_back(word.get<std::string>());
  } else if (schema.contains("const")) {
    values.push_back(schema.at("const").get<std::string>());
  } else if (schema.value("type", "") == "boolean") {
    values.insert(values.end(), {"true", "false"});
  } else if (schema.value("type", "") == "integer") {
    values.push_back(schema.at("minimum").dump());
    values.push_back(schema.at("maximum").dump());
  } else if (schema.value("type", "") == "number") {
    values.push_back("0.5");
  }
}

std::vector<std::string> values_of(const SweepKey& key) {
  if (key.name == "heads") return {"6/3", "5"};
  if (key.name == "window") return {"none", "\"4095,0\"", "\"-1,7\""};
  if (key.name == "batch") return {"2q2k_32q1s1k", "q7"};
  std::vector<std::string> values;
  add_values(key.schema, values);
  return values;
}

Setting read(const std::string& key, const std::string& value) {
  return parse_inline_case(fmt::format("{{{}: {}}}", key, value)).sweeps.at(0).fixed.at(0);
}

TEST(Keys, TextIsWhatIsRead) {
  for (const SweepKey& key : sweep_keys()) {
    const std::vector<std::string> values = values_of(key);
    EXPECT_GE(values.size(), 1u) << key.name;
    for (const std::string& value : values) {
      SCOPED_TRACE(key.name + ": " + value);
      const Setting setting = read(key.name, value);
      CaseParams params;
      setting.apply(params);
      EXPECT_EQ(key.text(params), setting.text);
      key.reset(params);
      EXPECT_EQ(params, CaseParams{});
    }
  }
}

TEST(Keys, EveryValueChangesTextAndReport) {
  for (const SweepKey& key : sweep_keys()) {
    std::set<std::string> texts, reports;
    CaseParams paged;  // here rotary_dim and similar keys are reported as set
    paged.kv = KvSource::kPaged;
    paged.rotary = Rotary::kNeox;
    paged.dtype = DType::kFp16;
    for (const std::string& value : values_of(key)) {
      CaseParams params = paged;
      params.path = key.name == "decode_threshold" ? Path::kSplitDecode : Path::kDcp;
      read(key.name, value).apply(params);
      Json report;
      key.report(report, params);
      texts.insert(key.text(params));
      reports.insert(report.dump());
    }
    EXPECT_EQ(texts.size(), values_of(key).size()) << key.name;
    EXPECT_GE(reports.size(), std::min<std::size_t>(values_of(key).size(), 2)) << key.name;
  }
}

TEST(Keys, ReportsNameEachParameterOnce) {
  std::set<std::string> names;
  for (const SweepKey& key : sweep_keys()) {
    Json report;
    key.report(report, CaseParams{});
    EXPECT_FALSE(report.empty()) << key.name;
    for (const auto& [name, value] : report.items()) EXPECT_TRUE(names.insert(name).second) << name;
  }
}

/// The features that a case needs whose keys are those of the first mapping, then of the second.
uint64_t features_with(const std::string& first, const std::string& second) {
  CaseParams p;
  for (const std::string& keys : {first, second}) {
    const SweepFile file = parse_inline_case(fmt::format("{{batch: q7, {}}}", keys));
    for (const Setting& s : file.sweeps.at(0).fixed) s.apply(p);
  }
  return features_of(p);
}

TEST(Keys, EveryFeatureOfAKernelHasAKeyThatNeedsIt) {
  for (const FeatureName& f : kFeatureNames) {
    const std::string key = key_that_needs(f.bit, Op::kAttention);
    EXPECT_NE(key, "") << f.name;
    if (key.empty()) continue;
    bool needed = false;  // in a case that does not need it without the key
    for (const char* beside :
         {"kv: contiguous", "kv: paged", "dtype: fp16", "kv: paged, append: in_call",
          "kv: paged, append: in_call, rotary: neox", "op: kv_append, kv: paged, kv_dtype: int8",
          "op: kv_move, kv: paged", "op: kv_move, kv: paged, move: gather", "op: merge_states"}) {
      try {
        needed =
            needed || ((features_with(beside, "") & f.bit) == 0 && (features_with(beside, key) & f.bit) != 0);
      } catch (const std::exception& e) {  // a key that no row has, for one
        ADD_FAILURE() << f.name << ": " << key << ": " << e.what();
      }
    }
    EXPECT_TRUE(needed) << f.name << ": " << key;
  }
  for (const Feature bit : {kKTokenScales, kVTokenScales})  // which kv_append understands otherwise
    EXPECT_NE(features_with("op: kv_append, kv: paged", key_that_needs(bit, Op::kKvAppend)) & bit, 0u);
  EXPECT_STREQ(key_that_needs(uint64_t{1} << 63, Op::kAttention), "");
}

TEST(Keys, ThePageOfServersHasTheirTable) {
  std::ifstream file(ATTNBENCH_SOURCE_DIR "/harness/serving/README.md");
  std::stringstream page;
  page << file.rdbuf();
  const std::string table = "<!-- serving keys -->\n" + serving_markdown() + "<!-- end -->";
  EXPECT_NE(page.str().find(table), std::string::npos) << table;
}

}  // namespace
}  // namespace attnbench
