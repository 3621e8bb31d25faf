// What a replay of many steps looked like, in memory that does not grow with their number.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/serving/step.h"

namespace attnbench {

/// Counts of values of at least 0. Values below 128 are kept exactly, others to within 1/64.
class Histogram {
 public:
  void add(int64_t value);
  int64_t count() const { return count_; }
  double mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }
  int64_t max() const { return max_; }
  /// The least value that at least the part `p` of all values does not exceed; 0 if there is none.
  int64_t quantile(double p) const;

 private:
  std::vector<int64_t> counts_;
  int64_t count_ = 0, max_ = 0;
  double sum_ = 0;
};

/// Consecutive steps.
struct HistorySlice {
  int64_t steps = 0, start_ns = 0, duration_ns = 0;
  int64_t query_tokens = 0, decode_tokens = 0;    ///< sums; decode_tokens: of decoding sequences
  int64_t owned_blocks = 0, unfilled_tokens = 0;  ///< sums over steps
  int64_t preempted = 0;
  void add(const HistorySlice& later);
};

/// Steps of a replay. Neighbouring slices are joined when there are 2 * kSlices.
class StepHistory {
 public:
  static constexpr std::size_t kSlices = 240;

  void add(const Step& step);

  const std::vector<HistorySlice>& slices() const { return slices_; }
  HistorySlice total() const;
  Histogram sequences, decodes, query_tokens, context_tokens;  ///< of each step; context: of each sequence
  int64_t decode_steps = 0, prefill_steps = 0, mixed_steps = 0;
  int64_t most_waiting = 0;

 private:
  std::vector<HistorySlice> slices_;
  int64_t steps_per_slice_ = 1;
};

}  // namespace attnbench
