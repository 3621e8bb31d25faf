#include <algorithm>
#include <cstdint>

#include "kernels/common/checks.h"
#include "kernels/cuda/merge/kernel.cuh"
#include "kernels/cuda/merge/merge.h"

namespace attnbench::cuda_merge {
namespace {

KernelStatus supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  if (const KernelStatus s = check_features(kMergeStates, *op, message); s != KernelStatus::kOk) return s;
  const MergeStatesParams& p = op->merge_states;
  if (const KernelStatus s = check_merge_states_args(kMergeStates, p, message); s != KernelStatus::kOk)
    return s;
  const auto unsupported = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kUnsupported, format, args...);
  };
  if (context->compute_capability < 80) {
    return unsupported("cuda_merge: compute capability 80 or newer required, given %d",
                       context->compute_capability);
  }
  const int channels = channels_of(p.dtype_partial);
  const struct {
    const char* name;
    int64_t value;
  } multiples[] = {
      {"head_dim", p.head_dim},
      {"partial_stride_state", p.partial_stride_state},
      {"partial_stride_token", p.partial_stride_token},
      {"partial_stride_head", p.partial_stride_head},
      {"out_stride_token", p.out_stride_token},
      {"out_stride_head", p.out_stride_head},
  };
  for (const auto& m : multiples) {
    if (m.value % channels != 0) {
      return unsupported("cuda_merge: %s a multiple of %d required, given %lld", m.name, channels,
                         static_cast<long long>(m.value));
    }
  }
  if (p.num_rows > INT32_MAX) {
    return unsupported("cuda_merge: at most %d rows required, given %lld", INT32_MAX,
                       static_cast<long long>(p.num_rows));
  }
  return KernelStatus::kOk;
}

/// exp_rel_err is that of ex2.approx.
Numerics numerics(const OpParams*) { return {DType::kFp32, DType::kFp32, 0x1p-22}; }

std::size_t workspace_bytes(const OpParams*, const LaunchContext*) { return 0; }

/// Enqueues the kernel whose threads have as many states in flight as there are, up to eight.
template <DType kPartial>
void enqueue(const MergeStatesParams& p, cudaStream_t stream) {
  constexpr unsigned kMostY = 65535;
  const auto pieces = static_cast<unsigned>(p.head_dim / channels_of(kPartial));
  const dim3 threads(pieces, kThreads / pieces);
  const auto tiles = static_cast<unsigned>((p.num_rows + threads.y - 1) / threads.y);
  const dim3 blocks(static_cast<unsigned>(p.num_heads), std::min(tiles, kMostY),
                    (tiles + kMostY - 1) / kMostY);
  if (p.num_states <= 2) {
    merge_kernel<kPartial, 2><<<blocks, threads, 0, stream>>>(p);
  } else if (p.num_states <= 4) {
    merge_kernel<kPartial, 4><<<blocks, threads, 0, stream>>>(p);
  } else {
    merge_kernel<kPartial, kMostStates><<<blocks, threads, 0, stream>>>(p);
  }
}

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const MergeStatesParams& p = op->merge_states;
  if (const KernelStatus s = check_merge_states_pointers(kMergeStates, p, message); s != KernelStatus::kOk)
    return s;
  const Alignment pointers[] = {{"partial_out", p.partial_out, 16}, {"out", p.out, 16}};
  if (const KernelStatus s = check_alignment(kMergeStates, pointers, message); s != KernelStatus::kOk)
    return s;
  if (p.num_rows == 0) return KernelStatus::kOk;
  const auto stream = static_cast<cudaStream_t>(context->stream);
  if (p.dtype_partial == DType::kBf16) {
    enqueue<DType::kBf16>(p, stream);
  } else if (p.dtype_partial == DType::kFp16) {
    enqueue<DType::kFp16>(p, stream);
  } else {
    enqueue<DType::kFp32>(p, stream);
  }
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return KernelStatus::kOk;
  return refuse(message, KernelStatus::kDeviceError, "cuda_merge: %s", cudaGetErrorString(error));
}

}  // namespace

const Kernel kMergeStates{
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant,
    .name = "cuda_merge",
    .summary =
        "partial states merged by their LSE, 16 bytes of up to 8 states per thread, any GPU from sm_80",
    .shapes = "head_dim a multiple of 4 (fp32 states) or 8, any number of states",
    .op = Op::kMergeStates,
    .device = DeviceKind::kCuda,
    .min_compute_capability = 80,
    .features = kBf16 | kFp16 | kFp32,
    .supports = supports,
    .numerics = numerics,
    .workspace_bytes = workspace_bytes,
    .plan = nullptr,
    .launch = launch,
};

}  // namespace attnbench::cuda_merge
