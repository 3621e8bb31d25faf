// What a kernel is: a struct of facts and plain functions, the same for built-in kernels and plug-ins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "kernels/contract/attention_backward_params.h"
#include "kernels/contract/attention_params.h"
#include "kernels/contract/merge_params.h"
#include "kernels/contract/move_params.h"

namespace attnbench {

/// Version of this interface. The program refuses a plug-in of another version.
inline constexpr uint32_t kKernelAbiVersion = 10;

enum class Op : int32_t {
  kAttention = 0,
  kKvAppend = 1,
  kMergeStates = 2,
  kAttentionBackward = 3,
  kKvMove = 4
};
/// All ops, in the order in which reports and help name them.
inline constexpr Op kOps[] = {Op::kAttention, Op::kKvAppend, Op::kMergeStates, Op::kAttentionBackward,
                              Op::kKvMove};
enum class DeviceKind : int32_t { kCpu = 0, kCuda = 1 };

inline constexpr const char* kOpNames[] = {"attention", "kv_append", "merge_states", "attention_backward",
                                           "kv_move"};
constexpr const char* op_name(Op op) { return kOpNames[static_cast<int32_t>(op)]; }
inline constexpr const char* kDeviceKindNames[] = {"cpu", "cuda"};
constexpr const char* device_kind_name(DeviceKind d) { return kDeviceKindNames[static_cast<int32_t>(d)]; }

/// Parameters of one launch.
struct OpParams {
  Op op;  ///< selects the member of the union
  union {
    AttentionParams attention;
    KvAppendParams kv_append;
    MergeStatesParams merge_states;
    AttentionBackwardParams attention_backward;
    KvMoveParams kv_move;
  };
};

/// The arithmetic that a kernel declares; the tolerance follows from it, and it has bounds (harness/judge/README.md).
/// Asked once per case.
struct Numerics {
  /// Type to which P is rounded before P.V; of attention_backward, the type of P and dS in their products.
  DType p_type;
  DType acc_type;      ///< type of the accumulators of q.k and P.V; of attention_backward, of all products
  double exp_rel_err;  ///< relative error of exp: 2^-22 for ex2.approx on a GPU
  /// Unit roundoff of sums inside the matrix unit where they have fewer digits than acc_type: 2^-13 for e4m3
  /// products on Hopper. It counts for q.k, and for P.V of one block of keys: sums over blocks are acc_type. 0:
  /// that of acc_type.
  double mma_roundoff = 0.0;
  /// The least weight that a row's heaviest key has in p_type: the spacing of small weights is relative to it.
  double p_scale = 1.0;
  /// attention_backward: type to which dk and dv of each query head are rounded before the heads of a group are
  /// summed; fp32: they are not rounded.
  DType head_grad_type = DType::kFp32;
  /// Attention in fp32: unit roundoff of q, k, P and v as operands of the matrix unit. 2^-10 for TF32, which cuts
  /// digits off. 0: operands keep theirs.
  double input_roundoff = 0.0;
};

enum class KernelStatus : int32_t {
  kOk = 0,
  kUnsupported = 1,  ///< this kernel cannot do the launch; the message says what it requires and was given
  kBadArgument = 2,  ///< the parameters contradict each other or the contract
  kDeviceError = 3,  ///< the launch itself failed
};

/// The reason of a status other than kOk: one line, ended by a zero byte.
struct KernelMessage {
  char text[256];
};

/// Writes a printf-style message and returns `status`: a refusal in one line.
template <class... Args>
KernelStatus refuse(KernelMessage* message, KernelStatus status, const char* format, Args... args) {
  if constexpr (sizeof...(Args) == 0) {
    std::snprintf(message->text, sizeof message->text, "%s", format);
  } else {
    std::snprintf(message->text, sizeof message->text, format, args...);
  }
  return status;
}

/// Where a launch left its outputs, if it does not write to the given ones (kReturnsOutputs). Strides are in
/// elements.
struct ReturnedOutputs {
  void* out;  ///< (total_q, Hq, Dv) in dtype_out; null: O was written to the given `out`
  int64_t out_stride_token;
  int64_t out_stride_head;
  int64_t out_stride_channel;
  float* lse;  ///< (Hq, total_q), may be the given `lse`; null: the LSE was written there as it must be
  int64_t lse_stride_head;
  int64_t lse_stride_token;
  float lse_factor;  ///< what makes natural logarithms of `lse`: ln 2 if it is in base 2
};

/// Where and with what a launch runs.
struct LaunchContext {
  void* stream;     ///< cudaStream_t on cuda, null on cpu
  void* workspace;  ///< belongs to one launch at a time, see Kernel::plan
  std::size_t workspace_bytes;
  int32_t num_threads;         ///< host threads to use; cpu only
  int32_t device_ordinal;      ///< cuda only
  int32_t compute_capability;  ///< 90 for sm_90; 0 on cpu
  int32_t multiprocessors;     ///< cuda only
  /// kReturnsOutputs: all zero before each launch, which may fill it; else null. The memory stays valid until
  /// the next launch of these parameters. The harness reads it after the launch and then overwrites it.
  ReturnedOutputs* returned;
};

enum KernelFlag : uint32_t {
  kDeterministic = 1u << 0,    ///< two launches give the same bits
  kBatchInvariant = 1u << 1,   ///< the other sequences of the batch do not change a sequence's result
  kPagingInvariant = 1u << 6,  ///< a sequence's result is the same from packed keys and from pages
  // What libraries do otherwise than the contract says. Records name it (attention; kFinitePadding also merge_states).
  kReturnsOutputs = 1u << 2,  ///< outputs may be in memory of the kernel: LaunchContext::returned
  kNoLse = 1u << 3,           ///< the launch gives no LSE, and none is judged
  kFinitePadding = 1u << 4,   ///< it may not meet NaN where nothing must be read; finite numbers lie there
  kInfEmptyLse = 1u << 7,     ///< the LSE of a row without keys is +inf, where the contract says -inf
  kHostLengths = 1u << 5,     ///< it reads lengths when it is planned: a launch is not repeated with others
  // What the kernel serves, and what it need not meet. Other cases are skipped, and records name it (attention,
  // attention_backward; the last two and kNoEmptyRows also merge_states). Each kServes implies kNoEmptyRows,
  // kNoIdleSequences and kNoShortKv.
  kServesDecode = 1u << 8,      ///< each sequence has one query: row b of q, O and the LSE
  kServesPrefill = 1u << 9,     ///< each sequence has as many queries as keys
  kServesAppend = 1u << 10,     ///< each sequence has queries behind earlier keys, or no earlier keys
  kNoEmptyRows = 1u << 11,      ///< each row has a visible key; merge_states: a state with keys
  kNoIdleSequences = 1u << 12,  ///< each sequence has a query, and there is a sequence
  kNoShortKv = 1u << 13,        ///< no sequence has more queries than keys
  kDenseInputs = 1u << 14,      ///< rows, heads, blocks and states of inputs have no gaps between them
};

/// The tiles of an attention kernel. A tile has `rows` x `keys` products; `tokens` query tokens of `heads`
/// query heads of one KV head fill its rows. Tile i of a sequence has the tokens from i * tokens on. It
/// visits those blocks of `keys` keys, counted from the sequence's first key, in which a token of the tile
/// sees a key.
struct Tile {
  int32_t tokens, heads, rows, keys;
};

/// One kernel. Only workspace_bytes, plan, tile and instances may be null.
struct Kernel {
  uint32_t abi_version;  ///< kKernelAbiVersion
  uint32_t flags;        ///< OR of KernelFlag
  const char* name;      ///< snake_case, unique per op and device, for example "cuda_simt"
  const char* summary;   ///< one line for `attnbench kernels`
  const char* shapes;    ///< supported head_dim and block_size in words: "head_dim 1..256, any block_size"
  Op op;
  DeviceKind device;
  int32_t min_compute_capability;  ///< 80 for sm_80; 0 on cpu
  uint64_t features;               ///< all Feature bits that the kernel handles

