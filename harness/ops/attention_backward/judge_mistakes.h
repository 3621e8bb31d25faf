// Known mistakes of backward passes, each as a rule for pairs. Clues look for them, and the selftest makes them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "harness/cases/case.h"
#include "harness/ops/attention_backward/judge_pairs.h"

namespace attnbench {

struct GradMistake {
  std::string fault;  ///< the selftest's fault that makes it; empty: none
  std::string text;
  GradRule rule;
};

/// The mistakes that such a problem can show. `type` is that of the gradients.
std::vector<GradMistake> grad_mistakes(const reference::Problem& right, DType type);

/// A row of a gradient that was compared. `pos` counts queries (dq) or keys (dk, dv).
struct GradRow {
  Grad of;
  int seq, pos, head;
  bool wrong;
};
using GotGradient = std::function<double(const GradRow& row, int channel)>;

/// Names the mistakes, also those of mistakes.h, that give the rows of one sequence. Empty if its sequences are long.
/// `roundoff`: the largest of the kernel's. num_threads 0: all.
std::vector<std::string> grad_clues(const Case& c, std::span<const GradRow> rows, const GotGradient& got,
                                    double roundoff, int num_threads);

/// What is wrong with dsinks, (Hq). by_seq: the right terms of each sequence, (B, Hq). May be empty.
std::string sink_clue(std::span<const float> got, std::span<const double> by_seq);

}  // namespace attnbench
