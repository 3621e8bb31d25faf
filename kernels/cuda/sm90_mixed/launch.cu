#include <algorithm>

#include "kernels/common/checks.h"
#include "kernels/cuda/common/attention_host.h"
#include "kernels/cuda/sm90_decode/launch.h"
#include "kernels/cuda/sm90_mixed/division.h"
#include "kernels/cuda/sm90_mixed/instances.h"
#include "kernels/cuda/sm90_mixed/side_stream.h"
#include "kernels/cuda/sm90_mixed/sm90_mixed.h"
#include "kernels/cuda/sm90_prefill/launch.h"
#include "kernels/cuda/sm90_prefill/prepare.h"
#include "kernels/cuda/sm90_prefill/requirements.h"
#include "kernels/cuda/sm90_prefill/sm90_prefill.h"

namespace attnbench::sm90_mixed {
namespace {

/// Most query rows per KV head of a decode where both run in one block (Way::kTogether).
constexpr int kTogetherRows = 8;

/// How a step is divided into launches: sm90_decode alone, sm90_prefill alone, each on a part of the
/// multiprocessors, or both on every one. Both do so with sequences divided between them, or with the keys of
/// each sequence (kCascade): those that all sequences share for sm90_prefill, the others for sm90_decode.
enum class Way { kDecode, kPrefill, kTwoStreams, kTogether, kCascade };

/// Longest sequence that is sm90_decode's, in queries.
int decode_q_len(const AttentionParams& p, Way way) {
  if (way == Way::kDecode || way == Way::kCascade) return p.max_seqlen_q;
  const int rows = way == Way::kTogether ? kTogetherRows : kDecodeRows;
  return std::max(rows / (p.num_heads_q / p.num_heads_kv), 1);
}

#define INSTANCE(name, ...) &instances::bf16_##name, &instances::fp16_##name,
constexpr const Instance* kInstances[] = {
#include "kernels/cuda/sm90_mixed/instances.def"
};
#undef INSTANCE
#define INSTANCE(name, ...) #name " " #__VA_ARGS__ "\n"
constexpr const char* kInstanceRows =
#include "kernels/cuda/sm90_mixed/instances.def"
    ;
#undef INSTANCE

/// The instance of the kernel that does both on every multiprocessor, null if none supports the step.
const Instance* find_together(const AttentionParams& p, const LaunchContext& context, bool cascade) {
  if (p.num_heads_q / p.num_heads_kv > kTogetherRows || p.softcap > 0.0f) return nullptr;
  if (p.features & kE4m3Kv) return nullptr;
  if (p.num_heads_kv > context.multiprocessors) return nullptr;
  for (const Instance* i : kInstances) {
    if (i->dtype == p.dtype_q && i->head_dim == p.head_dim && i->prefill.cascade == cascade) return i;
  }
  return nullptr;
}

Way way_of(const AttentionParams& p, const LaunchContext& context) {
  const sm90_prefill::Instance* prefill = sm90_prefill::choose_instance(p, context);
  if (prefill != nullptr && prefill->cascade) {
    const bool few = int64_t{p.max_seqlen_q} * p.num_heads_q <= int64_t{kTogetherRows} * p.num_heads_kv;
    return few && p.batch <= kMostSuffixes && find_together(p, context, true) != nullptr ? Way::kCascade
                                                                                         : Way::kPrefill;
  }
  if (few_rows(p)) return prefill_is_sooner(p) ? Way::kPrefill : Way::kDecode;
  const bool together = find_together(p, context, false) != nullptr;
  if (one_launch(estimate(p, hopper::rates_of(context)), together)) return Way::kPrefill;
  return together ? Way::kTogether : Way::kTwoStreams;
}

/// The parameters for sm90_decode: the longest query length is that of its own sequences.
AttentionParams decode_part(const AttentionParams& p, Way way) {
  AttentionParams d = p;
  d.max_seqlen_q = std::min(p.max_seqlen_q, decode_q_len(p, way));
  return d;
}

sm90_decode::Division division_of(const AttentionParams& p, Way way, const LaunchContext& context) {
  sm90_decode::Division division;
  if (way != Way::kTwoStreams) return division;
  const double share = decode_share(estimate(p, hopper::rates_of(context)));
  const int blocks = static_cast<int>(share * context.multiprocessors);
  division.max_parts = std::max(blocks / p.num_heads_kv, 1);
  return division;
}

/// The layout of the workspace, in bytes: first sm90_decode's part, then sm90_prefill's.
struct Workspace {
  std::size_t decode_bytes;
  std::size_t prefill_begin;
  std::size_t bytes;
};

/// How a step runs: its way, the instances, and what sm90_decode gets.
struct Parts {
  Way way;
  AttentionParams decode;
  const sm90_decode::Instance* decode_instance;
  const sm90_prefill::Instance* prefill_instance;
  const Instance* together;  ///< the kernel that does both, or null
  sm90_decode::Division division;
  Workspace workspace;
};

Parts parts_of(const AttentionParams& p, const LaunchContext& context) {
  Parts parts{};
  parts.way = way_of(p, context);
  parts.decode = decode_part(p, parts.way);
  parts.division = division_of(p, parts.way, context);
  if (parts.way == Way::kTogether || parts.way == Way::kCascade) {
    parts.together = find_together(p, context, parts.way == Way::kCascade);
    parts.decode_instance = &parts.together->decode;
    parts.prefill_instance = &parts.together->prefill;
  } else {
    parts.decode_instance = parts.way == Way::kTwoStreams
                                ? sm90_decode::find_instance(parts.decode, sm90_decode::Use::kFewBlocks)
                                : sm90_decode::choose_instance(parts.decode, context);
    parts.prefill_instance = parts.way == Way::kPrefill
                                 ? sm90_prefill::choose_instance(p, context)
                                 : sm90_prefill::find_instance(p, false, context.multiprocessors);
  }
  Workspace& w = parts.workspace;
  if (parts.way != Way::kPrefill) {
    w.decode_bytes =
        sm90_decode::workspace_bytes_of(*parts.decode_instance, parts.decode, context, parts.division);
  }
  w.prefill_begin = (w.decode_bytes + 255) / 256 * 256;
  w.bytes = w.prefill_begin;
  if (parts.way != Way::kDecode)
    w.bytes += sm90_prefill::workspace_bytes_of(*parts.prefill_instance, p, context);
  return parts;
}

KernelStatus supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  OpParams decode = *op;
  decode.attention = decode_part(op->attention, Way::kTwoStreams);
  if (const KernelStatus s = sm90_decode::check_supported(kAttention, decode, *context, message);
      s != KernelStatus::kOk) {
    return s;
  }
  return sm90_prefill::check_supported(kAttention, *op, *context, message);
}

Numerics numerics(const OpParams* op) { return sm90_prefill::kAttention.numerics(op); }

std::size_t workspace_bytes(const OpParams* op, const LaunchContext* context) {
  const AttentionParams decode = decode_part(op->attention, Way::kTwoStreams);
  if (sm90_prefill::find_instance(op->attention) == nullptr ||
      sm90_decode::find_instance(decode, sm90_decode::Use::kAll) == nullptr) {
    return 0;  // `supports` refuses it
  }
  return parts_of(op->attention, *context).workspace.bytes;
}

KernelStatus device_error(cudaError_t error, KernelMessage* message) {
  if (error == cudaSuccess) return KernelStatus::kOk;
  return refuse(message, KernelStatus::kDeviceError, "sm90_mixed: %s", cudaGetErrorString(error));
}

/// The context of sm90_prefill, whose workspace lies behind sm90_decode's.
LaunchContext prefill_context(const Parts& parts, const LaunchContext& context) {
  LaunchContext prefill = context;
  prefill.workspace = static_cast<unsigned char*>(context.workspace) + parts.workspace.prefill_begin;
  prefill.workspace_bytes = context.workspace_bytes - parts.workspace.prefill_begin;
  return prefill;
}

KernelStatus plan(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const Parts parts = parts_of(op->attention, *context);
  if (const KernelStatus s = check_workspace(kAttention, parts.workspace.bytes, *context, message);
      s != KernelStatus::kOk)
    return s;
  if (parts.way == Way::kPrefill) {  // sm90_prefill's schedule takes the place of sm90_decode's counters
    sm90_decode::forget_plan(*context);
    return sm90_prefill::plan_instance(*parts.prefill_instance, op->attention, *context, message);
  }
  if (parts.way == Way::kTwoStreams) {
    const KernelStatus s = device_error(prepare_side_stream(context->device_ordinal), message);
    if (s != KernelStatus::kOk) return s;
  }
  if (parts.way == Way::kCascade) {
    const KernelStatus s = sm90_prefill::plan_instance(*parts.prefill_instance, op->attention,
                                                       prefill_context(parts, *context), message);
    if (s != KernelStatus::kOk) return s;
  }
  return sm90_decode::plan_instance(*parts.decode_instance, parts.decode, *context, parts.division, message);
}

KernelStatus launch_together(const Parts& parts, const AttentionParams& p, const LaunchContext& context,
                             KernelMessage* message) {
  sm90_decode::Launch decode;
  KernelStatus status = sm90_decode::make_launch(*parts.decode_instance, parts.decode, context,
                                                 parts.division, message, &decode);
  if (status != KernelStatus::kOk) return status;
  const bool cascade = parts.way == Way::kCascade;
  const LaunchContext behind = prefill_context(parts, context);
  sm90_prefill::Launch prefill;
  status = sm90_prefill::make_launch(*parts.prefill_instance, p, behind, sm90_prefill::kKvBudgetBytes,
                                     cascade ? 0 : decode_q_len(p, parts.way), false, message, &prefill);
  if (status == KernelStatus::kOk && cascade) {
    status = sm90_prefill::check_plan(*parts.prefill_instance, p, behind, message);
  }
  if (status != KernelStatus::kOk) return status;
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const sm90_prefill::KernelParams& k = prefill.params;
  cudaError_t error = cudaSuccess;
  if (cascade) {
    decode.params.suffix_out = k.partial_out + k.suffix_row * p.head_dim;
    decode.params.suffix_sum = k.partial_sum + k.suffix_row;
  } else {
    error = sm90_prefill::launch_prepare(p, prefill.schedule_params, k.schedule, stream);
  }
  if (error == cudaSuccess) {
    const int blocks = std::max(prefill.blocks, decode.params.parts * p.num_heads_kv);
    error = parts.together->launch({prefill.maps, decode.maps, k, decode.params}, blocks, stream);
  }
  return device_error(error, message);
}

KernelStatus launch_on_two_streams(const Parts& parts, const AttentionParams& p, const LaunchContext& context,
                                   KernelMessage* message) {
  Fork side;
  const cudaError_t begun = side.begin(context.device_ordinal, static_cast<cudaStream_t>(context.stream));
  if (begun != cudaSuccess) return device_error(begun, message);
  LaunchContext decode = context;
  decode.stream = side.stream();
  // The decodes are launched first. The prefill, except for the kernel that makes its schedule, waits until
  // they have their multiprocessors. It gets the rest of the GPU, and the decodes' multiprocessors when these
  // end.
  KernelStatus status = sm90_decode::launch_instance(*parts.decode_instance, parts.decode, decode,
                                                     parts.division, message, side.started());
  if (status == KernelStatus::kOk) {
    status = sm90_prefill::launch_instance(*parts.prefill_instance, p, prefill_context(parts, context),
                                           sm90_prefill::kKvBudgetBytes, decode_q_len(p, parts.way), message,
                                           side.started());
  }
  // It is called after a failure too, so that a capture does not end with a stream that has not joined.
  const cudaError_t joined = side.join();
  return status == KernelStatus::kOk ? device_error(joined, message) : status;
}

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const AttentionParams& p = op->attention;
  if (p.batch == 0 || p.total_q == 0) return KernelStatus::kOk;
  const Parts parts = parts_of(p, *context);
  if (const KernelStatus s = check_workspace(kAttention, parts.workspace.bytes, *context, message);
      s != KernelStatus::kOk)
    return s;
  if (parts.way != Way::kPrefill) {
    const KernelStatus s =
        sm90_decode::check_plan(*parts.decode_instance, parts.decode, *context, parts.division, message);
    if (s != KernelStatus::kOk) return s;
  }
  if (parts.way == Way::kDecode) {
    return sm90_decode::launch_instance(*parts.decode_instance, parts.decode, *context, parts.division,
                                        message);
  }
  if (parts.way == Way::kPrefill) {
    return sm90_prefill::launch_instance(*parts.prefill_instance, p, *context, sm90_prefill::kKvBudgetBytes,
                                         0, message);
  }
  if (parts.together != nullptr) return launch_together(parts, p, *context, message);
  return launch_on_two_streams(parts, p, *context, message);
}

}  // namespace

const Kernel kAttention{
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic,
    .name = "sm90_mixed",
    .summary =
        "Hopper mixed steps: chunks and decodes at once, both on every multiprocessor or each on a part of "
        "them",
    .shapes = "head_dim 64, 128, 256; block_size a multiple of 16; up to 64 query heads per KV head",
    .op = Op::kAttention,
    .device = DeviceKind::kCuda,
    .min_compute_capability = 90,
    .features = kPackedKv | kPagedKv | kContiguousKv | kHnd | kCausal | kWindow | kSoftcap | kSinks | kBf16 |
                kFp16 | kE4m3Kv | kE4m3Q | kPartialKv,
    .supports = supports,
    .numerics = numerics,
    .workspace_bytes = workspace_bytes,
    .plan = plan,
    .launch = launch,
    .instances = kInstanceRows,
};

}  // namespace attnbench::sm90_mixed
