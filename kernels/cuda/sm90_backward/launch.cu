// Host side: what the kernels support, their workspace, and a launch.
#include <algorithm>
#include <cstddef>

#include "kernels/common/checks_backward.h"
#include "kernels/common/score.h"
#include "kernels/cuda/common/kv_rows.h"
#include "kernels/cuda/common/tensor_map.h"
#include "kernels/cuda/sm90_backward/instances.h"
#include "kernels/cuda/sm90_backward/sm90_backward.h"

namespace attnbench::sm90_backward {
namespace {

constexpr int64_t kSectionBytes = 32 << 20;  ///< of L2: q, dO and the sums of dq of a section of heads

#define INSTANCE(name, ...) &instances::bf16_##name, &instances::fp16_##name,
constexpr const Instance* kInstances[] = {
#include "kernels/cuda/sm90_backward/instances.def"
};
#undef INSTANCE
#define INSTANCE(name, ...) #name " " #__VA_ARGS__ "\n"
constexpr const char* kInstanceRows =
#include "kernels/cuda/sm90_backward/instances.def"
    ;
#undef INSTANCE

/// The instance for `p`, null if there is none.
const Instance* find_instance(const AttentionBackwardParams& p) {
  for (const Instance* i : kInstances) {
    if (i->dtype == p.dtype && i->head_dim == p.head_dim && i->softcap == (p.softcap > 0.0f)) return i;
  }
  return nullptr;
}

/// Offsets and sizes in the workspace, in bytes. The head comes first.
struct Workspace {
  int64_t padded_tiles;  ///< of one head
  std::size_t added, keys, works, lse2, delta, dq_sum, bytes;
};

Workspace workspace_of(const AttentionBackwardParams& p, const Instance& instance) {
  constexpr std::size_t kAlign = 256;
  Workspace w{};
  w.padded_tiles = (p.total_q + int64_t{p.batch} * instance.block_m) / instance.block_m;
  const auto tiles = static_cast<std::size_t>(w.padded_tiles * p.num_heads_q);
  const std::size_t rows = tiles * static_cast<std::size_t>(instance.block_m);
  const auto keys = static_cast<std::size_t>(p.total_k / instance.block_n + p.batch);
  std::size_t end = sizeof(Head);
  const auto take = [&](std::size_t bytes) {
    const std::size_t begin = end;
    end += (bytes + kAlign - 1) / kAlign * kAlign;
    return begin;
  };
  w.added = take(2 * tiles * sizeof(uint32_t));
  w.keys = take(keys * sizeof(Keys));
  w.works = take(keys * static_cast<std::size_t>(p.num_heads_kv) * sizeof(Work));
  w.lse2 = take(rows * sizeof(float));
  w.delta = take(rows * sizeof(float));
  w.dq_sum = take(rows * static_cast<std::size_t>(p.head_dim) * sizeof(float));
  w.bytes = end;
  return w;
}

KernelStatus check_all_strides(const Kernel& kernel, const AttentionBackwardParams& p,
                               KernelMessage* message) {
  constexpr int64_t kUnit = 8;  // elements of 16 bytes
  const Stride strides[] = {
      {"q_stride_token", p.q_stride_token, kUnit},         {"q_stride_head", p.q_stride_head, 64},
      {"k_stride_token", p.k_stride_token, kUnit},         {"k_stride_head", p.k_stride_head, 64},
      {"v_stride_token", p.v_stride_token, kUnit},         {"v_stride_head", p.v_stride_head, 64},
      {"out_stride_token", p.out_stride_token, kUnit},     {"out_stride_head", p.out_stride_head, kUnit},
      {"d_out_stride_token", p.d_out_stride_token, kUnit}, {"d_out_stride_head", p.d_out_stride_head, 64},
      {"dq_stride_token", p.dq_stride_token, kUnit},       {"dq_stride_head", p.dq_stride_head, kUnit},
      {"dk_stride_token", p.dk_stride_token, kUnit},       {"dk_stride_head", p.dk_stride_head, kUnit},
      {"dv_stride_token", p.dv_stride_token, kUnit},       {"dv_stride_head", p.dv_stride_head, kUnit},
  };
  return check_strides(kernel, strides, message);
}

KernelStatus check_support(const Kernel& kernel, const OpParams& op, const LaunchContext& context,
                           KernelMessage* message) {
  if (const KernelStatus s = check_features(kernel, op, message); s != KernelStatus::kOk) return s;
  const AttentionBackwardParams& p = op.attention_backward;
  if (const KernelStatus s = check_backward_args(kernel, p, message); s != KernelStatus::kOk) return s;
  const auto unsupported = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kUnsupported, format, kernel.name, args...);
  };
  if (context.compute_capability != 90) {
    return unsupported("%s: compute capability 90 required, given %d", context.compute_capability);
  }
  const Instance* instance = find_instance(p);
  if (instance == nullptr) return unsupported("%s: head_dim 64 or 128 required, given %d", p.head_dim);
  const int32_t longest = std::max(p.max_seqlen_q, p.max_seqlen_k);
  if (longest >= hopper::kFar) {
    return unsupported("%s: lengths below %d required, given %d", hopper::kFar, longest);
  }
  const int64_t rows = workspace_of(p, *instance).padded_tiles * instance->block_m * p.num_heads_q;
  if (rows > INT32_MAX || p.total_k > INT32_MAX - hopper::kFar) {
    return unsupported("%s: up to 2^31 query rows, times heads, and 2^30 keys required, given %lld and %lld",
                       static_cast<long long>(rows), static_cast<long long>(p.total_k));
  }
  return check_all_strides(kernel, p, message);
}

