// What the kernels support, and their Kernel tables.
#include "kernels/cuda/simt/launch.h"

#include <algorithm>

#include "kernels/common/checks_append.h"
#include "kernels/common/checks_backward.h"
#include "kernels/common/checks_move.h"
#include "kernels/cuda/simt/simt_kernels.h"

namespace attnbench::cuda_simt {
namespace {

constexpr int32_t kMinComputeCapability = 80;
constexpr int32_t kMaxHeadDimQv = 256;  ///< head_dim of a launch with qv: Widths::kQ

KernelStatus check_device(const Kernel& kernel, const LaunchContext& context, KernelMessage* message) {
  if (context.compute_capability >= kMinComputeCapability) return KernelStatus::kOk;
  return refuse(message, KernelStatus::kUnsupported, "%s: compute capability %d or more required, given %d",
                kernel.name, kMinComputeCapability, context.compute_capability);
}

KernelStatus attention_supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  if (const auto s = check_features(kAttention, *op, message); s != KernelStatus::kOk) return s;
  if (const auto s = check_attention_args(kAttention, op->attention, message); s != KernelStatus::kOk)
    return s;
  if ((op->attention.features & kQv) && op->attention.head_dim > kMaxHeadDimQv) {
    return refuse(message, KernelStatus::kUnsupported,
                  "cuda_simt: head_dim up to %d required for qv, given %d", kMaxHeadDimQv,
                  op->attention.head_dim);
  }
  if (const auto s = check_topk_limits(kAttention, op->attention, message); s != KernelStatus::kOk) return s;
  return check_device(kAttention, *context, message);
}

KernelStatus append_supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  if (const auto s = check_features(kKvAppend, *op, message); s != KernelStatus::kOk) return s;
  if (const auto s = check_kv_append_args(kKvAppend, op->kv_append, message); s != KernelStatus::kOk)
    return s;
  return check_device(kKvAppend, *context, message);
}

KernelStatus merge_supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  if (const auto s = check_features(kMergeStates, *op, message); s != KernelStatus::kOk) return s;
  if (const auto s = check_merge_states_args(kMergeStates, op->merge_states, message); s != KernelStatus::kOk)
    return s;
  return check_device(kMergeStates, *context, message);
}

KernelStatus backward_supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  if (const auto s = check_features(kAttentionBackward, *op, message); s != KernelStatus::kOk) return s;
  if (const auto s = check_backward_args(kAttentionBackward, op->attention_backward, message);
      s != KernelStatus::kOk)
    return s;
  return check_device(kAttentionBackward, *context, message);
}

KernelStatus move_supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  if (const auto s = check_features(kKvMove, *op, message); s != KernelStatus::kOk) return s;
  if (const auto s = check_kv_move_args(kKvMove, op->kv_move, message); s != KernelStatus::kOk) return s;
  return check_device(kKvMove, *context, message);
}

/// All arithmetic is in fp32. exp2f without fast-math options has an error of at most 2 ulp (CUDA C++
/// Programming Guide, mathematical functions), which 2^-22 covers.
Numerics attention_numerics(const OpParams*) { return {DType::kFp32, DType::kFp32, 0x1p-22}; }

/// Verification of kv_append does not use this. A plain append copies, in the type of the cache.
Numerics append_numerics(const OpParams* op) { return {op->kv_append.dtype_k, op->kv_append.dtype_k, 0.0}; }

/// Verification of kv_move does not use this.
Numerics move_numerics(const OpParams*) { return {DType::kFp32, DType::kFp32, 0.0}; }

/// expf has an error of at most 2 ulp too.
Numerics merge_numerics(const OpParams*) { return {DType::kFp32, DType::kFp32, 0x1p-22}; }

std::size_t backward_workspace(const OpParams* op, const LaunchContext*) {
  const AttentionBackwardParams& p = op->attention_backward;
  return static_cast<std::size_t>(p.total_q) * static_cast<std::size_t>(p.num_heads_q) * sizeof(float);
}

std::size_t no_workspace(const OpParams*, const LaunchContext*) { return 0; }

/// Launches the kernel of the smallest padded head_dim that holds both head_dim and head_dim_v.
KernelStatus launch_widths(const AttentionParams& p, const LaunchContext& context, KernelMessage* message) {
  const int32_t dim = std::max(p.head_dim, p.head_dim_v);
  if (p.features & kQv) {
    if (dim <= 64) return launch_attention<64, Kind::kQv>(p, context, message);
    if (dim <= 256) return launch_attention<256, Kind::kQv>(p, context, message);
    return launch_attention<576, Kind::kQv>(p, context, message);
  }
  if (p.features & kTopkIndices) {
    return dim <= 128 ? launch_attention<128, Kind::kListed>(p, context, message)
                      : launch_attention<576, Kind::kListed>(p, context, message);
  }
  if (dim <= 32) return launch_attention<32>(p, context, message);
  if (dim <= 64) return launch_attention<64>(p, context, message);
  if (dim <= 128) return launch_attention<128>(p, context, message);
  if (dim <= 256) return launch_attention<256>(p, context, message);
  return launch_attention<576>(p, context, message);
}

