// Records read back from the JSON that json.h writes: what a worker process sends, and what a journal holds.
// Everything that is written is read: writing what was read gives the same text.
#pragma once

#include <nlohmann/json.hpp>

#include "harness/record/record.h"

namespace attnbench {

/// An entry of benchmarks[] or of a journal. Its parameters are not read: `item` is the case that it is of.
/// Throws Error, with the name of the field, where something is missing or of a wrong type,
/// or where the entry is of another case.
Record record_from_json(const nlohmann::ordered_json& entry, const Case& item);

/// The same for two parts of `context.attnbench`.
DeviceInfo device_from_json(const nlohmann::ordered_json& j);
Ceilings ceilings_from_json(const nlohmann::ordered_json& j);

/// Gives an entry of benchmarks[] the parameters that results_text left out. `context` is that of its file;
/// entries of older files name all parameters and stay as they are. Json: nlohmann::json or ordered_json.
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