Numerics numerics(const OpParams* op) {
  return {.p_type = op->attention_backward.dtype, .acc_type = DType::kFp32, .exp_rel_err = 0x1p-22};
}

std::size_t workspace_bytes(const OpParams* op, const LaunchContext*) {
  const AttentionBackwardParams& p = op->attention_backward;
  const Instance* instance = find_instance(p);
  return instance == nullptr || p.batch == 0 ? 0 : workspace_of(p, *instance).bytes;
}

bool encode_maps(Maps* maps, const AttentionBackwardParams& p, const Instance& instance) {
  const auto encode = [&](CUtensorMap* map, const void* base, int64_t stride_token, int64_t stride_head,
                          int heads, int rows) {
    const auto chunks = static_cast<uint64_t>(p.head_dim / hopper::kChunkChannels);
    const auto row_chunks =
        static_cast<uint64_t>((heads - 1) * stride_head / hopper::kChunkChannels) + chunks;
    if (base == nullptr) base = p.q != nullptr ? p.q : p.k;  // no row is read, but a map needs an address
    return hopper::encode_row_window_map(
        map, p.dtype, base, static_cast<uint64_t>(stride_token) * hopper::kElementBytes, row_chunks,
        static_cast<uint32_t>(rows), static_cast<uint32_t>(chunks));
  };
  return encode(&maps->q, p.q, p.q_stride_token, p.q_stride_head, p.num_heads_q, instance.block_m) &&
         encode(&maps->d_out, p.d_out, p.d_out_stride_token, p.d_out_stride_head, p.num_heads_q,
                instance.block_m) &&
         encode(&maps->k, p.k, p.k_stride_token, p.k_stride_head, p.num_heads_kv, instance.block_n) &&
         encode(&maps->v, p.v, p.v_stride_token, p.v_stride_head, p.num_heads_kv, instance.block_n);
}

KernelParams params_of(const AttentionBackwardParams& p, const Instance& instance, bool in_order,
                       void* workspace) {
  const Workspace w = workspace_of(p, instance);
  const auto reach = [](int32_t window) {
    return window < 0 ? hopper::kFar : std::min(window, hopper::kFar);
  };
  KernelParams k{};
  k.attention = p;
  k.group = p.num_heads_q / p.num_heads_kv;
  k.padded_tiles = static_cast<int32_t>(w.padded_tiles);
  k.reach_left = reach(p.window_left);
  k.reach_right = p.causal ? 0 : reach(p.window_right);
  k.section_rows = kSectionBytes / (8 * p.head_dim);  // 2 + 2 + 4 bytes per channel
  const auto chunks = [](int64_t stride) { return static_cast<int32_t>(stride / hopper::kChunkChannels); };
  k.q_head_chunks = chunks(p.q_stride_head);
  k.k_head_chunks = chunks(p.k_stride_head);
  k.v_head_chunks = chunks(p.v_stride_head);
  k.d_out_head_chunks = chunks(p.d_out_stride_head);
  k.score_factor = p.softmax_scale * kLog2E;
  if (p.softcap > 0.0f) {
    k.score_factor *= 2.0f / p.softcap;  // apply_tanh
    k.cap_factor = p.softcap * kLog2E;
  }
  auto* base = static_cast<unsigned char*>(workspace);
  k.head = reinterpret_cast<Head*>(base);
  k.added = in_order ? reinterpret_cast<uint32_t*>(base + w.added) : nullptr;
  k.keys = reinterpret_cast<Keys*>(base + w.keys);
  k.works = reinterpret_cast<Work*>(base + w.works);
  k.lse2 = reinterpret_cast<float*>(base + w.lse2);
  k.delta = reinterpret_cast<float*>(base + w.delta);
  k.dq_sum = reinterpret_cast<float*>(base + w.dq_sum);
  return k;
}