std::size_t attention_workspace(const OpParams* op, const LaunchContext*) {
  return op->attention.num_splits > 0 ? partial_bytes(op->attention) : 0;
}

/// A launch with num_splits: writes the states of all parts to the workspace, then merges them into the
/// outputs.
KernelStatus launch_split(const AttentionParams& p, const LaunchContext& context, KernelMessage* message) {
  if (context.workspace_bytes < partial_bytes(p)) {
    return refuse(message, KernelStatus::kBadArgument,
                  "cuda_simt: workspace of %zu bytes required, given %zu", partial_bytes(p),
                  context.workspace_bytes);
  }
  const PartialShape shape = partial_shape(p);
  AttentionParams parts = p;
  // Sinks join once, in the merge, which also stores O in its type.
  parts.features &= ~uint64_t{kSinks | kLseTokenMajor | kE4m3Out};
  parts.dtype_out = DType::kFp32;
  parts.out = context.workspace;
  parts.out_stride_token = int64_t{p.num_heads_q} * p.head_dim_v;
  parts.out_stride_head = p.head_dim_v;
  parts.lse = static_cast<float*>(context.workspace) + p.num_splits * shape.out_stride;
  parts.lse_stride_head = p.total_q;
  if (const auto s = launch_widths(parts, context, message); s != KernelStatus::kOk) return s;

  MergeStatesParams m{};
  m.features = kFp32 | (p.features & (kLseBase2 | kLseTokenMajor | kE4m3Out));
  m.num_states = p.num_splits;
  m.num_heads = p.num_heads_q;
  m.head_dim = p.head_dim_v;
  m.dtype_partial = DType::kFp32;
  m.dtype_out = p.dtype_out;
  m.num_rows = p.total_q;
  m.partial_out = parts.out;
  m.partial_stride_state = shape.out_stride;
  m.partial_stride_token = parts.out_stride_token;
  m.partial_stride_head = parts.out_stride_head;
  m.partial_lse = parts.lse;
  m.lse_stride_state = shape.lse_stride;
  m.lse_stride_token = 1;
  m.lse_stride_head = p.total_q;
  m.out = p.out;
  m.out_scale = p.out_scale;
  m.out_stride_token = p.out_stride_token;
  m.out_stride_head = p.out_stride_head;
  m.out_lse = p.lse;
  m.out_lse_stride_head = p.lse_stride_head;
  m.out_lse_stride_token = p.lse_stride_token;
  const SplitMerge split{p.features & kSinks ? p.sinks : nullptr, p.cu_seqlens_q, p.seqused_q, p.batch};
  return launch_merge_states(m, split, context, message);
}

KernelStatus attention_launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const AttentionParams& p = op->attention;
  if (const auto s = check_attention_pointers(kAttention, p, message); s != KernelStatus::kOk) return s;
  if (p.batch > 0 && (p.features & kAppend)) {
    if (const auto s = launch_append(p, *context, message); s != KernelStatus::kOk) return s;
  }
  if (p.batch == 0 || p.total_q == 0) return KernelStatus::kOk;
  const KernelStatus status =
      p.num_splits > 0 ? launch_split(p, *context, message) : launch_widths(p, *context, message);
  if (status != KernelStatus::kOk || !(p.features & kProbs)) return status;
  return launch_probs(p, *context, message);
}

KernelStatus append_launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const KvAppendParams& p = op->kv_append;
  if (const auto s = check_kv_append_pointers(kKvAppend, p, message); s != KernelStatus::kOk) return s;
  return launch_kv_append(p, *context, message);
}

KernelStatus merge_launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const MergeStatesParams& p = op->merge_states;
  if (const auto s = check_merge_states_pointers(kMergeStates, p, message); s != KernelStatus::kOk) return s;
  return launch_merge_states(p, {}, *context, message);
}

KernelStatus backward_launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const AttentionBackwardParams& p = op->attention_backward;
  if (const auto s = check_backward_pointers(kAttentionBackward, p, message); s != KernelStatus::kOk)
    return s;
  if (const std::size_t bytes = backward_workspace(op, context); bytes > 0) {
    const auto s = check_workspace(kAttentionBackward, bytes, *context, message);
    if (s != KernelStatus::kOk) return s;
  }
  return launch_backward(p, *context, message);
}

KernelStatus move_launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const KvMoveParams& p = op->kv_move;
  if (const auto s = check_kv_move_pointers(kKvMove, p, message); s != KernelStatus::kOk) return s;
  return launch_kv_move(p, *context, message);
}

}  // namespace

