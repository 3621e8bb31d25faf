// The decisions of a gate: what it compares, which cases run again and how often, and its exit code.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "harness/compare/compare.h"

namespace attnbench {

inline constexpr int kReruns = 12;
/// Reruns against a stored baseline on a CPU, where the runs of a side count as one. More of them help
/// little.
inline constexpr int kRerunsOfCpu = 4;

struct GatePolicy {
  bool stored_baseline = false;  ///< only the new side runs; otherwise both, in turns
  bool update_baseline = false;  ///< the new results become the baseline, so there is nothing to decide
  bool no_time = false;          ///< compares only right or wrong
  std::optional<int> reruns;     ///< number of rounds; default: kReruns or kRerunsOfCpu
};

/// One side of a gate: the pooled results of its runs, and the worst of their exit codes.
struct GateSide {
  ResultSet results;
  int exit_code = 0;
  int runs = 0;
};

/// Adds a run with this exit code (128 + signal if a signal ended it) and these results.
void add_run(GateSide& side, int exit_code, ResultSet results);

/// For a gate without times: keeps only statuses in `set`.
void drop_times(ResultSet& set);

/// The options of the command line, adapted to this gate. Sides are compared in turns unless the baseline is
/// stored. If the times of the two sides are incomparable, shares of the speed of light are compared.
CompareOptions gate_options(CompareOptions options, const GatePolicy& policy, const ResultSet& base,
                            const ResultSet& fresh);

/// True if a run's results are wrong or a case crashed.
bool run_is_broken(int exit_code);
/// True if a run's results may become a baseline or a calibration: there are some, and none is wrong.
bool run_is_usable(int exit_code);

/// Ids of the cases whose verdict more runs can change. These are undecided cases, and cases where only one
/// run of NEW shows a difference, slower or faster.
std::set<std::string> undecided_cases(const CompareResult& result, const ResultSet& fresh);

/// Number of rounds of reruns that this gate may take.
int rerun_rounds(const GatePolicy& policy, const ResultSet& base);

/// Compares. Then, while cases are undecided and rounds are left, lets `run_again(ids, round)` add runs to
/// the sides (`fresh` is one) and compares again. Rounds count from 1. Returns the last comparison; `rerun`
/// gets the ids that ran again.
CompareResult decide(int rounds, const ResultSet& fresh, const std::function<CompareResult()>& compare,
                     const std::function<void(const std::set<std::string>& ids, int round)>& run_again,
                     std::set<std::string>& rerun);

/// The exit code of the comparison, or of the new side's runs if that is worse. A gate without times returns
/// 0 if it has right cases and compared no time.
int gate_exit_code(const GatePolicy& policy, const CompareResult& result, const CompareOptions& options,
                   const GateSide& fresh);

/// Number of results in this set that passed.
int64_t count_right(const ResultSet& set);

}  // namespace attnbench
