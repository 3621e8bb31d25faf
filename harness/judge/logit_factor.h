// The clue of a wrong softmax scale: one factor on all logits.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "harness/judge/row_findings.h"

namespace attnbench {

/// A factor f: the outputs are those of the problem with f * softmax_scale.
struct LogitFactor {
  double value = 1;
  bool lse_too = false;  ///< it gives the LSE of the rows, too
};

/// Estimates the factor from a few of the wrong rows, by their LSE, or by O if that gives none. Returns it if
/// the rows `tried`, wrong and right ones, are right within the tolerance for it. `rows` are the findings on
/// the case's own problem. num_threads 0: all.
std::optional<LogitFactor> logit_factor(const Launched& launched, const reference::Problem& right,
                                        const reference::Inputs& inputs, std::span<const RowFinding> rows,
                                        std::span<const reference::RowId> tried, int num_threads);

/// "logits times 1.414 (softmax_scale 0.125 in place of 0.08839): ...", with a known mistake behind the colon
/// if the factor is that of one.
std::string logit_factor_text(const CaseParams& p, double softmax_scale, double factor);

}  // namespace attnbench
