// The two ways to do a task. Both take scratch of their own thread, aligned to Scratch::kAlign, of the size
// that they ask for, and the launch's partial states, which only tasks with splits > 1 touch.
#pragma once

#include <cstddef>

#include "kernels/cpu/schedule.h"

namespace attnbench::cpu {

std::size_t many_rows_scratch_bytes(const AttentionParams& p);
void run_many_rows(const AttentionParams& p, const Task& task, void* scratch, float* partials);

std::size_t few_rows_scratch_bytes(const AttentionParams& p);
void run_few_rows(const AttentionParams& p, const Task& task, void* scratch, float* partials);

/// Writes the probabilities of a task's rows, at most kRowStep, against all their keys, from the LSE that the
/// launch has left.
void run_probs(const AttentionParams& p, const Task& task);

/// Merges the partial states of a row tile into O and LSE, in the order of their keys.
void run_merge(const AttentionParams& p, const Merge& merge, const float* partials);

}  // namespace attnbench::cpu
