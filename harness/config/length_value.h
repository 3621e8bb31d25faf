// Lengths of a batch in YAML: an integer, a list, or a distribution (batch_value.h has the grammar).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "harness/config/lengths.h"
#include "harness/config/yaml_read.h"

namespace attnbench {

/// A list with one length per sequence, or a distribution to draw from.
struct Lengths {
  std::vector<int64_t> list;  ///< empty: lengths are drawn
  LengthDistribution distribution;

  int64_t at(std::size_t i, uint64_t seed, LengthOf which) const {
    return list.empty() ? draw_length(distribution, seed, static_cast<uint32_t>(i), which) : list[i];
  }
};

/// Errors: ConfigError.
Lengths read_lengths(const Field& field);

/// An object with these keys and no others.
nlohmann::ordered_json object_schema(nlohmann::ordered_json required, nlohmann::ordered_json properties);

}  // namespace attnbench
