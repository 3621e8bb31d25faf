// The committed JSON Schema equals the one from the parser's table, and both accept the same files.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "harness/config/sweep_file.h"

namespace attnbench {
namespace {

using Json = nlohmann::ordered_json;

const std::string kConfigs = std::string(ATTNBENCH_SOURCE_DIR) + "/configs";

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  throw std::logic_error("type " + type);
}

/// A validator for the part of JSON Schema that the file uses. Any other keyword fails the test. Returns what
/// is wrong, or an empty text.
std::string violation(const Json& root, const Json& schema, const Json& value, const std::string& path) {
  const auto number = [](const Json& v) { return v.get<long double>(); };
  const auto any_of = [&](const Json& options) {
    return std::count_if(options.begin(), options.end(),
                         [&](const Json& o) { return violation(root, o, value, path).empty(); });
  };
  for (const auto& [keyword, want] : schema.items()) {
    bool ok = true;
    if (keyword == "$schema" || keyword == "$defs" || keyword == "title" || keyword == "description")
      continue;
    if (keyword == "$ref") {
      const auto text = want.get<std::string>();
      std::string inner = violation(root, root.at(Json::json_pointer(text.substr(1))), value, path);
      if (!inner.empty()) return inner;
    } else if (keyword == "type") {
      ok = has_type(value, want.get<std::string>());
    } else if (keyword == "enum") {
      ok = std::find(want.begin(), want.end(), value) != want.end();
    } else if (keyword == "const") {
      ok = value == want;
    } else if (keyword == "anyOf") {
      ok = any_of(want) > 0;
    } else if (keyword == "oneOf") {
      ok = any_of(want) == 1;
    } else if (keyword == "minimum") {
      ok = !value.is_number() || number(value) >= number(want);
    } else if (keyword == "maximum") {
      ok = !value.is_number() || number(value) <= number(want);
    } else if (keyword == "exclusiveMinimum") {
      ok = !value.is_number() || number(value) > number(want);
    } else if (keyword == "exclusiveMaximum") {
      ok = !value.is_number() || number(value) < number(want);
    } else if (keyword == "pattern") {
      ok = !value.is_string() ||
           std::regex_search(value.get<std::string>(), std::regex(want.get<std::string>()));
    } else if (keyword == "minLength") {
      ok = !value.is_string() || value.get<std::string>().size() >= want.get<std::size_t>();
    } else if (keyword == "minItems") {
      ok = !value.is_array() || value.size() >= want.get<std::size_t>();
    } else if (keyword == "maxItems") {
      ok = !value.is_array() || value.size() <= want.get<std::size_t>();
    } else if (keyword == "minProperties") {
      ok = !value.is_object() || value.size() >= want.get<std::size_t>();
    } else if (keyword == "items") {
      if (!value.is_array()) continue;
      for (const Json& item : value) {
        std::string inner = violation(root, want, item, path + "[]");
        if (!inner.empty()) return inner;
      }
    } else if (keyword == "required") {
      if (!value.is_object()) continue;
      for (const Json& key : want) ok = ok && value.contains(key.get<std::string>());
    } else if (keyword == "properties") {
      if (!value.is_object()) continue;
      for (const auto& [key, property] : want.items()) {
        if (!value.contains(key)) continue;
        std::string inner = violation(root, property, value.at(key), fmt::format("{}.{}", path, key));
        if (!inner.empty()) return inner;
      }
    } else if (keyword == "additionalProperties") {
      EXPECT_EQ(want, false);
      if (!value.is_object()) continue;
      for (const auto& [key, unused] : value.items()) ok = ok && schema.at("properties").contains(key);
    } else {
      throw std::logic_error("this test does not know the schema's keyword " + keyword);
    }
    if (!ok) return fmt::format("{}: {}", path, keyword);
  }
  return "";
}

/// YAML as a JSON document, by the core schema of YAML 1.2 (section 10.3). It is independent of the parser.
Json to_json(const YAML::Node& node) {
  if (node.IsMap()) {
    Json out = Json::object();
    for (const auto& pair : node) out[pair.first.Scalar()] = to_json(pair.second);
    return out;
  }
  if (node.IsSequence()) {
    Json out = Json::array();
    for (const YAML::Node& item : node) out.push_back(to_json(item));
    return out;
  }
  if (!node.IsScalar()) return nullptr;
  const std::string& text = node.Scalar();
  if (node.Tag() != "?") return text;
  if (std::regex_match(text, std::regex("true|True|TRUE"))) return true;
  if (std::regex_match(text, std::regex("false|False|FALSE"))) return false;
  if (std::regex_match(text, std::regex("[0-9]+"))) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc{}) return value;
  }
  if (std::regex_match(text, std::regex("-[0-9]{1,18}"))) return std::stoll(text);
  const std::regex real("[-+]?(\\.[0-9]+|[0-9]+(\\.[0-9]*)?)([eE][-+]?[0-9]+)?");
  if (std::regex_match(text, real)) return std::strtod(text.c_str(), nullptr);
  return text;
}

