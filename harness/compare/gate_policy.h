// The decisions of a gate: what it compares, which cases run again and how often, and its exit code.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/compare/compare.h"
#include "harness/compare/undecided.h"

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

/// The rows whose verdict more runs can change: undecided ones, and a difference, either way, that only one
/// run of NEW has seen. They point into `result`.
std::vector<OpenRow> open_rows(const CompareResult& result, const ResultSet& fresh);
/// The ids of these rows.
std::set<std::string> undecided_cases(const CompareResult& result, const ResultSet& fresh);

/// A gate that ends early decides no case that it would have run again: a difference that only one run of NEW
/// has seen becomes inconclusive.
void leave_undecided(CompareResult& result, const ResultSet& fresh);

/// Rounds of reruns that this gate may take.
int rerun_rounds(const GatePolicy& policy, const ResultSet& base);

/// Runs that a round adds.
MoreRuns runs_of_round(const GatePolicy& policy);

/// Rounds of reruns go on at least so many times: until then too few runs tell how far equal ones differ.
inline constexpr int kLeastRounds = 2;
/// A case that the machine hides (Doubt::kMachine) has no more hope once it had none in so many comparisons:
/// with fewer, a gate that begins on a busy machine would not wait for it to become quiet.
inline constexpr int kPatience = 6;

struct RoundLimits {
  int most = 0;                      ///< rounds
  std::optional<double> max_time_s;  ///< no round begins after it
  double first_s = 0;                ///< what the runs before the first round took: a round takes no longer
  MoreRuns per_round;
  bool settled = false;  ///< a turn of the new side is wrong or crashed: no round changes the exit code
};

/// A round that is about to begin.
struct Round {
  int number = 1, of = 1;
  std::set<std::string> ids;     ///< that run again
  std::vector<std::string> why;  ///< they are undecided (why_undecided)
  double so_far_s = 0, most_left_s = 0;
  bool as_before = false;  ///< the same cases are undecided as before the last round
};

/// What a gate has before it when its first turn has ended.
struct Ahead {
  double turn_s = 0;                         ///< duration of the first turn
  int turns_left = 0;                        ///< turns that follow in any case
  int turns_a_round = 0;                     ///< turns of each round after them
  int rounds = 0;                            ///< most rounds after them
  double so_far_s = 0;                       ///< the turn included
  std::optional<double> max_time_s;          ///< no round begins after it
  bool filtered = false, heads_set = false;  ///< --filter and --set heads=... were given
};

/// "gate: this turn took 95 s; 3 more take about 5 min, ...": how long the gate takes, and what makes it
/// shorter. Empty if the turns to come take less than half a minute.
std::string ahead_text(const Ahead& ahead);

/// "gate: round 9 of 12, 3 min so far, at most 1 min more: 4 cases undecided", and a line for each reason, unless the
/// last round had the same cases.
std::string round_text(const Round& round);

struct Decision {
  CompareResult result;         ///< the last comparison; `stopped` says why rounds are left over
  std::set<std::string> rerun;  ///< ids that ran again
};

/// Compares, then lets `run_again` add runs to the sides, `fresh` among them, while cases are undecided,
/// rounds are left, `seconds()` of the gate are within the limit, and some undecided case has a chance of
/// kLeastChance to be decided by the rounds left.
Decision decide(const RoundLimits& limits, const ResultSet& fresh,
                const std::function<CompareResult()>& compare,
                const std::function<void(const Round&)>& run_again, const std::function<double()>& seconds);

/// The exit code of the comparison, or of the new side's runs if that is worse. A gate without times returns
/// 0 if it has right cases and compared no time.
int gate_exit_code(const GatePolicy& policy, const CompareResult& result, const CompareOptions& options,
                   const GateSide& fresh);

/// What the gate found, for people: "1 case slower, 3 cases inconclusive, of which 1 cannot be slower". Names all kinds of rows for which
/// the exit code is not 0.
std::string gate_outcome(const GatePolicy& policy, const CompareResult& result, const CompareOptions& options,
                         int exit_code);

/// Says how many cases other work on the machine hid, and what helps: to leave it cores, if the kernels ran on a
/// CPU and on all of its `cores`. Empty if it hid none.
std::string hidden_text(const CompareResult& result, const DeviceInfo& device, int cores);

/// Number of results in this set that passed.
int64_t count_right(const ResultSet& set);

}  // namespace attnbench
