// Made-up answers: what a verdict's limits must reject, or the verdict shows nothing.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "harness/judge/error_model.h"
#include "harness/tensors/workload.h"

namespace attnbench {

struct Verdict;
enum class CheckMode;

/// Their names in Verdict::accepts.
namespace made_up {
inline constexpr const char* kZeros = "zeros";
inline constexpr const char* kMeanOfValues = "the mean of the visible values";
inline constexpr const char* kMeanOfStates = "the mean of the states";
}  // namespace made_up

/// How one made-up answer of O scores by the limits that the kernel's answer has. Rows for which it is the right answer
/// are left out.
class MadeUp {
 public:
  /// One element of the row in hand. z: its error in standard deviations; weight: expected value over the same.
  void element(double z, double weight) {
    row_max_ = std::max(row_max_, std::abs(z));
    row_z2_ += z * z;
    row_xy_ += z * weight;
  }
  /// Ends the row. limit: of the mean of its z^2. Returns the row's part of the slope's numerator.
  double end_row(int elements, double limit) {
    any_ = true;
    rejected_ = rejected_ || !(row_max_ <= kMaxZ) || !(row_z2_ <= limit * elements);
    row_max_ = row_z2_ = 0;
    return std::exchange(row_xy_, 0);
  }
  void add(const MadeUp& other) {
    any_ = any_ || other.any_;
    rejected_ = rejected_ || other.rejected_;
  }
  bool rejected() const { return rejected_; }
  /// slope: of its errors on the expected values, of which the limit is given.
  bool accepted(double slope, double limit) const { return any_ && !rejected_ && std::abs(slope) <= limit; }

 private:
  bool any_ = false, rejected_ = false;
  double row_max_ = 0, row_z2_ = 0, row_xy_ = 0;
};

/// Why a verdict that no detector spoke against is undecided: which made-up answers it accepts (Verdict::accepts), and
/// whether the declared arithmetic or the case is the cause (Verdict::tells_nothing is set). Compares once more, by
/// float32 arithmetic.
std::string undecided_reason(const Workload& workload, const HostOutputs& outputs, const Numerics& numerics,
                             CheckMode mode, Verdict& verdict);

}  // namespace attnbench
