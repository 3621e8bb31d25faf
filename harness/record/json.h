// Records as JSON: Google Benchmark's outer shape, so that tools which read it read this too, with an
// `attnbench` object in every entry and in the context. No number in it is NaN or infinite: such ones are
// null.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "harness/record/record.h"

namespace attnbench {

/// Changes when a name or a meaning changes, not when one is added.
inline constexpr int kResultsSchema = 2;

/// From this one on, entries leave out default parameters.
inline constexpr int kFirstSchemaWithDefaults = 2;

/// An entry of benchmarks[]. `family` numbers the cases of a file, `instance` the kernels of one case.
nlohmann::ordered_json record_to_json(const Record& r, int64_t family = 0, int64_t instance = 0);

nlohmann::ordered_json context_to_json(const RunContext& c);
nlohmann::ordered_json device_to_json(const DeviceInfo& d);
nlohmann::ordered_json ceilings_to_json(const Ceilings& c);

/// {"context": ..., "benchmarks": [...]}
nlohmann::ordered_json results_to_json(const RunContext& c, std::span<const Record> records);

/// The text of a results file, of a selftest or of fuzzing: a line for each entry of a list, so that files are
/// small and tools that go by lines (grep, git) work on cases. An entry of `benchmarks` leaves out the
/// parameters that are defaults; context.attnbench.default_params names those, as later programs may have
/// others. fill_params (json_read.h) undoes it.
std::string results_text(const nlohmann::ordered_json& results);

/// Text of a value; bytes that are not UTF-8 become U+FFFD. indent -1: one line.
std::string dump_json(const nlohmann::ordered_json& j, int indent = -1);

/// The entry on one line, newline included: what the journal appends when a record is finished.
std::string journal_line(const Record& r);

}  // namespace attnbench