std::string schema_violation(const std::string& yaml) {
  static const Json schema = Json::parse(json_schema());
  return violation(schema, schema, to_json(YAML::Load(yaml)), "$");
}

std::string parser_error(const std::string& yaml) {
  try {
    parse_sweep_text(yaml, "t.yaml");
  } catch (const ConfigError& e) {
    return e.what();
  }
  return "";
}

std::string sweep(const std::string& entries) { return "name: t\nsweeps: [{" + entries + "}]"; }

TEST(Schema, IsTheCommittedOne) {
  EXPECT_EQ(read_text(kConfigs + "/attnbench.schema.json"), json_schema())
      << "the table of keys has changed: write json_schema() to configs/attnbench.schema.json";
}

TEST(Schema, AcceptsEveryConfigurationOfTheTree) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kConfigs)) {
    if (entry.path().extension() != ".yaml") continue;
    const std::string text = read_text(entry.path().string());
    EXPECT_EQ(parser_error(text), "") << entry.path();
    EXPECT_EQ(schema_violation(text), "") << entry.path();
  }
}

TEST(Schema, AcceptsWhatTheParserAccepts) {
  const std::vector<std::string> good = {
      sweep(""),
      ("name: t\nseed: 18446744073709551615\ndefaults: {heads: 8, head_dim: [64, 128]}\nsweeps: [{name: a}, "
       "{name: b}]"),
      sweep("op: kv_append, kv: [packed, paged], dtype: [bf16, fp16, fp32], heads: [8, 32/8, \"4\"]"),
      sweep("batch: 2q2k_32q1s1k"),
      sweep("batch: [0q0, q1m, {lengths: 5, count: 2}, {lengths: [1, 2]}, {q: 1, s: {uniform: [1, 9]}, "
            "count: 3}]"),
      sweep("batch: {q: [1, 2], context: {lognormal: {median: 800, sigma: 1.5}, clip: [16, 8192]}, seed: 3}"),
      sweep("batch: {lengths: {constant: 5, clip: [1, 2]}, count: 1}"),
      sweep("mask: [none, causal], window: [none, \"4095,0\", \"-1,5\", \"7, 7\"]"),
      sweep("softmax_scale: [default, 0.5, 1, 1e-3], softcap: [0, 30, 0.5]"),
      sweep(
          "block_size: 65536, kv_layout: hnd, page_layout: contiguous, gap_tokens: 0, padding_tokens: 4096"),
      sweep("data: [normal, peaked, outlier, large], allow_short_kv: [true, false]"),
      sweep("batch: [\"{1,4}q1s{1k,4k}\", \"q{1,2}k_{3}q4\"]"),
      sweep("batch: {lengths: {lognormal: {median: 1k, sigma: 1}, clip: [16, 8k]}, count: 3}"),
      sweep("batch: {q: [1k, 2], s: {uniform: [2k, 1m]}}, window: [\"4k,0\", \"-1,1k\"]"),
      sweep(
          "block_size: 1k, shared_prefix: 4k, leftpad: '1k', gap_tokens: [0, 1k], new_tokens: 2k, topk: 2k"),
      sweep("cover: pairwise, dtype: [bf16, fp16]"),
      sweep("cover: 3"),
      sweep("batch: {serving: {mix: sharegpt, rate: 3, step: p50, cache_tokens: 64k}}"),
      // The parser does not read it, but requires that the file is there.
      sweep("batch: {serving: {trace: " ATTNBENCH_SOURCE_DIR "/README.md, speed_up: 0.5, skip_bad: true}}"),
      sweep("cover: {sample: 200}"),
      sweep("zip: {heads: [32/8, 64/8], softcap: [0, 30]}, exclude: [{heads: 64/8, mask: [none, causal]}]"),
  };
  for (const std::string& yaml : good) {
    EXPECT_EQ(parser_error(yaml), "") << yaml;
    EXPECT_EQ(schema_violation(yaml), "") << yaml;
  }
}

