#include <algorithm>
#include <cstdint>
#include <numeric>

#include "kernels/common/checks.h"
#include "kernels/cuda/append/append.h"
#include "kernels/cuda/append/kernel.cuh"
#include "kernels/cuda/append/quantise.cuh"

namespace attnbench::cuda_append {
namespace {

KernelStatus supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  if (const KernelStatus s = check_features(kKvAppend, *op, message); s != KernelStatus::kOk) return s;
  const KvAppendParams& p = op->kv_append;
  if (const KernelStatus s = check_kv_append_args(kKvAppend, p, message); s != KernelStatus::kOk) return s;
  const auto unsupported = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kUnsupported, format, args...);
  };
  if (context->compute_capability < 80) {
    return unsupported("cuda_append: compute capability 80 or newer required, given %d",
                       context->compute_capability);
  }
  if (p.head_dim % kChannels != 0) {
    return unsupported("cuda_append: head_dim a multiple of %d required, given %d", kChannels, p.head_dim);
  }
  if (p.features & kRotary) {
    const int multiple = p.rotary.interleaved ? 8 : 16;
    if (p.rotary.dim % multiple != 0) {
      return unsupported("cuda_append: a rotary dim that is a multiple of %d required, given %d", multiple,
                         p.rotary.dim);
    }
  }
  const struct {
    const char* name;
    int64_t value;
  } strides[] = {
      {"key_stride_token", p.key_stride_token},     {"key_stride_head", p.key_stride_head},
      {"value_stride_token", p.value_stride_token}, {"value_stride_head", p.value_stride_head},
      {"k_stride_block", p.k_stride_block},         {"k_stride_token", p.k_stride_token},
      {"k_stride_head", p.k_stride_head},           {"v_stride_block", p.v_stride_block},
      {"v_stride_token", p.v_stride_token},         {"v_stride_head", p.v_stride_head},
  };
  for (const auto& s : strides) {
    if (s.value % kChannels != 0) {
      return unsupported("cuda_append: %s a multiple of %d required, given %lld", s.name, kChannels,
                         static_cast<long long>(s.value));
    }
  }
  const int64_t capacity = int64_t{p.num_blocks} * p.block_size;
  if (capacity > INT32_MAX || p.num_tokens > INT32_MAX / p.num_heads_kv) {
    return unsupported(
        "cuda_append: at most 2^31 - 1 rows required, given %lld tokens of %d heads and %lld slots",
        static_cast<long long>(p.num_tokens), p.num_heads_kv, static_cast<long long>(capacity));
  }
  return KernelStatus::kOk;
}

/// What is rotated or quantised is computed in fp32 and rounded once; the rest is copied.
Numerics numerics(const OpParams* op) {
  return {.p_type = op->kv_append.dtype_k, .acc_type = DType::kFp32, .exp_rel_err = 0.0};
}

std::size_t workspace_bytes(const OpParams*, const LaunchContext*) { return 0; }

KernelStatus check_alignment(const KvAppendParams& p, KernelMessage* message) {
  const struct {
    const char* name;
    const void* pointer;
  } pointers[] = {{"key", p.key},         {"value", p.value},    {"k_cache", p.k_cache},
                  {"v_cache", p.v_cache}, {"cos", p.rotary.cos}, {"sin", p.rotary.sin}};
  for (const auto& a : pointers) {
    const auto off = static_cast<int>(reinterpret_cast<std::uintptr_t>(a.pointer) % 16);
    if (off != 0) {
      return refuse(message, KernelStatus::kBadArgument,
                    "cuda_append: %s aligned to 16 bytes required, given an address %d bytes past", a.name,
                    off);
    }
  }
  return KernelStatus::kOk;
}

Cache k_of(const KvAppendParams& p) {
  return {p.key,
          p.key_stride_token,
          p.key_stride_head,
          p.k_cache,
          p.dtype_k,
          p.k_stride_block,
          p.k_stride_token,
          p.k_stride_head,
          (p.features & kKTokenScales) != 0,
          p.k_scale};
}

Cache v_of(const KvAppendParams& p) {
  return {p.value,
          p.value_stride_token,
          p.value_stride_head,
          p.v_cache,
          p.dtype_v,
          p.v_stride_block,
          p.v_stride_token,
          p.v_stride_head,
          (p.features & kVTokenScales) != 0,
          p.v_scale};
}

