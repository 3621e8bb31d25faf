// Records as JSON, in the outer shape of Google Benchmark, so that tools for that format read these files
// too. Every entry and the context have an `attnbench` object. Numbers that are NaN or infinite are written
// as null.
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
nlohmann::ordered_json device_to_json(const DeviceInfo& d);
nlohmann::ordered_json ceilings_to_json(const Ceilings& c);

/// {"context": ..., "benchmarks": [...]}
nlohmann::ordered_json results_to_json(const RunContext& c, std::span<const Record> records);

/// The text of a results file, of a selftest or of fuzzing. Each entry of a list is one line, so files are
/// small and line tools (grep, git) work on cases. An entry of `benchmarks` omits parameters that are
/// defaults. context.attnbench.default_params lists these defaults, because later programs may have others.
/// fill_params (json_read.h) restores them.
std::string results_text(const nlohmann::ordered_json& results);

/// Text of a value. Bytes that are not UTF-8 become U+FFFD. indent -1: one line.
std::string dump_json(const nlohmann::ordered_json& j, int indent = -1);

/// The entry on one line, newline included. The journal appends it when a record is finished.
std::string journal_line(const Record& r);

}  // namespace attnbench
