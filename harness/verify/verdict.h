// How a case's output was judged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attnbench {

/// Which rows are compared: none; all where that is cheap, else a sample; all; a sample even where all are
/// cheap.
enum class CheckMode { kOff, kSampled, kFull, kSampleOnly };

/// Names of what can find an output wrong, as reports have them; of an invariant: "invariant:" and its name.
namespace detector {
inline constexpr const char* kPoison =
    "poison";  ///< O or LSE not finite where a key is visible, or a probability not 0 where none is
inline constexpr const char* kEmptyRow =
    "empty_row";  ///< a row without visible keys is not O = 0, LSE = -inf
inline constexpr const char* kMaxZ = "max_z";
inline constexpr const char* kRowZ2 = "row_z2";
inline constexpr const char* kLse = "lse";
inline constexpr const char* kProbs = "probs";
inline constexpr const char* kBias = "bias";
inline constexpr const char* kCacheBits =
    "cache_bits";                               ///< appended rows, and every other byte of the caches
inline constexpr const char* kGuard = "guard";  ///< a write outside a buffer
inline constexpr const char* kInputDigest = "input_digest";  ///< a write into an input
inline constexpr const char* kAfterTiming = "after_timing";  ///< wrong only after the timed launches
inline constexpr const char* kInvariant = "invariant:";
}  // namespace detector

/// The element with the largest |z|; -1 where there is none.
struct WorstElement {
  int seq = -1;
  int pos = -1;
  int head = -1;
  int channel = -1;
  double got = 0;
  double expected = 0;
  double sigma = 0;
};

/// What came of one invariant: equal launches whose results must be equal.
struct InvariantResult {
  enum class Outcome {
    kHeld,     ///< bit for bit, or within tolerance where that is the rule
    kBroken,   ///< demanded, and not so
    kDiffers,  ///< not bit for bit, but within tolerance, and the kernel promises no more
    kSkipped,  ///< cannot be asked of this case or kernel
  };
  std::string name;
  Outcome outcome = Outcome::kHeld;
  std::string note;  ///< where it differs, or why it was skipped; empty where it held
};
constexpr const char* outcome_name(InvariantResult::Outcome o) {
  constexpr const char* names[] = {"held", "broken", "differs", "skipped"};
  return names[static_cast<int>(o)];
}

/// Attention: z = (out - o) / sigma, with sigma derived from the kernel's declared arithmetic
/// (harness/verify/README.md).
struct Verdict {
  bool pass = false;
  std::string reason;                  ///< empty on pass; else the first detector that fired, and where
  std::vector<std::string> failed_by;  ///< all detectors that fired, the one of `reason` first
  std::string method;                  ///< "full", "sampled", "bitwise" or "interval"
  int64_t rows = 0;                    ///< rows compared with the reference
  int64_t rows_total = 0;
  double max_z = 0;       ///< limit kMaxZ
  double max_row_z2 = 0;  ///< largest mean of z^2 over the channels of a row, over its limit: 1 is the limit
  double rms_z = 0;
  double slope = 0;        ///< weighted least-squares slope of (out - o) on o
  double bias_se = 0;      ///< |slope| in standard errors
  double max_abs = 0;      ///< largest |out - o|
  double max_rel = 0;      ///< largest |out - o| / |o| over elements with |o| above sigma
  double max_ulp = 0;      ///< largest |out - o| in units of the output type's last place at o
  double lse_max_z = 0;    ///< limit kMaxZ
  double probs_max_z = 0;  ///< limit kMaxZ; 0 where no probabilities are returned
  WorstElement worst;
  std::string
      outputs_digest;      ///< of the bytes of all outputs, 16 hexadecimal digits: equal bits, equal digest
  double reference_s = 0;  ///< seconds the reference took
  std::vector<std::string> clues;  ///< what a wrong output says about its cause (clues.h), in sentences
  std::vector<InvariantResult> invariants;  ///< in the order in which they were tried; empty: none was

  /// A detector fired: the first one gives the reason.
  void fail(const std::string& detector, const std::string& why) {
    if (pass || reason.empty()) reason = why;
    pass = false;
    failed_by.push_back(detector);
  }
};

}  // namespace attnbench
