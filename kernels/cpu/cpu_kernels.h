// The kernels of the `cpu` device.
#pragma once

#include "kernels/contract/kernel.h"

namespace attnbench::cpu {

/// Attention by tiled online softmax in fp32, threaded and vectorised; every sequence's result has the same
/// bits whatever the batch, the page layout and the number of threads.
extern const Kernel kAttention;

/// kv_append: new rows to the slots of slot_mapping.
extern const Kernel kKvAppend;

/// merge_states: each row's states in their order, in fp32.
extern const Kernel kMergeStates;

}  // namespace attnbench::cpu
