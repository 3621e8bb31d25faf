// What the cheats for the cuda device share: the right kernel of kernels/examples/cuda, and launches of parts of
// it. A cheat holds only its trick.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/cheats/table.h"
#pragma push_macro("ATTNBENCH_PLUGIN")
#undef ATTNBENCH_PLUGIN
#define ATTNBENCH_PLUGIN(...) static_assert(true)  // the example without its table
#include "kernels/examples/cuda/kernel.cu"
#pragma pop_macro("ATTNBENCH_PLUGIN")

namespace attnbench::cheats {

inline const Kernel& kRight = cuda_example::kAttention;
constexpr int kLanes = 32;

inline KernelStatus compute(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return kRight.launch(op, context, message);
}

inline cudaStream_t stream_of(const LaunchContext* context) {
  return static_cast<cudaStream_t>(context->stream);
}

inline KernelStatus status_now(KernelMessage* message) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return KernelStatus::kOk;
  return refuse(message, KernelStatus::kDeviceError, "cheat: %s", cudaGetErrorString(error));
}

inline dim3 grid_of(const AttentionParams& p, int32_t heads) {
  return {static_cast<unsigned>(p.max_seqlen_q), static_cast<unsigned>(heads),
          static_cast<unsigned>(p.batch)};
}

/// Half of the query heads: whole groups that share a KV head.
inline int32_t half_of(const AttentionParams& p) {
  return p.num_heads_kv / 2 * (p.num_heads_q / p.num_heads_kv);
}

/// Enqueues heads [begin, end). Both are multiples of the query heads per KV head.
inline void compute_heads(AttentionParams p, int32_t begin, int32_t end, cudaStream_t stream) {
  if (begin >= end || p.batch == 0 || p.max_seqlen_q == 0) return;
  const auto moved = [](const void* data, int64_t elements, DType type) {
    return static_cast<const char*>(data) + elements * static_cast<int64_t>(dtype_size(type));
  };
  const int32_t kv_begin = begin / (p.num_heads_q / p.num_heads_kv);
  p.q = moved(p.q, begin * p.q_stride_head, p.dtype_q);
  p.k = moved(p.k, kv_begin * p.k_stride_head, p.dtype_k);
  p.v = moved(p.v, kv_begin * p.v_stride_head, p.dtype_v);
  p.out = const_cast<char*>(moved(p.out, begin * p.out_stride_head, p.dtype_out));
  p.lse += begin * p.lse_stride_head;
  cuda_example::attend<<<grid_of(p, end - begin), kLanes, 0, stream>>>(p);
}
inline void compute_half(const AttentionParams& p, cudaStream_t stream) {
  compute_heads(p, 0, half_of(p), stream);
}

/// A result that is kept on the device: O (total_q, Hq, Dv) in 16-bit elements, LSE (total_q, Hq).
struct Kept {
  uint16_t* out = nullptr;
  float* lse = nullptr;
};
inline std::size_t kept_rows(const AttentionParams& p) {
  return static_cast<std::size_t>(p.total_q) * static_cast<std::size_t>(p.num_heads_q);
}
inline Kept make_kept(const AttentionParams& p, std::size_t slots = 1) {
  Kept kept;
  cudaMalloc(&kept.out, slots * kept_rows(p) * static_cast<std::size_t>(p.head_dim_v) * sizeof(uint16_t));
  cudaMalloc(&kept.lse, slots * kept_rows(p) * sizeof(float));
  return kept;
}

/// Whether a launch has a kept result, found out on the device.
struct Found {
  int32_t slot;
  int32_t hit;
};

/// Copies a result from the outputs into `kept`, or back if `found` (or `back` without it) says so.
static __global__ void copy_rows(AttentionParams p, Kept kept, bool back, const Found* found) {
  const auto i = static_cast<int32_t>(blockIdx.x), head = static_cast<int32_t>(blockIdx.y);
  const SeqRange seq = seq_range(p, static_cast<int32_t>(blockIdx.z));
  if (i >= seq.q_len) return;
  if (found != nullptr) {
    if (found->slot < 0) return;
    back = found->hit != 0;
    kept.out += found->slot * p.total_q * p.num_heads_q * p.head_dim_v;
    kept.lse += found->slot * p.total_q * p.num_heads_q;
  }
  const int64_t row = (seq.q_begin + i) * int64_t{p.num_heads_q} + head;
  auto* out = static_cast<uint16_t*>(p.out) + out_offset(p, seq.q_begin + i, head);
  for (auto c = static_cast<int32_t>(threadIdx.x); c < p.head_dim_v; c += kLanes) {
    uint16_t& there = kept.out[row * p.head_dim_v + c];
    (back ? out[c] : there) = back ? there : out[c];
  }
  float& lse = p.lse[lse_offset(p, seq.q_begin + i, head)];
  if (threadIdx.x == 0) (back ? lse : kept.lse[row]) = back ? kept.lse[row] : lse;
}
inline void keep(const AttentionParams& p, const Kept& kept, cudaStream_t stream) {
  copy_rows<<<grid_of(p, p.num_heads_q), kLanes, 0, stream>>>(p, kept, false, nullptr);
}
inline void put(const AttentionParams& p, const Kept& kept, cudaStream_t stream) {
  copy_rows<<<grid_of(p, p.num_heads_q), kLanes, 0, stream>>>(p, kept, true, nullptr);
}

/// `p` with its outputs in `kept`.
inline AttentionParams into(AttentionParams p, const Kept& kept) {
  p.out = kept.out;
  p.out_stride_head = p.head_dim_v;
  p.out_stride_token = int64_t{p.num_heads_q} * p.head_dim_v;
  p.lse = kept.lse;  // as (Hq, total_q)
  p.lse_stride_head = p.total_q;
  return p;
}

/// FNV-1a over 16-bit elements.
ATTNBENCH_HD inline uint64_t hash_of(const uint16_t* x, int32_t count, uint64_t h = 1469598103934665603ull) {
  for (int32_t c = 0; c < count; ++c) h = (h ^ x[c]) * 1099511628211ull;
  return h;
}

/// How often the output has been launched on, this launch included.
inline int count_launch(const void* out) {
  static std::map<const void*, int> launches;
  return ++launches[out];
}

/// A stream of the cheat's own, which no other stream waits for.
inline cudaStream_t own_stream() {
  static cudaStream_t stream = [] {
    cudaStream_t s = nullptr;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    return s;
  }();
  return stream;
}

}  // namespace attnbench::cheats