  /// Whether this kernel can do the launch. Reads no tensor; pointers may still be null. A refusal fills
  /// `message` with what is required and what is given.
  KernelStatus (*supports)(const OpParams*, const LaunchContext*, KernelMessage* message);
  /// The arithmetic of this launch.
  Numerics (*numerics)(const OpParams*);
  /// Bytes of device memory that the launch needs in LaunchContext::workspace. Null: no workspace.
  std::size_t (*workspace_bytes)(const OpParams*, const LaunchContext*);
  /// Preparation on the host. Its time is reported apart (plan_us) and is no part of a launch's time.
  /// Null: no preparation.
  ///
  /// A plan makes the workspace ready for any number of launches on the same stream. It also covers replays
  /// of a graph captured there. Between these, OpParams may change only in its pointers and in the data
  /// behind them. A new plan is needed for other maxima, heads or head_dim, for another stream or workspace,
  /// and after anything else has written to the workspace. After a new plan, graphs captured under an earlier
  /// plan of that workspace must not be replayed.
  ///
  /// The workspace is aligned to 256 bytes and belongs to one launch at a time. Launches or replays that may
  /// overlap need a workspace each.
  KernelStatus (*plan)(const OpParams*, const LaunchContext*, KernelMessage* message);
  /// Enqueues the work on the stream (cuda) or does it (cpu). On cuda it must not synchronise the host or
  /// allocate.
  KernelStatus (*launch)(const OpParams*, const LaunchContext*, KernelMessage* message);
  /// Its tile for this launch, from which the report compares executed with needed FLOP. May be null; returns
  /// zeros if the launch has no such tile.
  Tile (*tile)(const OpParams*) = nullptr;
  /// The variants compiled for each 16-bit type, for `attnbench kernels -v`: one per line, its name and then its
  /// constants (".head_dim = 64, .split = true"). May be null.
  const char* instances = nullptr;
};

inline uint64_t features_of(const OpParams& p) {
  switch (p.op) {
    case Op::kAttention:
      return p.attention.features;
    case Op::kKvAppend:
      return p.kv_append.features;
    case Op::kMergeStates:
      return p.merge_states.features;
    case Op::kAttentionBackward:
      return p.attention_backward.features;
    case Op::kKvMove:
      return p.kv_move.features;
  }
  return 0;
}

/// Names of the feature bits in refusals and in `attnbench kernels`.
struct FeatureName {
  Feature bit;
  const char* name;
};
inline constexpr FeatureName kFeatureNames[] = {
    {kPackedKv, "packed"},
    {kPagedKv, "paged"},
    {kContiguousKv, "contiguous"},
    {kCausal, "causal"},
    {kWindow, "window"},
    {kSoftcap, "softcap"},
    {kAlibi, "alibi"},
    {kSinks, "sinks"},
    {kBf16, "bf16"},
    {kFp16, "fp16"},
    {kFp32, "fp32"},
    {kE4m3Kv, "e4m3_kv"},
    {kE4m3Q, "e4m3_q"},
    {kInt8K, "int8_k"},
    {kInt8V, "int8_v"},
    {kInt8Q, "int8_q"},
    {kProbs, "probs"},
    {kDropout, "dropout"},
    {kRotary, "rotary"},
    {kAppend, "append"},
    {kSplitKv, "num_splits"},
    {kPartialKv, "seqused_k"},
    {kHnd, "hnd"},
    {kKTokenScales, "k_token_scales"},
    {kVTokenScales, "v_token_scales"},
    {kHeadDimV, "head_dim_v"},
    {kVIsK, "v_is_k_view"},
    {kRotaryQ, "rotary_q"},
    {kAttentionChunk, "attention_chunk"},
    {kLseBase2, "lse_base2"},
    {kLseTokenMajor, "lse_token_major"},
    {kRaggedStates, "ragged_states"},
    {kInfLse, "inf_lse"},
    {kTopLeft, "top_left"},
    {kVChannelScales, "v_channel_scales"},
    {kAppendQuantised, "append_quantised"},
    {kE4m3Out, "e4m3_out"},
    {kOneRow, "one_row"},
    {kCustomMask, "custom_mask"},
    {kTopkIndices, "topk_indices"},
    {kQv, "qv"},
    {kSequsedQ, "seqused_q"},
    {kPagedBatchIdx, "paged_batch_idx"},
    {kPagedLeftpad, "paged_leftpad"},
    {kRotaryCached, "rotary_cached"},
    {kE5m2Kv, "e5m2_kv"},
    {kQueryOut, "query_out"},
    {kPositions64, "positions64"},
    {kGather, "gather"},
    {kSeqStarts, "seq_starts"},
    {kE2m1Kv, "e2m1_kv"},
    {kBlockScales, "block_scales"},
    {kKTail, "k_tail"},
    {kDescaleRows, "descale_rows"},
};

/// The first check of every kernel: refuses a launch that uses a feature outside `kernel.features`, and names
/// it.
inline KernelStatus check_features(const Kernel& kernel, const OpParams& p, KernelMessage* message) {
  const uint64_t missing = features_of(p) & ~kernel.features;
  if (missing == 0) return KernelStatus::kOk;
  for (const auto& f : kFeatureNames) {
    if (missing & f.bit)
      return refuse(message, KernelStatus::kUnsupported, "%s: %s is not supported", kernel.name, f.name);
  }
  return refuse(message, KernelStatus::kUnsupported, "%s: unknown feature bits 0x%llx", kernel.name,
                static_cast<unsigned long long>(missing));
}

}  // namespace attnbench
