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

}  // namespace attnbench