KernelStatus launch_kernel(const Kernel& kernel, bool in_order, const AttentionBackwardParams& p,
                           const LaunchContext& context, KernelMessage* message) {
  if (const KernelStatus s = check_backward_pointers(kernel, p, message); s != KernelStatus::kOk) return s;
  const Alignment pointers[] = {{"q", p.q, 16},     {"k", p.k, 16},         {"v", p.v, 16},
                                {"out", p.out, 16}, {"d_out", p.d_out, 16}, {"dq", p.dq, 16},
                                {"dk", p.dk, 16},   {"dv", p.dv, 16}};
  if (const KernelStatus s = check_alignment(kernel, pointers, message); s != KernelStatus::kOk) return s;
  const auto failed = [&](const char* what) {
    return refuse(message, KernelStatus::kDeviceError, "%s: %s", kernel.name, what);
  };
  const auto stream = static_cast<cudaStream_t>(context.stream);
  cudaError_t error = cudaSuccess;
  if (p.batch == 0) {
    if (p.features & kSinks)
      error = cudaMemsetAsync(p.dsinks, 0, sizeof(float) * static_cast<std::size_t>(p.num_heads_q), stream);
  } else {
    const Instance& instance = *find_instance(p);
    const std::size_t bytes = workspace_of(p, instance).bytes;
    if (const KernelStatus s = check_workspace(kernel, bytes, context, message); s != KernelStatus::kOk)
      return s;
    Maps maps{};
    if (!encode_maps(&maps, p, instance)) return failed("the driver refused a tensor map");
    const KernelParams params = params_of(p, instance, in_order, context.workspace);
    error = instance.launch(maps, params, context.multiprocessors, stream);
  }
  return error == cudaSuccess ? KernelStatus::kOk : failed(cudaGetErrorString(error));
}

KernelStatus supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return check_support(kAttentionBackward, *op, *context, message);
}
KernelStatus atomics_supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return check_support(kAtomicsBackward, *op, *context, message);
}
KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return launch_kernel(kAttentionBackward, true, op->attention_backward, *context, message);
}
KernelStatus atomics_launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return launch_kernel(kAtomicsBackward, false, op->attention_backward, *context, message);
}

constexpr Kernel describe(const char* name, uint32_t flags, const char* summary,
                          decltype(Kernel::supports) supports, decltype(Kernel::launch) launch) {
  return {
      .abi_version = kKernelAbiVersion,
      .flags = flags,
      .name = name,
      .summary = summary,
      .shapes = "head_dim 64 and 128, any ratio of heads",
      .op = Op::kAttentionBackward,
      .device = DeviceKind::kCuda,
      .min_compute_capability = 90,
      .features = kPackedKv | kCausal | kWindow | kSoftcap | kSinks | kBf16 | kFp16 | kTopLeft,
      .supports = supports,
      .numerics = numerics,
      .workspace_bytes = workspace_bytes,
      .plan = nullptr,
      .launch = launch,
      .instances = kInstanceRows,
  };
}

}  // namespace

const Kernel kAttentionBackward =
    describe("sm90_backward", kDeterministic | kBatchInvariant,
             "Hopper gradients: one pass, dq summed in a fixed order; wgmma, TMA", supports, launch);
const Kernel kAtomicsBackward = describe("sm90_backward_atomics", 0, "the same, dq summed in any order",
                                         atomics_supports, atomics_launch);

}  // namespace attnbench::sm90_backward
