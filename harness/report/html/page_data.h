// The contents of the page as JSON: runs, cases, results, a comparison. All judgements (verdicts of a
// comparison, limits) are made here; the page only draws.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>

#include "harness/compare/compare.h"

namespace attnbench {

struct PageOptions {
  std::string title;                 ///< empty: the names of the runs' sweeps
  std::size_t max_samples = 400000;  ///< over all results; above it every n-th is kept, and the page says so
};

/// RESULTS against BASE, as `attnbench compare` judges them. If the times of the two are incomparable, shares
/// of the speed of light are compared, and `mismatches` says why.
struct PageComparison {
  std::string base_path;
  std::vector<std::string> mismatches;
  CompareOptions options;
  CompareResult result;
};

/// All sets as one, for a comparison. If results share id, kernel and device, the first stays.
ResultSet joined(std::span<const ResultSet> sets);

PageComparison compare_with(const ResultSet& base, std::span<const ResultSet> sets, CompareOptions options);

/// Data of the page. Times and figures are rounded to five or six digits. `params` of a case leaves out what equals
/// `params_default`, which has the parameters that all cases name.
nlohmann::ordered_json page_data(std::span<const ResultSet> sets,
                                 const std::optional<PageComparison>& comparison, const PageOptions& options);

}  // namespace attnbench
