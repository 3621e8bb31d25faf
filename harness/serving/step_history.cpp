#include "harness/serving/step_history.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace attnbench {
namespace {

constexpr int kPartBits = 6;  // 64 buckets for each power of two

std::size_t bucket_of(int64_t value) {
  const auto v = static_cast<uint64_t>(value);
  const int shift = std::max(0, static_cast<int>(std::bit_width(v)) - (kPartBits + 1));
  return (static_cast<std::size_t>(shift) << kPartBits) + static_cast<std::size_t>(v >> shift);
}

/// The largest value of a bucket.
int64_t last_of_bucket(std::size_t bucket) {
  const std::size_t part = std::size_t{1} << kPartBits;
  if (bucket < 2 * part) return static_cast<int64_t>(bucket);
  const std::size_t shift = bucket / part - 1;
  return static_cast<int64_t>(((bucket - shift * part + 1) << shift) - 1);
}

}  // namespace

void Histogram::add(int64_t value) {
  const std::size_t bucket = bucket_of(value);
  if (bucket >= counts_.size()) counts_.resize(bucket + 1);
  ++counts_[bucket];
  ++count_;
  sum_ += static_cast<double>(value);
  max_ = std::max(max_, value);
}

int64_t Histogram::quantile(double p) const {
  const auto wanted = static_cast<int64_t>(std::ceil(p * static_cast<double>(count_)));
  int64_t seen = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen >= std::max<int64_t>(wanted, 1)) return std::min(last_of_bucket(i), max_);
  }
  return 0;
}

void HistorySlice::add(const HistorySlice& later) {
  if (steps == 0) start_ns = later.start_ns;
  steps += later.steps;
  duration_ns += later.duration_ns;
  query_tokens += later.query_tokens;
  decode_tokens += later.decode_tokens;
  owned_blocks += later.owned_blocks;
  unfilled_tokens += later.unfilled_tokens;
  preempted += later.preempted;
}

void StepHistory::add(const Step& step) {
  HistorySlice one{.steps = 1, .start_ns = step.start_ns, .duration_ns = step.duration_ns};
  one.query_tokens = step.query_tokens;
  one.owned_blocks = step.owned_blocks;
  one.unfilled_tokens = step.unfilled_tokens;
  one.preempted = step.preempted;
  int64_t decoding = 0;
  for (const ScheduledSequence& s : step.sequences) {
    context_tokens.add(s.context_tokens);
    if (!s.decode) continue;
    ++decoding;
    one.decode_tokens += s.query_tokens;
  }
  const auto all = static_cast<int64_t>(step.sequences.size());
  sequences.add(all);
  decodes.add(decoding);
  query_tokens.add(step.query_tokens);
  ++(decoding == all ? decode_steps : decoding == 0 ? prefill_steps : mixed_steps);
  most_waiting = std::max<int64_t>(most_waiting, step.waiting);

  if (slices_.empty() || slices_.back().steps == steps_per_slice_) {
    if (slices_.size() == 2 * kSlices) {
      for (std::size_t i = 0; i < kSlices; ++i) {
        slices_[i] = slices_[2 * i];
        slices_[i].add(slices_[2 * i + 1]);
      }
      slices_.resize(kSlices);
      steps_per_slice_ *= 2;
    }
    slices_.emplace_back();
  }
  slices_.back().add(one);
}

HistorySlice StepHistory::total() const {
  HistorySlice sum;
  for (const HistorySlice& s : slices_) sum.add(s);
  return sum;
}

}  // namespace attnbench
