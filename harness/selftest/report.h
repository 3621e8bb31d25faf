// The results of a selftest as JSON and as text.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>

#include "harness/results/record.h"
#include "harness/selftest/clue_shares.h"
#include "harness/selftest/selftest.h"
#include "harness/selftest/sensitivity.h"

namespace attnbench {

/// {context, faults: [{name, class, kernel, case, outcome, caught_by, allclose_1e2, twice_naive, ...}],
/// clean: {runs, false_alarms, ...}}. false_alarms counts the clean runs that failed, whatever is wrong, and
/// alarms has a line for each. allclose_1e2 and twice_naive are the verdicts of these rules: "pass" or
/// "fail".
nlohmann::ordered_json selftest_to_json(const RunContext& context, const SelftestResult& result);

/// {context, kernel, op, sensitivity: [{dtype, p_type, case, context, rows, max_z, and each fault of
/// SensitivityRow::faults}]}. A fault has smallest (the smallest caught), missed (the next smaller one) and
/// caught_by.
nlohmann::ordered_json sensitivity_to_json(const RunContext& context, const Kernel& kernel,
                                           const std::vector<SensitivityRow>& rows);

/// {context, faults: [{name, kernel, cases, named, misnamed, seen}], summary}, each as in ClueShare.
nlohmann::ordered_json clues_to_json(const RunContext& context, const std::vector<ClueShare>& shares);

/// A step's result as JSON, for messages between processes, and back. step_from_json throws std::exception if
/// `j` is no such result.
nlohmann::ordered_json step_to_json(const StepResult& result);
StepResult step_from_json(const nlohmann::ordered_json& j);

/// The matrix fault x detector, and the counts.
void write_selftest_markdown(std::ostream& out, const SelftestResult& result);

/// One line with the numbers of faults that applied, were caught and escaped, and of clean runs.
std::string selftest_summary(const SelftestResult& result);

}  // namespace attnbench
