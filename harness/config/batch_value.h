// The value of `batch` in YAML: a spec of the grammar (batch_spec.h, batch_product.h) or a mapping of lengths and a count.
//
//   {lengths: X, count: N}          q = s = X
//   {q: X, s: Y, count: N}
//   {q: X, context: Y, count: N}    s = q + context
//
// X and Y are an integer, a list of integers (its size is the count), or a distribution (length_value.cpp) such as
// {uniform: [16, 512]}, beside an optional clip: [16, 8192]. `total: N`, in keys, may stand in place of the count,
// and `order` says how the sequences are sorted.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "harness/config/yaml_read.h"

namespace attnbench {

/// One batch, or those that a spec with braces stands for. Distributions draw from the mapping's own `seed`,
/// else from `file_seed`. Errors: ConfigError.
std::vector<std::vector<SeqLen>> read_batches(const Field& field, uint64_t file_seed);

/// JSON Schema of what read_length accepts, of that of the number.
nlohmann::ordered_json length_schema(const nlohmann::ordered_json& number);

/// JSON Schemas: batch_schema() of what read_batch accepts, lengths_schema() of X and Y. The first refers to
/// the second as #/$defs/lengths.
nlohmann::ordered_json batch_schema();
nlohmann::ordered_json lengths_schema();

}  // namespace attnbench
