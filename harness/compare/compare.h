// Compares two result sets: each case is faster, slower, same, inconclusive, or cannot be compared.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/compare/ratio.h"
#include "harness/compare/token_time.h"
#include "harness/results/load.h"

namespace attnbench {

enum class Match {
  kIdAndKernel,  ///< the same kernel before and after a change
  kId,           ///< two kernels on the same cases
};

/// Rate for slower and faster together. If the sides are equal, at most half of it, 1 in 100, is called
/// slower.
inline constexpr double kFalseDiscoveryRate = 0.02;

struct CompareOptions {
  Match match = Match::kIdAndKernel;
  double min_effect = 0.02;                        ///< in [0, 1); a smaller difference is "same"
  std::map<std::string, double> min_effect_of_id;  ///< overrides by case id
  double false_discovery_rate = kFalseDiscoveryRate;
  bool as_sol = false;  ///< compare shares of the speed of light, for two different devices
  std::map<std::string, RunNoise> noise_of;  ///< by "<id>/<kernel>" of either side, from a calibration
  bool in_turns = false;                     ///< run i of NEW was made right beside run i of BASE
  bool allow_missing = false;
  bool allow_new = false;  ///< a case that only NEW has is no failure
  bool allow_inconclusive = false;
};

enum class Change {
  kError,        ///< error or timeout in NEW
  kIncorrect,    ///< fail in NEW
  kMissingNew,   ///< in BASE only, or skipped in NEW though it ran in BASE
  kMissingBase,  ///< in NEW only
  kSlower,
  kInconclusive,
  kSame,
  kFaster,
  kNotCompared,  ///< BASE has no result to compare with, or neither side was timed
};
const char* change_name(Change c);

/// If the SM clocks of the two sides differ by more than this share, cycles are compared too. If the times of
/// a CPU's cores' probe do, the note says so.
inline constexpr double kClockTolerance = 0.01;

/// The effect that another distance between the cores may have on a case. If BASE has too few runs with cores
/// as far apart as in NEW, slower and faster must exceed it. It is an empirical bound: with 15 %, 1 of 160
/// gates of equal kernels was called slower.
inline constexpr double kFarCores = 0.25;
/// CUDA events give multiples of this time (seen on an H100). A difference of less than two of them does not
/// count.
inline constexpr double kEventTickUs = 0.032;

/// Why a row that has a ratio is inconclusive.
enum class Doubt {
  kNone,       ///< it is not
  kInterval,   ///< the interval reaches over an edge of the band
  kMachine,    ///< the interval decides, but the machine was not the same or not alone: the note says how
  kManyCases,  ///< slower or faster alone, but not among so many cases
  kOther,      ///< too few samples, or the gate ended before a second run
};

/// What an interval rests on.
struct Evidence {
  double effect = 0;  ///< the smallest difference that counts here
  RunNoise noise;     ///< between equal runs; sigma 0 where it is not known
  int base_runs = 1, new_runs = 1;
  bool runs_as_one = false;  ///< the runs of a side count as one
};

struct CompareRow {
  std::string id, sweep, base_kernel, new_kernel;
  Change change = Change::kNotCompared;
  std::optional<double> base_us, new_us;
  std::optional<double> ratio, lo, hi;  ///< new / base, and its 95 % interval
  std::optional<double> p;
  /// Half the width of the band of "same" for this row, if it is not the minimum effect.
  std::optional<double> within;
  Doubt doubt = Doubt::kNone;
  std::optional<Evidence> evidence;  ///< of lo and hi
  bool not_slower = false;           ///< inconclusive, but the interval ends below 1 + effect: same or faster
  bool vague = false;                ///< inconclusive, and the ratio is in no mean: a time is not usable
  /// CPU: runs of BASE and NEW that are not compared, because their cores were further apart, or closer.
  struct {
    int base = 0, fresh = 0;
  } left_out;
  bool untimed = false;            ///< not compared: right on both sides, and timed on neither
  std::string note;                ///< why, where the figures do not say it
  std::vector<std::string> clues;  ///< of a wrong NEW
  std::string repro;               ///< of NEW, else of BASE
};

struct SweepMean {
  std::string sweep;
  double geomean = 1;
  int64_t compared = 0;  ///< rows in the mean
};

struct CompareResult {
  std::vector<CompareRow> rows;  ///< worst first
  std::map<Change, int64_t> counts;
  std::optional<double> geomean;    ///< over the ratios of all rows that have one and are not vague
  int64_t averaged = 0;             ///< rows in the mean
  std::vector<SweepMean> sweeps;    ///< the same by sweep, in the order of BASE
  std::vector<TokenChange> tokens;  ///< replays of servers
  int64_t compared = 0;             ///< rows with a ratio
  int64_t refused = 0;              ///< rows whose kernels refuse the case on both sides, as it expects
  int64_t not_slower = 0;           ///< of the inconclusive rows
  bool as_sol = false;              ///< ratios are of time over least possible time
  bool cpu_time = false;            ///< times are CPU times
  bool verdicts_only = false;       ///< right or wrong was compared, and nothing was to be timed
  bool interrupted = false;         ///< a gate's runs are not all there
  std::string stopped;  ///< why a gate ended before its last round with undecided cases; else empty

  int64_t count(Change c) const;
};

/// Compares the two sets case by case.
///
/// - Slower: the whole interval of the ratio is above 1 + effect, and the case survives Benjamini-Hochberg
///   over all cases with an interval. Faster is the mirror image below 1 - effect.
/// - Same: the interval is inside the band. Everything else is inconclusive.
/// - If the time of a side is not usable (TimeResult::vague), the case is inconclusive. An exception are
///   sides in turns whose change is far beyond the spread of equal runs (kMostByTurns).
/// - If a side has several runs, their spread widens the interval.
/// - If the SM clocks of the two sides differ by more than kClockTolerance, slower and faster must hold in
///   cycles too.
///
/// On a CPU whose runs have probes (machine_pace.h), times are multiples of the cores' probe. Unless both sides were
/// made in turns, only runs whose cores were equally far apart are compared, and the runs of a side count as
/// one. Slower and faster must hold against the memory's probe too, and on cores that others did not take
/// during more than half of the samples. A verdict that would contradict the clock is inconclusive
/// (contradicts_clock).
CompareResult compare_results(const ResultSet& base, const ResultSet& fresh, const CompareOptions& options);

/// Facts that make the times of the two sets incomparable, one line each: device, driver, CUDA, build type,
/// host threads of a CPU, cache state, graph replay, verification. A fact that one side does not state is no
/// mismatch.
std::vector<std::string> context_mismatches(const ResultSet& base, const ResultSet& fresh);

/// kExitInterrupted where the gate was; 5 error in NEW, 1 incorrect in NEW or missing, 3 slower, 4 inconclusive
/// (where a case may be slower), 6 nothing compared, 0; the first that holds.
int compare_exit_code(const CompareResult& result, const CompareOptions& options);

/// True if the row alone would make the exit code other than 0.
bool row_fails(const CompareRow& row, const CompareOptions& options);

}  // namespace attnbench
