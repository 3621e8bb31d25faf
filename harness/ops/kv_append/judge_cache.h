// Compares whole caches with what an append must leave in them.
#pragma once

#include "harness/judge/expected.h"
#include "harness/ops/kv_append/judge_rows.h"
#include "harness/tensors/workload.h"

namespace attnbench {

/// Checks the caches of K and V after an append, and adds what is wrong to `v`, with clues. Appended rows must be equal
/// copies, or lie within the rounding interval of what float32 may compute. Quantised rows are judged with the scale that
/// was given or that the launch stored; stored scales are judged, too. Every other byte must be unchanged.
void check_caches(const Workload& workload, const AppendedRows& rows, const HostOutputs& outputs, Verdict& v);

/// Adds what the caches, and the scales that the launch computes, must hold. Elements that lie within their intervals are
/// as launched. Rows whose scale is wrong are those of the right scale.
void expect_caches(const Workload& workload, const AppendedRows& rows, const HostOutputs& got,
                   ExpectedOutputs& expected);

}  // namespace attnbench