/// Blocks of a launch of quantise_kernel: one per `per_block` units where all find room at once, else as many
/// as do, in steps that keep a pass of the grid a whole number of tokens of `groups` units.
unsigned quantise_blocks(int64_t tokens, int64_t groups, int64_t per_block, int64_t room) {
  const int64_t needed = (tokens * groups + per_block - 1) / per_block;
  if (needed <= room) return static_cast<unsigned>(needed);
  const int64_t step = groups / std::gcd(groups, per_block);
  return static_cast<unsigned>(std::min(needed, std::max(room / step, int64_t{1}) * step));
}

template <DType kType, Rotary kRotary, bool kPerChannel>
void launch_quantise(const KvAppendParams& p, int row_lanes, const LaunchContext& context) {
  const int64_t groups = (p.num_heads_kv + kHeads - 1) / kHeads;
  const unsigned blocks = quantise_blocks(p.num_tokens, groups, kThreads / row_lanes,
                                          int64_t{kBlocks<kPerChannel>} * context.multiprocessors);
  quantise_kernel<kType, kRotary, kPerChannel>
      <<<blocks, kThreads, 0, static_cast<cudaStream_t>(context.stream)>>>(p, k_of(p), v_of(p), row_lanes);
}

/// Whether rows of a cache are divided by scales that differ from channel to channel.
bool per_channel(DType dtype, DType dtype_in, bool computed, const ScaleParams& scale) {
  return dtype != dtype_in && !computed && scale.given_stride_channel != 0;
}

template <DType kType, Rotary kRotary>
void launch_rotary(const KvAppendParams& p, int row_lanes, const LaunchContext& context) {
  if (p.dtype_k != p.dtype_in || p.dtype_v != p.dtype_in) {
    if (per_channel(p.dtype_k, p.dtype_in, (p.features & kKTokenScales) != 0, p.k_scale) ||
        per_channel(p.dtype_v, p.dtype_in, (p.features & kVTokenScales) != 0, p.v_scale)) {
      launch_quantise<kType, kRotary, true>(p, row_lanes, context);
    } else {
      launch_quantise<kType, kRotary, false>(p, row_lanes, context);
    }
    return;
  }
  const int64_t rows = p.num_tokens * p.num_heads_kv;
  const int64_t per_block = kThreads / row_lanes * kRows;
  const auto blocks = static_cast<unsigned>((rows + per_block - 1) / per_block);
  append_kernel<kType, kRotary>
      <<<blocks, kThreads, 0, static_cast<cudaStream_t>(context.stream)>>>(p, row_lanes);
}

template <DType kType>
void launch_type(const KvAppendParams& p, int row_lanes, const LaunchContext& context) {
  if ((p.features & kRotary) == 0) {
    launch_rotary<kType, Rotary::kNone>(p, row_lanes, context);
  } else if (p.rotary.interleaved) {
    launch_rotary<kType, Rotary::kAdjacent>(p, row_lanes, context);
  } else {
    launch_rotary<kType, Rotary::kHalves>(p, row_lanes, context);
  }
}

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const KvAppendParams& p = op->kv_append;
  if (const KernelStatus s = check_kv_append_pointers(kKvAppend, p, message); s != KernelStatus::kOk)
    return s;
  if (const KernelStatus s = check_alignment(p, message); s != KernelStatus::kOk) return s;
  if (p.num_tokens == 0) return KernelStatus::kOk;
  int row_lanes = 1;
  while (row_lanes * kChannels < p.head_dim) row_lanes *= 2;
  if (p.dtype_in == DType::kBf16) {
    launch_type<DType::kBf16>(p, row_lanes, *context);
  } else {
    launch_type<DType::kFp16>(p, row_lanes, *context);
  }
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return KernelStatus::kOk;
  return refuse(message, KernelStatus::kDeviceError, "cuda_append: %s", cudaGetErrorString(error));
}

}  // namespace

const Kernel kKvAppend{
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant,
    .name = "cuda_append",
    .summary =
        "rotary embedding, quantising and cache write in one pass, 16 bytes per lane, any GPU from sm_80",
    .shapes = "head_dim a multiple of 8, any block_size",
    .op = Op::kKvAppend,
    .device = DeviceKind::kCuda,
    .min_compute_capability = 80,
    .features =
        kPagedKv | kHnd | kBf16 | kFp16 | kRotary | kE4m3Kv | kInt8K | kInt8V | kKTokenScales | kVTokenScales,
    .supports = supports,
    .numerics = numerics,
    .workspace_bytes = workspace_bytes,
    .plan = nullptr,
    .launch = launch,
};

}  // namespace attnbench::cuda_append
