// Reads the mapping under `serving` in YAML. One table in serving_value.cpp knows its keys.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "harness/config/serving_spec.h"
#include "harness/config/yaml_read.h"

namespace attnbench {

/// The replay that the mapping describes. Its seed defaults to `file_seed`. The file of a trace must exist; it is not
/// opened. Errors: ConfigError.
ServingSpec read_serving(const Field& field, uint64_t file_seed);

/// The values that a key takes. Throws std::logic_error if there is no such key, or not of this kind.
struct ServingRange {
  double lo, hi;
};
ServingRange serving_range(std::string_view key);
const std::vector<std::string>& serving_words(std::string_view key);

/// JSON Schema of what read_serving accepts.
nlohmann::ordered_json serving_schema();

/// A table of the keys, for harness/serving/README.md.
std::string serving_markdown();

}  // namespace attnbench
