#include <cstdint>

#include "kernels/common/checks_append.h"
#include "kernels/cuda/append/append.h"
#include "kernels/cuda/append/kernel.cuh"
#include "kernels/cuda/append/quantise.h"

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
  const Stride strides[] = {
      {"key_stride_token", p.key_stride_token, kChannels},
      {"key_stride_head", p.key_stride_head, kChannels},
      {"value_stride_token", p.value_stride_token, kChannels},
      {"value_stride_head", p.value_stride_head, kChannels},
      {"k_stride_block", p.k_stride_block, kChannels},
      {"k_stride_token", p.k_stride_token, kChannels},
      {"k_stride_head", p.k_stride_head, kChannels},
      {"v_stride_block", p.v_stride_block, kChannels},
      {"v_stride_token", p.v_stride_token, kChannels},
      {"v_stride_head", p.v_stride_head, kChannels},
  };
  if (const KernelStatus s = check_strides(kKvAppend, strides, message); s != KernelStatus::kOk) return s;
  const int64_t capacity = int64_t{p.num_blocks} * p.block_size;
  if (capacity > INT32_MAX || p.num_tokens > INT32_MAX / p.num_heads_kv) {
    return unsupported(
        "cuda_append: at most 2^31 - 1 rows required, given %lld tokens of %d heads and %lld slots",
        static_cast<long long>(p.num_tokens), p.num_heads_kv, static_cast<long long>(capacity));
  }
  return KernelStatus::kOk;
}

/// Rotated and quantised rows are computed in fp32 and rounded once. Other rows are copied.
Numerics numerics(const OpParams* op) {
  return {.p_type = op->kv_append.dtype_k, .acc_type = DType::kFp32, .exp_rel_err = 0.0};
}

std::size_t workspace_bytes(const OpParams*, const LaunchContext*) { return 0; }

template <DType kType, Rotary kRotary>
void launch_rotary(const KvAppendParams& p, const LaunchContext& context) {
  const int row_lanes = lanes_of_row(p);
  const int64_t rows = p.num_tokens * p.num_heads_kv;
  const int64_t per_block = kThreads / row_lanes * kRows;
  const auto blocks = static_cast<unsigned>((rows + per_block - 1) / per_block);
  append_kernel<kType, kRotary>
      <<<blocks, kThreads, 0, static_cast<cudaStream_t>(context.stream)>>>(p, row_lanes);
}

template <DType kType>
void launch_type(const KvAppendParams& p, const LaunchContext& context) {
  if ((p.features & kRotary) == 0) {
    launch_rotary<kType, Rotary::kNone>(p, context);
  } else if (p.rotary.interleaved) {
    launch_rotary<kType, Rotary::kAdjacent>(p, context);
  } else {
    launch_rotary<kType, Rotary::kHalves>(p, context);
  }
}

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const KvAppendParams& p = op->kv_append;
  if (const KernelStatus s = check_kv_append_pointers(kKvAppend, p, message); s != KernelStatus::kOk)
    return s;
  const Alignment pointers[] = {{"key", p.key, 16},         {"value", p.value, 16},
                                {"k_cache", p.k_cache, 16}, {"v_cache", p.v_cache, 16},
                                {"cos", p.rotary.cos, 16},  {"sin", p.rotary.sin, 16}};
  if (const KernelStatus s = check_alignment(kKvAppend, pointers, message); s != KernelStatus::kOk) return s;
  if (p.num_tokens == 0) return KernelStatus::kOk;
  const bool bf16 = p.dtype_in == DType::kBf16;
  if (p.dtype_k != p.dtype_in || p.dtype_v != p.dtype_in) {
    (bf16 ? quantise_bf16 : quantise_fp16)(p, *context);
  } else {
    (bf16 ? launch_type<DType::kBf16> : launch_type<DType::kFp16>)(p, *context);
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