TEST(Schema, RefusesWhatTheParserRefuses) {
  const std::vector<std::string> bad = {
      "[]",
      "5",
      "name: t",
      "sweeps: [{}]",
      "name: t\nsweeps: []",
      "name: t\nsweeps: {}",
      "name: t\nsweeps: [5]",
      "name: 5\nsweeps: [{}]",
      "name: ''\nsweeps: [{}]",
      "name: t\nsweeps: [{}]\nextra: 1",
      "name: t\nsweeps: [{}]\nseed: -1",
      "name: t\nsweeps: [{}]\nseed: x",
      "name: t\nsweeps: [{}]\nseed: 1.5",
      "name: t\nsweeps: [{}]\ndefaults: []",
      "name: t\nsweeps: [{}]\ndefaults: {name: x}",
      "name: t\nsweeps: [{}]\ndefaults: {blok_size: 5}",
      sweep("blok_size: 5"),
      sweep("seed: 5"),
      sweep("name: [a]"),
      sweep("op: attn"),
      sweep("batch: {serving: {step: p50}}"),
      sweep("batch: {serving: {mix: sharegpt, trace: " ATTNBENCH_SOURCE_DIR "/README.md}}"),
      sweep("batch: {serving: {mix: sharegpt, speed_up: 2}}"),
      sweep("batch: {serving: {trace: " ATTNBENCH_SOURCE_DIR "/README.md, rate: 2}}"),
      sweep("batch: {serving: {trace: [" ATTNBENCH_SOURCE_DIR "/README.md]}}"),
      sweep("op: Attention"),
      sweep("op: 5"),
      sweep("op: "),
      sweep("op: []"),
      sweep("kv: [paged, [packed]]"),
      sweep("dtype: {}"),
      sweep("dtype: e4m3"),
      sweep("heads: 0"),
      sweep("heads: 32/"),
      sweep("heads: 32/0"),
      sweep("heads: a/b"),
      sweep("heads: 8.5"),
      sweep("head_dim: 0"),
      sweep("head_dim: 577"),
      sweep("head_dim_v: 513"),
      sweep("dropout: 1"),
      sweep("kv_dtype: int4"),
      sweep("head_dim_v: other"),
      sweep("head_dim: '64'"),
      sweep("head_dim: 64.5"),
      sweep("head_dim: [64, x]"),
      sweep("mask: true"),
      sweep("window: 4095"),
      sweep("window: [4095, 0]"),
      sweep("window: \"4095,-2\""),
      sweep("softmax_scale: 0"),
      sweep("softmax_scale: auto"),
      sweep("softcap: -1"),
      sweep("softcap: '5'"),
      sweep("block_size: 65537"),
      sweep("page_layout: striped"),
      sweep("gap_tokens: -1"),
      sweep("padding_tokens: 5000"),
      sweep("data: random"),
      sweep("allow_short_kv: yes"),
      sweep("allow_short_kv: 1"),
      sweep("batch: 4x5"),
      sweep("batch: 4Q5"),
      sweep("batch: 5"),
      sweep("batch: \"{1,}q4\""),
      sweep("batch: \"{1,4q4\""),
      sweep("batch: \"q4}\""),
      sweep("batch: \"q4{s1,s2}\""),
      sweep("batch: \"{1k}q4\""),
      sweep("batch: \"q{1k}k\""),
      sweep("batch: {lengths: 5K, count: 1}"),
      sweep("head_dim: 1k"),
      sweep("leftpad: 0k"),
      sweep("window: \"4K,0\""),
      sweep("batch: {lengths: 5, count: 1, extra: 2}"),
      sweep("batch: {q: 5, count: 1}"),
      sweep("batch: {lengths: 5, q: 1, count: 1}"),
      sweep("batch: {lengths: {normal: 5}, count: 1}"),
      sweep("batch: {lengths: {uniform: [5]}, count: 1}"),
      sweep("batch: {lengths: {lognormal: {median: 5}}, count: 1}"),
      sweep("batch: {lengths: {uniform: [1, 2], constant: 5}, count: 1}"),
      sweep("batch: {lengths: -5, count: 1}"),
      sweep("batch: {lengths: 5, count: many}"),
      sweep("zip: []"),
      sweep("zip: {}"),
      sweep("zip: {head_dim: 64}"),
      sweep("zip: {name: [a]}"),
      sweep("cover: all"),
      sweep("cover: [pairwise]"),
      sweep("cover: 2"),
      sweep("cover: '3'"),
      sweep("cover: {}"),
      sweep("cover: {sample: 0}"),
      sweep("cover: {sample: 1000001}"),
      sweep("cover: {sample: 20, seed: 1}"),
      sweep("exclude: {}"),
      sweep("exclude: []"),
      sweep("exclude: [{}]"),
      sweep("exclude: [{hed_dim: 64}]"),
      sweep("exclude: [{head_dim: x}]"),
  };
  for (const std::string& yaml : bad) {
    EXPECT_NE(parser_error(yaml), "") << yaml;
    EXPECT_NE(schema_violation(yaml), "") << yaml;
  }
}

TEST(Schema, DescribesEveryKey) {
  const Json schema = Json::parse(json_schema());
  const Json& properties = schema.at("$defs").at("sweep").at("properties");
  EXPECT_GE(properties.size(), 20u);
  for (const auto& [key, property] : properties.items()) {
    EXPECT_TRUE(property.contains("description") || property.at("items").contains("description")) << key;
  }
}

}  // namespace
}  // namespace attnbench
