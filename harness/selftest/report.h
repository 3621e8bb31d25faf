// What a selftest found, for machines and for people.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>

#include "harness/record/record.h"
#include "harness/selftest/selftest.h"
#include "harness/selftest/sensitivity.h"

namespace attnbench {

/// {context, faults: [{name, class, kernel, case, outcome, caught_by, allclose_1e2, twice_naive, ...}],
/// clean: {runs, false_alarms, ...}}. allclose_1e2 and twice_naive are what those rules say: "pass" or
/// "fail".
nlohmann::ordered_json selftest_to_json(const RunContext& context, const SelftestResult& result);

/// {context, kernel, sensitivity: [{dtype, p_type, context, rows, scale, scale_o, dropped_keys,
/// dropped_keys_o, lse}]}, each of the last five with smallest (caught), missed (the next one tried) and
/// caught_by.
nlohmann::ordered_json sensitivity_to_json(const RunContext& context, const std::string& kernel,
                                           const std::vector<SensitivityRow>& rows);

/// What a step found, for the process that asked for it; and back, where std::exception says that it is
/// none.
nlohmann::ordered_json step_to_json(const StepResult& result);
StepResult step_from_json(const nlohmann::ordered_json& j);

/// The matrix fault x detector, and the counts.
void write_selftest_markdown(std::ostream& out, const SelftestResult& result);

/// One line: what applied, was caught and escaped, and the clean runs.
std::string selftest_summary(const SelftestResult& result);

}  // namespace attnbench
