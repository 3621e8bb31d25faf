// The keys of a sweep: ONE table from which the parser, its error messages and the JSON Schema are made.
// Adding a key is adding a row to keys.cpp (and a field to CaseParams).
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "harness/config/yaml_read.h"

namespace attnbench {

/// What one value means: its canonical text and what it does to a case.
struct KeyValue {
  std::string text;
  std::function<void(CaseParams&)> apply;
};

struct SweepKey {
  std::string name;
  std::string doc;                ///< one line, the description in the schema
  nlohmann::ordered_json schema;  ///< of one value; lists of values are added by json_schema()
  /// Reads one value; `seed` is the file's, for what draws. Errors: ConfigError.
  std::function<KeyValue(const Field& field, uint64_t seed)> read;
};

/// In the order of the documentation.
const std::vector<SweepKey>& sweep_keys();

/// Or null.
const SweepKey* find_sweep_key(std::string_view name);

/// The names of all keys, then `more`: what errors list as allowed.
std::vector<std::string> sweep_key_names(const std::vector<std::string>& more = {});

}  // namespace attnbench
