// Options of a comparison, shared by `compare` and `gate`.
#pragma once

#include <CLI/CLI.hpp>
#include <iosfwd>
#include <string>
#include <vector>

#include "harness/compare/compare.h"
#include "harness/compare/noise.h"

namespace attnbench::cli {

struct CompareFlags {
  std::string match = "kernel", noise;
  double min_effect_percent = 2.0;
  std::vector<std::string> min_effect_of;
  bool allow_mismatch = false, allow_missing = false, allow_new = false, allow_inconclusive = false;

  void add(CLI::App& command);
  /// Reports on stderr each --min-effect-of that matches none of these ids. Throws UsageError if none of them
  /// matches, or if one is malformed.
  void check_min_effect_of(const std::vector<std::string>& ids) const;
  /// The options for these two sets; overrides per case are looked up by their ids. Throws UsageError,
  /// ResultsError.
  CompareOptions options(const ResultSet& base, const ResultSet& fresh) const;
};

/// Returns true if the times of the two sets are comparable. Else reports the differences on stderr and
/// returns false, or throws UsageError unless `allow_mismatch` is set.
bool check_alike(const ResultSet& base, const ResultSet& fresh, bool allow_mismatch);

/// md, json, junit or github.
void write_compare(std::ostream& out, const std::string& format, const CompareResult& result,
                   const CompareOptions& options);

}  // namespace attnbench::cli
