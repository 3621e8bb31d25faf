#include "harness/workload/bad_launch.h"

#include <algorithm>

namespace attnbench {
namespace {

constexpr uint64_t kNoFeature = 1ull << 63;  ///< a bit that no version of the contract has

void spoil_attention(BadLaunch how, AttentionParams& p) {
  switch (how) {
    case BadLaunch::kNone:
      break;
    case BadLaunch::kFeature:
      p.features |= kNoFeature;
      break;
    case BadLaunch::kDType:
      p.dtype_out = DType::kInt8;
      break;
    case BadLaunch::kHeadDim:
      p.head_dim = 0;
      break;
    case BadLaunch::kHeads:  // no multiple of the KV heads
      p.num_heads_q = p.num_heads_kv > 1 ? p.num_heads_q + 1 : 0;
      break;
    case BadLaunch::kBlockSize:
      p.block_size = 0;
      break;
    case BadLaunch::kNumSplits:  // splits that no feature bit announces
      p.features &= ~uint64_t{kSplitKv};
      p.num_splits = std::max(p.num_splits, 4);
      break;
    case BadLaunch::kBlockTable:  // rows too short for the longest sequence
      p.block_table_stride = std::max(0, (p.max_seqlen_k - 1) / p.block_size);
      break;
    case BadLaunch::kPointer:
      p.q = nullptr;
      break;
  }
}

void spoil_append(BadLaunch how, KvAppendParams& p) {
  if (how == BadLaunch::kFeature) p.features |= kNoFeature;
  if (how == BadLaunch::kDType) p.dtype_in = DType::kInt8;
  if (how == BadLaunch::kHeadDim) p.head_dim = 0;
  if (how == BadLaunch::kHeads) p.num_heads_kv = 0;
  if (how == BadLaunch::kBlockSize) p.block_size = 0;
  if (how == BadLaunch::kPointer) p.key = nullptr;
}

void spoil_merge(BadLaunch how, MergeStatesParams& p) {
  if (how == BadLaunch::kFeature) p.features |= kNoFeature;
  if (how == BadLaunch::kDType) p.dtype_out = DType::kInt8;
  if (how == BadLaunch::kHeadDim) p.head_dim = 0;
  if (how == BadLaunch::kHeads) p.num_heads = 0;
  if (how == BadLaunch::kPointer) p.partial_out = nullptr;
}

void spoil_backward(BadLaunch how, AttentionBackwardParams& p) {
  if (how == BadLaunch::kFeature) p.features |= kNoFeature;
  if (how == BadLaunch::kDType) p.dtype = DType::kInt8;
  if (how == BadLaunch::kHeadDim) p.head_dim = 0;
  if (how == BadLaunch::kHeads) p.num_heads_q = p.num_heads_kv > 1 ? p.num_heads_q + 1 : 0;
  if (how == BadLaunch::kPointer) p.q = nullptr;
}

void spoil_move(BadLaunch how, KvMoveParams& p) {
  if (how == BadLaunch::kFeature) p.features |= kNoFeature;
  if (how == BadLaunch::kDType) p.dtype_k = p.dtype_k == DType::kInt8 ? DType::kE4m3 : DType::kInt8;
  if (how == BadLaunch::kHeadDim) p.head_dim = 0;
  if (how == BadLaunch::kHeads) p.num_heads_kv = 0;
  if (how == BadLaunch::kBlockSize) p.block_size = 0;
  if (how == BadLaunch::kPointer) p.k_src = nullptr;
}

}  // namespace

void spoil(BadLaunch how, OpParams& params) {
  switch (params.op) {
    case Op::kAttention:
      return spoil_attention(how, params.attention);
    case Op::kKvAppend:
      return spoil_append(how, params.kv_append);
    case Op::kMergeStates:
      return spoil_merge(how, params.merge_states);
    case Op::kAttentionBackward:
      return spoil_backward(how, params.attention_backward);
    case Op::kKvMove:
      return spoil_move(how, params.kv_move);
  }
}

}  // namespace attnbench
