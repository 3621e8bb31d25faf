// Records as JSON, in the outer shape of Google Benchmark, so that tools for that format read these files
// too, and back: from a worker process or from a journal. Every entry and the context have an `attnbench`
// object. Numbers that are NaN or infinite are written as null. Writing a record that was read gives the same
// text.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "harness/results/record.h"

namespace attnbench {

/// Version of the format. It changes when a name or a meaning changes, not when a name is added.
inline constexpr int kResultsSchema = 3;

/// From this version on, entries omit default parameters.
inline constexpr int kFirstSchemaWithDefaults = 2;

/// An entry of benchmarks[]. `family` numbers the cases of a file; `instance` numbers the kernels of one
/// case.
nlohmann::ordered_json record_to_json(const Record& r, int64_t family = 0, int64_t instance = 0);

nlohmann::ordered_json context_to_json(const RunContext& c);
/// What is absent keeps its default, so that older files and those of Google Benchmark can be read. Throws Error, which
/// names a field of a wrong type.
RunContext context_from_json(const nlohmann::ordered_json& j);
nlohmann::ordered_json device_to_json(const DeviceInfo& d);
nlohmann::ordered_json ceilings_to_json(const Ceilings& c);

/// A record from an entry of benchmarks[] or of a journal. The entry's parameters are not read: `item` is its
/// case. Throws Error, which names the field, if something is missing or has a wrong type, or if the entry is
/// of another case.
Record record_from_json(const nlohmann::ordered_json& entry, const Case& item);

/// A record from an entry of a file, which another version may have written: what is absent keeps its default. Its
/// case has an id, a sweep and a seed, but no parameters. Throws Error, which names a field of a wrong type.
Record record_of_file(const nlohmann::ordered_json& entry);

/// Two members of `context.attnbench`.
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

/// {"context": ..., "benchmarks": [...]}
nlohmann::ordered_json results_to_json(const RunContext& c, std::span<const Record> records);

/// The text of a results file, of a selftest or of fuzzing. Each entry of a list is one line, so files are
/// small and line tools (grep, git) work on cases. An entry of `benchmarks` omits parameters that are
/// defaults. context.attnbench.default_params lists these defaults, because later programs may have others.
/// fill_params restores them.
std::string results_text(const nlohmann::ordered_json& results);

/// Text of a value. Bytes that are not UTF-8 become U+FFFD. indent -1: one line.
std::string dump_json(const nlohmann::ordered_json& j, int indent = -1);

/// The entry on one line, newline included. The journal appends it when a record is finished.
std::string journal_line(const Record& r);

}  // namespace attnbench
