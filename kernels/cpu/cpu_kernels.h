// The kernels of the `cpu` device.
#pragma once

#include "kernels/contract/kernel.h"

namespace attnbench::cpu {

/// Attention by tiled online softmax in fp32, threaded and vectorised. A sequence's result has the same bits
/// for any batch, page layout and number of threads.
extern const Kernel kAttention;

/// kv_append: writes new rows to the slots in slot_mapping.
extern const Kernel kKvAppend;

/// merge_states: sums the states of each row in order, in fp32.
extern const Kernel kMergeStates;
/// attention_backward: five products in fp32, one query head of a sequence per task.
extern const Kernel kAttentionBackward;
/// kv_move: copies blocks, or gathers rows of sequences to a packed tensor.
extern const Kernel kKvMove;

}  // namespace attnbench::cpu
