// What a gate decides: what it compares, which cases run again and how often, and its exit code.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "harness/compare/compare.h"

namespace attnbench {

inline constexpr int kReruns = 12;
/// Against a stored baseline on a CPU, where the runs of a side count as one: more of them decide little.
inline constexpr int kRerunsOfCpu = 4;

struct GatePolicy {
  bool stored_baseline = false;  ///< only the new side runs; otherwise both, in turns
  bool update_baseline = false;  ///< the new results become the baseline: nothing is left to decide
  bool no_time = false;          ///< right or wrong only
  std::optional<int> reruns;     ///< rounds; default: kReruns or kRerunsOfCpu
};

/// One side of a gate: the results of its runs, pooled, and the worst of their exit codes.
struct GateSide {
  ResultSet results;
  int exit_code = 0;
  int runs = 0;
};

/// Adds a run with this exit code (128 + signal where one ended it) and these results.
void add_run(GateSide& side, int exit_code, ResultSet results);

/// For a gate that takes no times: `set` keeps what was right and what was there.
void drop_times(ResultSet& set);

/// `options` of the command line as this gate compares: in turns, and by shares of the speed of light where
/// the sides were not taken alike.
CompareOptions gate_options(CompareOptions options, const GatePolicy& policy, const ResultSet& base,
                            const ResultSet& fresh);

/// True where a run's results are wrong or a case crashed.
bool run_is_broken(int exit_code);
/// True where a run's results may become a baseline or a calibration: none is wrong, and there are some.
bool run_is_usable(int exit_code);

/// Ids of the cases whose verdict more runs can change: undecided ones, and a difference, either way, that
/// only one run of NEW has seen.
std::set<std::string> undecided_cases(const CompareResult& result, const ResultSet& fresh);

/// Rounds of reruns that this gate may take.
int rerun_rounds(const GatePolicy& policy, const ResultSet& base);

/// Compares, then lets `run_again(ids, round)` add runs to the sides, `fresh` among them, while cases are
/// undecided and rounds (from 1) are left. Returns the last comparison; `rerun` gets the ids that ran again.
CompareResult decide(int rounds, const ResultSet& fresh, const std::function<CompareResult()>& compare,
                     const std::function<void(const std::set<std::string>& ids, int round)>& run_again,
                     std::set<std::string>& rerun);

/// The exit code of the comparison, or that of the new side's runs where it is worse. Without times, a gate
/// that compared no time but has right cases ends with 0.
int gate_exit_code(const GatePolicy& policy, const CompareResult& result, const CompareOptions& options,
                   const GateSide& fresh);

/// Results of this set that passed.
int64_t count_right(const ResultSet& set);

}  // namespace attnbench
