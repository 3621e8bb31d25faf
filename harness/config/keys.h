// The keys of a sweep, in one table. Loops over this table do all that depends on keys: the parser with its
// errors, the JSON Schema, the table in configs/keys.md, a case's inline YAML and id, the test whether two
// cases are the same problem, the parameters in records, and the features that a case needs.
//
// keys.cpp joins the parts of the table, which are in key_rows_*.cpp. To add a plain key, add a field to
// CaseParams and a row; configs/adding_a_key.md has the checklist.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "harness/config/case_params.h"

namespace attnbench {

struct Field;  // yaml_read.h

/// What one value means: its canonical text and what it does to a case.
struct KeyValue {
  std::string text;
  std::function<void(CaseParams&)> apply;
};

struct SweepKey {
  using Json = nlohmann::ordered_json;
  using Params = const CaseParams&;

  std::string name;
  std::string doc;  ///< Markdown, one paragraph: the description in the schema and in configs/keys.md
  Json schema;      ///< schema of one value; json_schema() adds lists of values
  /// Reads one value. Values that are drawn use `seed`, the file's. Errors: ConfigError.
  std::function<KeyValue(const Field& field, uint64_t seed)> read;
  /// In place of `read` where one value may stand for several, as in batch: "{1,4}q1". Errors: ConfigError.
  std::function<std::vector<KeyValue>(const Field& field, uint64_t seed)> read_several;
  /// The case's value as canonical text, which `read` takes back.
  std::function<std::string(Params)> text;
  /// Gives the case the default.
  std::function<void(CaseParams&)> reset;
  std::function<bool(Params)> is_default;
  /// Adds the value to the parameters of a record, under one name or several.
  std::function<void(Json&, Params)> report;

  // The members below may be empty.
  std::string values;                        ///< Markdown; empty: derived from the schema
  std::function<bool(Params)> condition;     ///< whether the key means anything in this case
  std::function<void(CaseParams&)> unify;    ///< gives equal values one spelling
  std::function<std::string(Params)> label;  ///< its part of the id, with the separator before it
  std::function<uint64_t(Params)> features;  ///< bits of Feature that it needs
  bool written = false;                      ///< inline YAML has the key even at its default
  bool tokens = false;                       ///< its numbers are tokens, which may be written as 4k or 1m

  bool applies(Params p) const { return !condition || condition(p); }

  // A row is written as a chain: word_key(...).when(is_paged).labelled(...).
  SweepKey when(std::function<bool(Params)> f) && { return condition = std::move(f), std::move(*this); }
  SweepKey unified(std::function<void(CaseParams&)> f) && { return unify = std::move(f), std::move(*this); }
  SweepKey labelled(std::function<std::string(Params)> f) && {
    return label = std::move(f), std::move(*this);
  }
  /// A value other than the default is in the id, behind `before`; of a flag, `before` alone.
  SweepKey labelled(const char* before) &&;
  /// A value other than the default needs these bits of Feature.
  SweepKey needing(uint64_t bits) &&;
  SweepKey needing(std::function<uint64_t(Params)> f) && { return features = std::move(f), std::move(*this); }
  SweepKey reported(std::function<void(Json&, Params)> f) && {
    return report = std::move(f), std::move(*this);
  }
  SweepKey taking(std::string v) && { return values = std::move(v), std::move(*this); }
  SweepKey always_written() && { return written = true, std::move(*this); }
};

/// All keys, in the order of ids and of the documentation. A key comes after those that its condition reads.
const std::vector<SweepKey>& sweep_keys();

/// The key of that name, or null.
const SweepKey* find_sweep_key(std::string_view name);

/// The names of all keys, then `more`: what errors list as allowed.
std::vector<std::string> sweep_key_names(const std::vector<std::string>& more = {});

/// The feature of a kernel that reads and writes this type.
constexpr uint64_t feature_of(DType t) {
  return t == DType::kBf16 ? kBf16 : t == DType::kFp16 ? kFp16 : kFp32;
}

/// The features that the case needs: bits of Feature (kernels/contract/attention_params.h).
uint64_t features_of(const CaseParams& params);

/// The parameters of a record: the value of every key.
nlohmann::ordered_json reported_params(const CaseParams& params);

/// The table of configs/keys.md.
std::string keys_markdown();

}  // namespace attnbench
