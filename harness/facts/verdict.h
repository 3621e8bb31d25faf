// The verdict on a case's outputs.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "harness/facts/declared_types.h"

namespace attnbench {

/// Limit of |z| of an element, and of an LSE.
inline constexpr double kMaxZ = 6.0;

/// Which rows are compared. kOff: none. kSampled: all if that is cheap (kCheapFlop), else a sample. kFull:
/// all. kSampleOnly: a sample, even if all would be cheap. kFewRows: 16 random rows of an attention case, else
/// as kSampleOnly.
enum class CheckMode { kOff, kSampled, kFull, kSampleOnly, kFewRows };

/// A comparison: its mode, and the seed by which the rows of a sample are drawn. 0: the system gives a seed when the
/// outputs are compared, so that no kernel can have known the rows when it was launched.
struct Check {
  CheckMode mode;
  uint64_t rows_seed;
  // NOLINTNEXTLINE(google-explicit-constructor): a mode is a check
  Check(CheckMode m, uint64_t seed = 0) : mode(m), rows_seed(seed) {}
};

/// Detectors: the checks that can find an output wrong, by their names in reports. A broken invariant has the
/// name "invariant:" and the invariant's.
namespace detector {
/// O or LSE is not finite where a key is visible, or a probability is not 0 where its key is not visible.
inline constexpr const char* kPoison = "poison";
/// A row without visible keys has not O = 0 and LSE = -inf (with sinks: the sink).
inline constexpr const char* kEmptyRow = "empty_row";
inline constexpr const char* kMaxZ = "max_z";
inline constexpr const char* kRowZ2 = "row_z2";
inline constexpr const char* kLse = "lse";
inline constexpr const char* kProbs = "probs";
inline constexpr const char* kBias = "bias";
inline constexpr const char* kDsinks = "dsinks";  ///< attention_backward
/// An appended row is wrong, or another byte of the caches changed.
inline constexpr const char* kCacheBits = "cache_bits";
/// A query that kv_append returns is wrong, or a byte that is no query's changed.
inline constexpr const char* kQueryOut = "query_out";
inline constexpr const char* kGuard =
    "guard";  ///< a read or write outside a buffer, or a write to rows of no query
inline constexpr const char* kInputDigest = "input_digest";  ///< a write into an input
inline constexpr const char* kAfterTiming = "after_timing";  ///< wrong only after the timed launches
/// Detectors of timed launches (session/timed_launches.h): wrong outputs; outputs written before the launch
/// began, or after it had ended; a clock that disagrees with the GPU's own; results kept from earlier launches.
inline constexpr const char* kTimed = "timed_launch";
inline constexpr const char* kEarly = "early_write";
inline constexpr const char* kLate = "late_write";
inline constexpr const char* kClock = "clock";
inline constexpr const char* kKeptResults = "kept_results";
inline constexpr const char* kNumerics = "numerics";  ///< declares less than --require asks for
/// A launch that the kernel must refuse was taken, was refused without a word, or changed memory.
inline constexpr const char* kNotRefused = "not_refused";
inline constexpr const char* kInvariant = "invariant:";
}  // namespace detector

/// The element with the largest |z|; indices are -1 if there is none.
struct WorstElement {
  int seq = -1;
  int pos = -1;
  int head = -1;
  int channel = -1;
  double got = 0;
  double expected = 0;
  double sigma = 0;
};

/// The outcome of one invariant: a relaunch that must give the same result.
struct InvariantResult {
  enum class Outcome {
    kHeld,     ///< equal in every bit, or within the tolerance if the invariant requires no more
    kBroken,   ///< neither: the requirement is not met
    kDiffers,  ///< different bits within the tolerance, and the kernel promises no more
    kSkipped,  ///< does not apply to this case or kernel
  };
  std::string name;
  Outcome outcome = Outcome::kHeld;
  std::string note;  ///< where it differs, or why it was skipped; empty if it held
};
inline constexpr const char* kOutcomeNames[] = {"held", "broken", "differs", "skipped"};
constexpr const char* outcome_name(InvariantResult::Outcome o) { return kOutcomeNames[static_cast<int>(o)]; }

/// What a kernel said as it refused a launch.
struct Refusal {
  std::string status;   ///< "unsupported" or "bad_argument"
  std::string step;     ///< "supports", "plan" or "launch"
  std::string message;  ///< its own words
};

/// The smallest mistakes in attention that the detectors of O and LSE would have seen beside errors as large as the
/// launch's own (harness/judge/README.md). Shares; NaN: they would have seen none. by_o: by O alone.
struct Power {
  double o_scale = std::numeric_limits<double>::quiet_NaN();     ///< relative error of all of O
  double softmax_scale = o_scale, softmax_scale_by_o = o_scale;  ///< relative error
  double dropped_key = o_scale, dropped_key_by_o = o_scale;      ///< weight of a key that one row leaves out
};

/// Attention: z = (out - o) / sigma, with sigma derived from the kernel's declared arithmetic
/// (harness/judge/README.md).
struct Verdict {
  bool pass = false;
  std::string reason;                  ///< empty on pass; else the first detector that fired, and where
  std::vector<std::string> failed_by;  ///< all detectors that fired, the one of `reason` first
  std::string method;                  ///< "full", "sampled", "bitwise", "interval", "refusal" or "none"
  int64_t rows = 0;                    ///< rows compared with the reference
  int64_t rows_total = 0;
  uint64_t rows_seed = 0;  ///< of the rows drawn, if method is "sampled"; 0: none were
  double max_z = 0;        ///< limit kMaxZ
  double max_row_z2 = 0;   ///< largest mean of z^2 over the channels of a row, over its limit: 1 is the limit
  double rms_z = 0;
  double slope = 0;      ///< weighted least-squares slope of (out - o) on o
  double bias_se = 0;    ///< |slope| in standard errors
  double max_abs = 0;    ///< largest |out - o|; NaN if a compared element is NaN, as max_rel and max_ulp are
  double max_rel = 0;    ///< largest |out - o| / |o| over elements with |o| above sigma
  double max_ulp = 0;    ///< largest |out - o| in units of the output type's last place at o
  double lse_max_z = 0;  ///< limit kMaxZ
  double probs_max_z = 0;  ///< limit kMaxZ; 0 where no probabilities are returned
  WorstElement worst;
  /// Made-up answers that the limits accept, too: "zeros", "the mean of the visible values" (made_up.h). A verdict that
  /// passes and accepts one is undecided.
  std::vector<std::string> accepts;
  bool tells_nothing = false;               ///< it accepts one whatever the arithmetic: the case cannot tell
  std::optional<Power> power;               ///< of attention that passes
  std::optional<Declared> declared;         ///< by the kernel; nullopt: the op is judged without
  std::string outputs_digest;               ///< digest of all output bytes, 16 hexadecimal digits
  double reference_s = 0;                   ///< seconds the reference took
  std::vector<std::string> clues;           ///< guesses at the cause of a wrong output (clues.h), sentences
  std::optional<Refusal> refusal;           ///< of a case that expects one
  std::vector<InvariantResult> invariants;  ///< in the order in which they were tried; empty if none was

  /// Notes that a detector fired. The first one gives the reason.
  void fail(const std::string& detector, const std::string& why) {
    if (pass || reason.empty()) reason = why;
    pass = false;
    failed_by.push_back(detector);
  }
};

/// The larger of two errors; NaN if one of them is NaN, which std::max would drop.
inline double larger_error(double a, double b) { return a > b || std::isnan(a) ? a : b; }

}  // namespace attnbench
