// Options of a comparison, which `compare` and `gate` share.
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
  /// Says on stderr which --min-effect-of match none of these ids. Throws UsageError where that is true of
  /// all of them, and where one is malformed.
  void check_min_effect_of(const std::vector<std::string>& ids) const;
  /// For these two sets, whose ids the per-case overrides are looked up in. Throws UsageError, ResultsError.
  CompareOptions options(const ResultSet& base, const ResultSet& fresh) const;
};

/// True where both were taken alike. Else says on stderr in what they differ and returns false, or throws
/// UsageError where that is not allowed.
bool check_alike(const ResultSet& base, const ResultSet& fresh, bool allow_mismatch);

/// md, json, junit or github.
void write_compare(std::ostream& out, const std::string& format, const CompareResult& result,
                   const CompareOptions& options);

}  // namespace attnbench::cli