const Kernel kAttention = {
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant | kPagingInvariant,
    .name = "cuda_simt",
    .summary =
        "readable, the features of the cpu kernel, any GPU from sm_80, no tensor cores: the GPU's own "
        "baseline",
    .shapes = "head_dim 1..576 (qv: 1..256), head_dim_v 1..512, any block_size, any ratio of heads",
    .op = Op::kAttention,
    .device = DeviceKind::kCuda,
    .min_compute_capability = kMinComputeCapability,
    .features = kPackedKv | kPagedKv | kContiguousKv | kPartialKv | kHnd | kCausal | kWindow | kSoftcap |
                kAlibi | kSinks | kSplitKv | kBf16 | kFp16 | kFp32 | kE4m3Kv | kE4m3Q | kInt8Q | kInt8K |
                kInt8V | kHeadDimV | kVIsK | kProbs | kDropout | kAppend | kRotary | kRotaryQ |
                kVChannelScales | kAppendQuantised | kE4m3Out | kAttentionChunk | kLseBase2 | kLseTokenMajor |
                kCustomMask | kTopkIndices | kSequsedQ | kPagedBatchIdx | kPagedLeftpad | kQv | kE5m2Kv |
                kRotaryCached | kE2m1Kv | kBlockScales | kKTail | kTopLeft | kKTokenScales | kVTokenScales |
                kDescaleRows,
    .supports = attention_supports,
    .numerics = attention_numerics,
    .workspace_bytes = attention_workspace,
    .plan = nullptr,
    .launch = attention_launch,
};

const Kernel kKvAppend = {
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant,
    .name = "cuda_simt",
    .summary =
        "one warp per row: the widest copies that the alignment allows, or rotated and quantised in fp32",
    .shapes = "head_dim 1..256, head_dim_v 1..512, any block_size",
    .op = Op::kKvAppend,
    .device = DeviceKind::kCuda,
    .min_compute_capability = kMinComputeCapability,
    .features = kPagedKv | kHnd | kBf16 | kFp16 | kFp32 | kRotary | kE4m3Kv | kInt8K | kInt8V |
                kKTokenScales | kVTokenScales | kVChannelScales | kHeadDimV | kOneRow | kE5m2Kv | kQueryOut |
                kPositions64,
    .supports = append_supports,
    .numerics = append_numerics,
    .workspace_bytes = no_workspace,
    .plan = nullptr,
    .launch = append_launch,
};

const Kernel kMergeStates = {
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant,
    .name = "cuda_simt",
    .summary = "partial states of attention merged by their LSE, one warp per row and head",
    .shapes = "head_dim 1..1024, any number of states",
    .op = Op::kMergeStates,
    .device = DeviceKind::kCuda,
    .min_compute_capability = kMinComputeCapability,
    .features = kBf16 | kFp16 | kFp32 | kLseBase2 | kLseTokenMajor | kRaggedStates | kInfLse | kE4m3Out,
    .supports = merge_supports,
    .numerics = merge_numerics,
    .workspace_bytes = no_workspace,
    .plan = nullptr,
    .launch = merge_launch,
};

const Kernel kAttentionBackward = {
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant,
    .name = "cuda_simt",
    .summary = "readable, one pass for dq and one for dk and dv, no atomics, no tensor cores",
    .shapes = "head_dim and head_dim_v 1..256, any ratio of heads",
    .op = Op::kAttentionBackward,
    .device = DeviceKind::kCuda,
    .min_compute_capability = kMinComputeCapability,
    .features = kPackedKv | kCausal | kWindow | kSoftcap | kAlibi | kSinks | kBf16 | kFp16 | kFp32 |
                kHeadDimV | kDropout | kTopLeft,
    .supports = backward_supports,
    .numerics = attention_numerics,
    .workspace_bytes = backward_workspace,
    .plan = nullptr,
    .launch = backward_launch,
};

const Kernel kKvMove = {
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant,
    .name = "cuda_simt",
    .summary =
        "one warp per row and head: the widest copies that the alignment allows, or e4m3 times its descale",
    .shapes = "head_dim 1..576, head_dim_v 1..512, any block_size",
    .op = Op::kKvMove,
    .device = DeviceKind::kCuda,
    .min_compute_capability = kMinComputeCapability,
    .features = kPagedKv | kHnd | kBf16 | kFp16 | kFp32 | kE4m3Kv | kInt8K | kInt8V | kHeadDimV | kVIsK |
                kGather | kSeqStarts,
    .supports = move_supports,
    .numerics = move_numerics,
    .workspace_bytes = no_workspace,
    .plan = nullptr,
    .launch = move_launch,
};

}  // namespace attnbench::cuda_simt
