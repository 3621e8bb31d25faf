// Folders of FlashInfer traces and captured tensors as configurations.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "harness/interop/flashinfer_trace.h"

namespace attnbench::cli {

/// Reads the folder. Says on stderr which of its workloads are left out, unless that has been said. Throws
/// UsageError if the folder is no trace, TraceError.
FlashinferTrace load_trace(const std::string& path, uint64_t seed, bool said);

/// The folder's name, for a run without --out.
std::string trace_name(const std::string& path);

/// Writes the evaluations of the traces' workloads to flashinfer_trace.jsonl in `dir`, and returns its path.
std::filesystem::path write_evaluations(std::span<const FlashinferTrace> traces,
                                        const std::filesystem::path& dir, const RunContext& context,
                                        std::span<const Record> records);

/// Judges outputs that were captured beside their inputs, and says what came of it. Returns the exit code.
int judge_captured_outputs(std::span<const Case> cases, CheckMode mode, bool quiet);

}  // namespace attnbench::cli
