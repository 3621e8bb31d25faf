// The cpu attention_backward kernel: what it supports, and how a launch runs.
#include "kernels/cpu/backward.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <vector>

#include "kernels/common/checks_backward.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/fast_exp.h"

namespace attnbench::cpu {
namespace {

KernelStatus supports(const OpParams* params, const LaunchContext*, KernelMessage* message) {
  if (const auto s = check_features(kAttentionBackward, *params, message); s != KernelStatus::kOk) return s;
  return check_backward_args(kAttentionBackward, params->attention_backward, message);
}

/// P, dS and all sums are fp32.
Numerics numerics(const OpParams*) { return {DType::kFp32, DType::kFp32, kExpRelErr}; }

bool shares_kv_heads(const AttentionBackwardParams& p) { return p.num_heads_q != p.num_heads_kv; }

std::size_t workspace_bytes(const OpParams* params, const LaunchContext*) {
  const AttentionBackwardParams& p = params->attention_backward;
  return shares_kv_heads(p) ? static_cast<std::size_t>(partial_row(p, p.num_heads_q, 0)) * sizeof(float) : 0;
}

std::vector<BackwardTask> tasks_of(const AttentionBackwardParams& p) {
  std::vector<BackwardTask> tasks;
  for (int32_t b = 0; b < p.batch; ++b) {
    const int32_t q = p.cu_seqlens_q[b], k = p.cu_seqlens_k[b];
    const int32_t q_len = p.cu_seqlens_q[b + 1] - q, k_len = p.cu_seqlens_k[b + 1] - k;
    for (int32_t h = 0; h < p.num_heads_q; ++h)
      tasks.push_back({b, h, q, q_len, k, k_len, int64_t{q_len + 1} * (k_len + 1)});
  }
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const BackwardTask& a, const BackwardTask& b) { return a.cost > b.cost; });
  return tasks;
}

/// Adds the rows of the query heads that share a KV head, in order.
void add_partials(const AttentionBackwardParams& p, const float* partials, int64_t token, int32_t kv_head) {
  const int32_t group = p.num_heads_q / p.num_heads_kv;
  const int width = p.head_dim + p.head_dim_v;
  float sum[2 * kMaxBackwardDim] = {};
  for (int32_t h = kv_head * group; h < (kv_head + 1) * group; ++h) {
    const float* part = partials + partial_row(p, h, token);
    for (int d = 0; d < width; ++d) sum[d] += part[d];
  }
  store_row(p.dtype, p.dk, token * p.dk_stride_token + kv_head * p.dk_stride_head, sum, p.head_dim);
  store_row(p.dtype, p.dv, token * p.dv_stride_token + kv_head * p.dv_stride_head, sum + p.head_dim,
            p.head_dim_v);
}

KernelStatus run_all(const AttentionBackwardParams& p, const std::vector<BackwardTask>& tasks, int threads,
                     float* partials, std::vector<double>& dsinks, KernelMessage* message) {
  int32_t longest = 0;
  for (const BackwardTask& t : tasks) longest = std::max(longest, t.q_len);
  Carver measure(nullptr);
  const BackwardBuffers sized(p, longest, measure);
  const int64_t count = static_cast<int64_t>(tasks.size());
  const int64_t first_key = p.cu_seqlens_k[0];
  const int64_t shared_rows = partials == nullptr ? 0 : p.cu_seqlens_k[p.batch] - first_key;
  std::atomic<bool> failed{false};
#pragma omp parallel num_threads(threads)
  {
    thread_local Scratch scratch;
    void* memory = scratch.reserve(measure.used());
    if (memory == nullptr) failed = true;
    Carver carver(memory);
    const BackwardBuffers buffers(p, longest, carver);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < count; ++i) {
      if (memory == nullptr) continue;
      const BackwardTask& t = tasks[static_cast<std::size_t>(i)];
      dsinks[static_cast<std::size_t>(t.seq) * static_cast<std::size_t>(p.num_heads_q) +
             static_cast<std::size_t>(t.head)] = run_backward(p, t, buffers, partials);
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < shared_rows * p.num_heads_kv; ++i)
      add_partials(p, partials, first_key + i / p.num_heads_kv, static_cast<int32_t>(i % p.num_heads_kv));
  }
  if (!failed) return KernelStatus::kOk;
  return refuse(message, KernelStatus::kDeviceError, "%s: out of memory for scratch",
                kAttentionBackward.name);
}

KernelStatus launch(const OpParams* params, const LaunchContext* context, KernelMessage* message) {
  const AttentionBackwardParams& p = params->attention_backward;
  if (const auto s = check_backward_pointers(kAttentionBackward, p, message); s != KernelStatus::kOk)
    return s;
  float* partials = nullptr;
  if (shares_kv_heads(p) && p.total_k > 0) {
    const std::size_t bytes = workspace_bytes(params, context);
    if (const auto s = check_workspace(kAttentionBackward, bytes, *context, message); s != KernelStatus::kOk)
      return s;
    partials = static_cast<float*>(context->workspace);
  }
  try {
    std::vector<double> dsinks(static_cast<std::size_t>(p.batch) * static_cast<std::size_t>(p.num_heads_q));
    if (p.batch > 0) {
      const auto s = run_all(p, tasks_of(p), std::max(1, context->num_threads), partials, dsinks, message);
      if (s != KernelStatus::kOk) return s;
    }
    for (int32_t h = 0; (p.features & kSinks) && h < p.num_heads_q; ++h) {
      double sum = 0;
      for (std::size_t i = static_cast<std::size_t>(h); i < dsinks.size();
           i += static_cast<std::size_t>(p.num_heads_q))
        sum += dsinks[i];
      p.dsinks[h] = static_cast<float>(sum);
    }
  } catch (const std::bad_alloc&) {
    return refuse(message, KernelStatus::kDeviceError, "%s: out of memory for scratch",
                  kAttentionBackward.name);
  }
  return KernelStatus::kOk;
}

}  // namespace

const Kernel kAttentionBackward = {
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant,
    .name = "cpu",
    .summary = "tiled, all five products in fp32, threaded over sequences and query heads, vectorised",
    .shapes = "head_dim and head_dim_v 1..256, any ratio of heads",
    .op = Op::kAttentionBackward,
    .device = DeviceKind::kCpu,
    .min_compute_capability = 0,
    .features = kPackedKv | kCausal | kWindow | kSoftcap | kAlibi | kSinks | kBf16 | kFp16 | kFp32 |
                kHeadDimV | kDropout | kTopLeft,
    .supports = supports,
    .numerics = numerics,
    .workspace_bytes = workspace_bytes,
    .plan = nullptr,
    .launch = launch,
};

}  // namespace attnbench::cpu
