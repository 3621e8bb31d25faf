// The cpu attention kernel: what it supports, and how a launch runs.
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <new>

#include "kernels/common/checks.h"
#include "kernels/cpu/append.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/fast_exp.h"
#include "kernels/cpu/paths.h"
#include "kernels/cpu/schedule.h"
#include "kernels/cpu/scratch.h"

namespace attnbench::cpu {
namespace {

KernelStatus supports(const OpParams* params, const LaunchContext*, KernelMessage* message) {
  if (const KernelStatus s = check_features(kAttention, *params, message); s != KernelStatus::kOk) return s;
  const AttentionParams& p = params->attention;
  if (const auto s = check_attention_args(kAttention, p, message); s != KernelStatus::kOk) return s;
  return check_topk_limits(kAttention, p, message);
}

/// P and all sums are fp32.
Numerics numerics(const OpParams*) { return {DType::kFp32, DType::kFp32, kExpRelErr}; }

std::size_t workspace_bytes(const OpParams*, const LaunchContext*) { return 0; }

KernelStatus out_of_memory(KernelMessage* message) {
  return refuse(message, KernelStatus::kDeviceError, "%s: out of memory for scratch", kAttention.name);
}

/// `partials`: of the launch; `own_partials`: of this thread, for all_splits.
void run_task(const AttentionParams& p, const Task& task, void* scratch, float* partials,
              float* own_partials) {
  const auto run = task.few_rows ? run_few_rows : run_many_rows;
  if (!task.all_splits) return run(p, task, scratch, partials);
  for (int32_t split = 0; split < task.splits; ++split) run(p, split_of(task, split), scratch, own_partials);
  for (int32_t h = 0; h < task.head_count; ++h) run_merge(p, {task, task.head_begin + h}, own_partials);
}

KernelStatus launch(const OpParams* params, const LaunchContext* context, KernelMessage* message) {
  const AttentionParams& p = params->attention;
  if (const KernelStatus s = check_attention_pointers(kAttention, p, message); s != KernelStatus::kOk)
    return s;
  const int threads = std::max(1, context->num_threads);
  if (p.features & kAppend) {
    if (const KernelStatus s = append_new_rows(p, threads, message); s != KernelStatus::kOk) return s;
  }
  if (p.features & kRotaryCached) {
    if (const KernelStatus s = check_cached_positions(p, message); s != KernelStatus::kOk) return s;
  }

  // The launching thread keeps these between launches.
  thread_local Schedule schedule;
  thread_local Scratch partial_scratch;
  try {
    make_schedule(p, threads, schedule);
  } catch (const std::bad_alloc&) {
    return out_of_memory(message);
  }
  const Schedule& s = schedule;  // this thread's schedule, also inside the parallel region
  float* partials = static_cast<float*>(
      partial_scratch.reserve(static_cast<std::size_t>(s.partial_floats) * sizeof(float)));
  if (s.partial_floats > 0 && partials == nullptr) return out_of_memory(message);

  const std::size_t scratch_bytes = std::max(many_rows_scratch_bytes(p), few_rows_scratch_bytes(p));
  const int64_t tasks = static_cast<int64_t>(s.tasks.size());
  const int64_t merges = static_cast<int64_t>(s.merges.size());
  const int64_t probs = static_cast<int64_t>(s.probs.size());
  std::atomic<bool> failed{false};
  const int team = static_cast<int>(std::clamp<int64_t>(tasks, 1, threads));
#pragma omp parallel num_threads(team)
  {
    thread_local Scratch scratch, own_partial_scratch;
    void* memory = scratch.reserve(scratch_bytes);
    float* own_partials = static_cast<float*>(
        own_partial_scratch.reserve(static_cast<std::size_t>(s.thread_floats) * sizeof(float)));
    const bool ready = memory != nullptr && (own_partials != nullptr || s.thread_floats == 0);
    if (!ready) failed = true;
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < tasks; ++i) {
      if (ready) run_task(p, s.tasks[static_cast<std::size_t>(i)], memory, partials, own_partials);
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < merges; ++i) run_merge(p, s.merges[static_cast<std::size_t>(i)], partials);
#pragma omp for schedule(dynamic, 8)
    for (int64_t i = 0; i < probs; ++i) run_probs(p, s.probs[static_cast<std::size_t>(i)]);
  }
  return failed ? out_of_memory(message) : KernelStatus::kOk;
}

}  // namespace

const Kernel kAttention = {
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant | kPagingInvariant,
    .name = "cpu",
    .summary = "tiled online softmax in fp32, threaded and vectorised",
    .shapes = "head_dim 1..576, head_dim_v 1..512, any ratio of heads, any block_size",
    .op = Op::kAttention,
    .device = DeviceKind::kCpu,
    .min_compute_capability = 0,
    .features = kPackedKv | kPagedKv | kContiguousKv | kPartialKv | kHnd | kCausal | kWindow | kSoftcap |
                kAlibi | kSinks | kSplitKv | kBf16 | kFp16 | kFp32 | kE4m3Kv | kE4m3Q | kInt8Q | kInt8K |
                kInt8V | kHeadDimV | kVIsK | kProbs | kDropout | kAppend | kRotary | kRotaryQ |
                kVChannelScales | kAppendQuantised | kE4m3Out | kAttentionChunk | kLseBase2 | kLseTokenMajor |
                kCustomMask | kTopkIndices | kSequsedQ | kPagedBatchIdx | kPagedLeftpad | kQv | kE5m2Kv |
                kRotaryCached | kE2m1Kv | kBlockScales | kKTail | kTopLeft | kKTokenScales | kVTokenScales |
                kDescaleRows,
    .supports = supports,
    .numerics = numerics,
    .workspace_bytes = workspace_bytes,
    .plan = nullptr,
    .launch = launch,
};

}  // namespace attnbench::cpu
