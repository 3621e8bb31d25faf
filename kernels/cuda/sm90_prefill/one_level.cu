// sm90_prefill_one_level: prefill of e4m3 whose sums of P V over all keys stay in the matrix unit.
#include "kernels/common/checks.h"
#include "kernels/cuda/common/attention_host.h"
#include "kernels/cuda/sm90_prefill/launch.h"
#include "kernels/cuda/sm90_prefill/requirements.h"
#include "kernels/cuda/sm90_prefill/sm90_prefill.h"

namespace attnbench::sm90_prefill {
namespace {

/// Sums come out smaller with each key, by more than a declared mma_roundoff of one KV block says. Up to so many keys O
/// was measured to be as right as the limits require (LADDER.md); at 1m keys it is not.
constexpr int32_t kMostKeys = 256 * 1024;

const Instance* instance_of(const OpParams& op) { return find_instance(op.attention, true); }

KernelStatus supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  if (const KernelStatus s = check_features(kOneLevelAttention, *op, message); s != KernelStatus::kOk)
    return s;
  const AttentionParams& p = op->attention;
  if (p.dtype_q != DType::kE4m3) {
    return refuse(message, KernelStatus::kUnsupported,
                  "sm90_prefill_one_level: q, K and V in e4m3 required, given q in %s",
                  dtype_name(p.dtype_q));
  }
  if (p.max_seqlen_k > kMostKeys) {
    return refuse(message, KernelStatus::kUnsupported,
                  "sm90_prefill_one_level: at most %d keys per sequence required, given %d", kMostKeys,
                  p.max_seqlen_k);
  }
  return check_supported(kOneLevelAttention, *op, *context, message);
}

Numerics numerics(const OpParams* op) {
  return {.p_type = DType::kE4m3,
          .acc_type = DType::kFp32,
          .exp_rel_err = 0x1p-22,
          .mma_roundoff = kE4m3Roundoff,
          .p_scale = kE4m3LeastWeight};
}

Tile tile(const OpParams* op) { return tile_of(instance_of(*op), op->attention); }

std::size_t workspace_bytes(const OpParams* op, const LaunchContext* context) {
  const Instance* instance = instance_of(*op);
  return instance == nullptr ? 0 : workspace_bytes_of(*instance, op->attention, *context);
}

KernelStatus plan(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const Instance& instance = *instance_of(*op);
  const std::size_t bytes = workspace_bytes_of(instance, op->attention, *context);
  if (const KernelStatus s = check_workspace(kOneLevelAttention, bytes, *context, message);
      s != KernelStatus::kOk) {
    return s;
  }
  return plan_instance(instance, op->attention, *context, message);
}

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return launch_instance(*instance_of(*op), op->attention, *context, kKvBudgetBytes, 0, message);
}

}  // namespace

const Kernel kOneLevelAttention{
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant | kPagingInvariant,
    .name = "sm90_prefill_one_level",
    .summary =
        "Hopper prefill in e4m3, batch invariant: sums over all keys stay in the matrix unit, which is "
        "faster and less accurate",
    .shapes = "q, K and V in e4m3; head_dim 64, 128, 256; block_size a multiple of 8; at most 256k keys",
    .op = Op::kAttention,
    .device = DeviceKind::kCuda,
    .min_compute_capability = 90,
    .features = kPackedKv | kPagedKv | kContiguousKv | kHnd | kCausal | kWindow | kSinks | kBf16 | kFp16 |
                kE4m3Kv | kE4m3Q | kPartialKv,
    .supports = supports,
    .numerics = numerics,
    .workspace_bytes = workspace_bytes,
    .plan = plan,
    .launch = launch,
    .tile = tile,
};

}  // namespace attnbench::sm90_prefill
