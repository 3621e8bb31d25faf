// The ops, and what each of them does. The rest of the program asks these traits and the functions in case_ops.h,
// tensors_ops.h and judge_ops.h; only options and the choice of a default kernel name an op.
#pragma once

#include <iterator>

#include "kernels/contract/kernel.h"

/// Calls X(op, ...) with the folder of each op, in the order of Op.
#define ATTNBENCH_OPS(X, ...)        \
  X(attention, __VA_ARGS__)          \
  X(kv_append, __VA_ARGS__)          \
  X(merge_states, __VA_ARGS__)       \
  X(attention_backward, __VA_ARGS__) \
  X(kv_move, __VA_ARGS__)

/// Declares `row`, a Struct that ops/<op>/ defines for each op, and `function(op)`, which returns it.
#define ATTNBENCH_OP_TABLE(Struct, row, function)                                             \
  ATTNBENCH_OPS(ATTNBENCH_DECLARE_ROW, Struct, row)                                           \
  inline const Struct& function(Op op) {                                                      \
    static constexpr const Struct* kTable[] = {ATTNBENCH_OPS(ATTNBENCH_ADDRESS_OF_ROW, row)}; \
    return *kTable[static_cast<int32_t>(op)];                                                 \
  }
#define ATTNBENCH_DECLARE_ROW(op, Struct, row) \
  namespace ops::op {                          \
  extern const Struct row;                     \
  }
#define ATTNBENCH_ADDRESS_OF_ROW(op, row) &ops::op::row,

namespace attnbench {

struct OpTraits {
  bool attends = false;    ///< queries meet keys: there are scores, and a P
  bool gradients = false;  ///< it is given O and LSE, and computes gradients
  bool merges = false;     ///< it merges partial states, and has no keys
  bool appends = false;    ///< it writes new rows to a paged cache
  bool moves = false;      ///< it copies rows of a paged cache to other places

  /// Attention itself.
  constexpr bool forward() const { return attends && !gradients; }
  /// It stores rows and sums nothing: it declares no arithmetic.
  constexpr bool copies() const { return appends || moves; }
};

/// In the order of Op.
inline constexpr OpTraits kOpTraits[] = {{.attends = true},
                                         {.appends = true},
                                         {.merges = true},
                                         {.attends = true, .gradients = true},
                                         {.moves = true}};
static_assert(std::size(kOpTraits) == std::size(kOps));

constexpr const OpTraits& traits_of(Op op) { return kOpTraits[static_cast<int32_t>(op)]; }

template <class Params>
OpParams op_params(Op of, Params OpParams::*member, const Params& params) {
  OpParams op{};
  op.op = of;
  op.*member = params;
  return op;
}
/// A launch of the op whose parameters these are.
inline OpParams op_params(const AttentionParams& p) {
  return op_params(Op::kAttention, &OpParams::attention, p);
}
inline OpParams op_params(const KvAppendParams& p) {
  return op_params(Op::kKvAppend, &OpParams::kv_append, p);
}
inline OpParams op_params(const MergeStatesParams& p) {
  return op_params(Op::kMergeStates, &OpParams::merge_states, p);
}
inline OpParams op_params(const AttentionBackwardParams& p) {
  return op_params(Op::kAttentionBackward, &OpParams::attention_backward, p);
}
inline OpParams op_params(const KvMoveParams& p) { return op_params(Op::kKvMove, &OpParams::kv_move, p); }

}  // namespace attnbench
