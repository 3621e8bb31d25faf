// The paths of a task. Each takes the thread's own scratch, aligned to Scratch::kAlign and of the size that
// the path's *_scratch_bytes returns. Each also takes the launch's partial states, which only tasks with
// splits > 1 use.
#pragma once

#include <cstddef>

#include "kernels/cpu/schedule.h"

namespace attnbench::cpu {

std::size_t many_rows_scratch_bytes(const AttentionParams& p);
void run_many_rows(const AttentionParams& p, const Task& task, void* scratch, float* partials);

std::size_t few_rows_scratch_bytes(const AttentionParams& p);
void run_few_rows(const AttentionParams& p, const Task& task, void* scratch, float* partials);

/// Writes the probabilities of a task's rows, at most kRowStep of them, against all their keys. It reads the
/// LSE that the launch has written.
void run_probs(const AttentionParams& p, const Task& task);

/// Merges the partial states of a row tile into O and LSE, in the order of the keys.
void run_merge(const AttentionParams& p, const Merge& merge, const float* partials);

}  // namespace attnbench::cpu
