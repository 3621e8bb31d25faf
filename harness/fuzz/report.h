// The results of fuzzing as JSON and as text.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <ostream>

#include "harness/fuzz/campaign.h"

namespace attnbench {

/// {context, seed, seconds, cases, kernels: [{kernel, op, ran, with_invariants, skipped, failed, features,
/// refusals: [{reason, cases}]}], findings: [{kernel, op, id, status, reason, repro, found_as, repeats,
/// tries, run_again, failed_again, alike, like: [{id, reason, repro}]}]}. `features` counts distinct values of sweep keys; `values` has them, by key.
nlohmann::ordered_json fuzz_to_json(const RunContext& context, const FuzzOptions& options,
                                    const FuzzResult& result);

/// Prints a finding: its reason, clues and last output, the command that reproduces it, the case that was
/// drawn, and whether it depends on time.
void print_finding(std::ostream& out, const Finding& finding, std::size_t number);

/// Prints a failure that has the cause of finding `number`.
void print_finding_like(std::ostream& out, const Record& record, std::size_t number);

/// Prints a row per kernel, and below it the most frequent reasons for skipped cases.
void print_fuzz_table(std::ostream& out, const FuzzResult& result, std::size_t width);

/// One line: seed, time, counts.
std::string fuzz_summary(const FuzzOptions& options, const FuzzResult& result);

}  // namespace attnbench
