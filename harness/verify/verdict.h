// How a case's output was judged.
#pragma once

#include <cstdint>
#include <string>

namespace attnbench {

enum class CheckMode { kOff, kSampled, kFull };

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

/// Attention: z = (out - o) / sigma, with sigma derived from the kernel's declared arithmetic
/// (harness/verify/README.md).
struct Verdict {
  bool pass = false;
  std::string reason;  ///< empty on pass; else the first detector that fired, and where
  std::string method;  ///< "full", "sampled" or "bitwise"
  int64_t rows = 0;    ///< rows compared with the reference
  int64_t rows_total = 0;
  double max_z = 0;       ///< limit kMaxZ
  double max_row_z2 = 0;  ///< largest mean of z^2 over the channels of a row, over its limit: 1 is the limit
  double rms_z = 0;
  double slope = 0;      ///< weighted least-squares slope of (out - o) on o
  double bias_se = 0;    ///< |slope| in standard errors
  double max_abs = 0;    ///< largest |out - o|
  double max_rel = 0;    ///< largest |out - o| / |o| over elements with |o| above sigma
  double max_ulp = 0;    ///< largest |out - o| in units of the output type's last place at o
  double lse_max_z = 0;  ///< limit kMaxZ
  WorstElement worst;
  double reference_s = 0;  ///< seconds the reference took
};

}  // namespace attnbench
