// Reads records back from the JSON of json.h: from a worker process or from a journal. Everything that is
// written is read, so writing a record that was read gives the same text.
#pragma once

#include <nlohmann/json.hpp>

#include "harness/results/record.h"

namespace attnbench {

/// A record from an entry of benchmarks[] or of a journal. The entry's parameters are not read: `item` is its
/// case. Throws Error, which names the field, if something is missing or has a wrong type, or if the entry is
/// of another case.
Record record_from_json(const nlohmann::ordered_json& entry, const Case& item);

/// From `check.numerics` of an entry. Files of older versions name the types alone.
Declared declared_from_json(const nlohmann::ordered_json& j);

/// The same for two members of `context.attnbench`.
DeviceInfo device_from_json(const nlohmann::ordered_json& j);
Ceilings ceilings_from_json(const nlohmann::ordered_json& j);

/// Adds the parameters that results_text omitted to an entry of benchmarks[]. `context` is that of the
/// entry's file. Entries of older files name all parameters and stay unchanged. Json: nlohmann::json or
/// ordered_json.
template <class Json>
void fill_params(Json& entry, const Json& context) {
  const nlohmann::json_pointer<std::string> defaults("/attnbench/default_params"), own("/attnbench/params");
  if (!context.contains(defaults) || !entry.contains(own)) return;
  Json params = context.at(defaults);
  if (!params.is_object() || !entry.at(own).is_object()) return;
  params.update(entry.at(own));
  entry.at(own) = std::move(params);
}

}  // namespace attnbench
