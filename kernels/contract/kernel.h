// What a kernel is: a table of plain functions, the same for built-in kernels and plug-ins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "kernels/contract/attention_params.h"
#include "kernels/contract/merge_params.h"

namespace attnbench {

inline constexpr uint32_t kKernelAbiVersion = 3;

enum class Op : int32_t { kAttention = 0, kKvAppend = 1, kMergeStates = 2 };
enum class DeviceKind : int32_t { kCpu = 0, kCuda = 1 };

constexpr const char* op_name(Op op) {
  constexpr const char* names[] = {"attention", "kv_append", "merge_states"};
  return names[static_cast<int32_t>(op)];
}
constexpr const char* device_kind_name(DeviceKind d) { return d == DeviceKind::kCpu ? "cpu" : "cuda"; }

struct OpParams {
  Op op;
  union {
    AttentionParams attention;
    KvAppendParams kv_append;
    MergeStatesParams merge_states;
  };
};

/// The arithmetic that a kernel promises; the tolerance is derived from it (harness/verify/README.md).
struct Numerics {
  DType p_type;        ///< type of P as it enters P.V
  DType acc_type;      ///< accumulators of q.k and P.V
  double exp_rel_err;  ///< relative error of its exponential; 2^-22 for GPU's ex2.approx
};

enum class KernelStatus : int32_t {
  kOk = 0,
  kUnsupported = 1,  ///< refused: the message says what is required and what was given
  kBadArgument = 2,  ///< the parameters contradict each other
  kDeviceError = 3,  ///< the launch itself failed
};

struct KernelMessage {
  char text[256];
};

/// Writes a printf-style message and returns `status`, for one-line refusals.
template <class... Args>
KernelStatus refuse(KernelMessage* message, KernelStatus status, const char* format, Args... args) {
  if constexpr (sizeof...(Args) == 0) {
    std::snprintf(message->text, sizeof message->text, "%s", format);
  } else {
    std::snprintf(message->text, sizeof message->text, format, args...);
  }
  return status;
}

struct LaunchContext {
  void* stream;     ///< cudaStream_t on cuda, null on cpu
  void* workspace;  ///< of one launch at a time, see Kernel::plan
  std::size_t workspace_bytes;
  int32_t num_threads;         ///< host threads to use, cpu only
  int32_t device_ordinal;      ///< cuda only
  int32_t compute_capability;  ///< 90 for sm_90; 0 on cpu
  int32_t multiprocessors;     ///< cuda only
};

enum KernelFlag : uint32_t {
  kDeterministic = 1u << 0,   ///< two launches give the same bits
  kBatchInvariant = 1u << 1,  ///< a sequence's result does not depend on the others in the batch
};

/// How an attention kernel cuts its work: a tile is `rows` x `keys` products, of which `tokens` query tokens
/// by `heads` query heads of one KV head fill rows. Tile i of a sequence has the tokens from i * tokens on,
/// and runs over the blocks of `keys` keys, counted from the sequence's first, in which its tokens see any.
struct Tile {
  int32_t tokens, heads, rows, keys;
};

struct Kernel {
  uint32_t abi_version;  ///< kKernelAbiVersion
  uint32_t flags;        ///< OR of KernelFlag
  const char* name;      ///< snake_case, unique per op and device: "cuda_simt"
  const char* summary;   ///< one line for `attnbench kernels`
  const char* shapes;    ///< supported head_dim and block_size in words: "head_dim 1..256, any block_size"
  Op op;
  DeviceKind device;
  int32_t min_compute_capability;  ///< 80 for sm_80; 0 on cpu
  uint64_t features;               ///< all Feature bits it handles

  /// Whether this launch can be done; reads no tensor, and pointers may still be null. On refusal fills
  /// `message` with "required, given".
  KernelStatus (*supports)(const OpParams*, const LaunchContext*, KernelMessage* message);
  Numerics (*numerics)(const OpParams*);
  /// Device bytes wanted in LaunchContext::workspace. May be null: none.
  std::size_t (*workspace_bytes)(const OpParams*, const LaunchContext*);
  /// Host-side preparation before timing starts, timed apart (plan_us). May be null. It makes the workspace
  /// ready for any number of launches on the same stream, or replays of a graph captured there, whose
  /// OpParams differ in pointers and in what pointers lead to alone. Other maxima, heads or head_dim, another
  /// stream or workspace, or a workspace that something else has written to need a plan of their own; with
  /// it, graphs captured under an earlier plan of that workspace may no longer be replayed. A workspace,
  /// aligned to 256 bytes, belongs to one launch at a time: launches or replays that may overlap need one
  /// each.
  KernelStatus (*plan)(const OpParams*, const LaunchContext*, KernelMessage* message);
  /// Enqueues the work on the stream (cuda) or does it (cpu). No host synchronisation, no allocation on cuda.
  KernelStatus (*launch)(const OpParams*, const LaunchContext*, KernelMessage* message);
  /// Its tile for this launch, for the report of executed against needed FLOP. May be null; all zero where a
  /// launch has no such tile.
  Tile (*tile)(const OpParams*) = nullptr;
  /// Names of the variants that were compiled for each 16-bit type, separated by blanks, for `attnbench kernels`.
  /// May be null.
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
  }
  return 0;
}

/// Names of the feature bits, as printed in refusals and by `attnbench kernels`.
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
};

/// The first check of every kernel: refuses a launch that uses a feature outside `kernel.features`, by name.
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
