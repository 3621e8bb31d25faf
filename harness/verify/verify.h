// Judging what a launch left behind.
#pragma once

#include "harness/verify/verdict.h"
#include "harness/workload/workload.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

/// Compares the outputs of one launch with the reference (attention) or bit for bit with the expected caches
/// (kv_append). `mode` must not be kOff. threads 0: all.
Verdict verify(const Workload& workload, const HostOutputs& outputs, const Numerics& numerics, CheckMode mode,
               int num_threads = 0);

/// The two halves, for tests.
Verdict verify_attention(const Case& c, const HostOutputs& outputs, const Numerics& numerics, CheckMode mode,
                         int num_threads);
Verdict verify_append(const Workload& workload, const HostOutputs& outputs);

}  // namespace attnbench
