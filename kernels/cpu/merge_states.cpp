// The cpu merge_states kernel.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/checks.h"
#include "kernels/common/descale.h"
#include "kernels/common/merge.h"
#include "kernels/cpu/convert.h"
#include "kernels/cpu/cpu_kernels.h"

namespace attnbench::cpu {
namespace {

constexpr int kMaxDim = 1024;
constexpr float kEmpty = -std::numeric_limits<float>::infinity();  ///< LSE of a state without keys

KernelStatus supports(const OpParams* params, const LaunchContext*, KernelMessage* message) {
  if (const KernelStatus s = check_features(kMergeStates, *params, message); s != KernelStatus::kOk) return s;
  return check_merge_states_args(kMergeStates, params->merge_states, message);
}

/// Weights are rounded to fp32 from double; all sums are fp32.
Numerics numerics(const OpParams*) { return {DType::kFp32, DType::kFp32, 0x1p-24}; }

std::size_t workspace_bytes(const OpParams*, const LaunchContext*) { return 0; }

template <class Type>
void merge_row(const MergeStatesParams& p, int64_t row, int32_t head) {
  const RowStates of = states_of_row(p, row);
  const float* lse =
      p.partial_lse + of.first * p.lse_stride_state + row * p.lse_stride_token + head * p.lse_stride_head;
  const auto* states = static_cast<const typename Type::Storage*>(p.partial_out) +
                       of.first * p.partial_stride_state + row * p.partial_stride_token +
                       head * p.partial_stride_head;
  const bool base2 = (p.features & kLseBase2) != 0;
  // A comparison with NaN is false. So a NaN becomes the maximum or gets a weight; it stays NaN either way.
  float top = kEmpty;
  for (int32_t s = 0; s < of.count; ++s) {
    const float x = lse[s * p.lse_stride_state];
    if (!is_empty_state(p, x) && !(x <= top)) top = x;
  }
  float o[kMaxDim] = {};
  double sum = 0.0;
  for (int32_t s = 0; s < of.count; ++s) {
    const float x = lse[s * p.lse_stride_state];
    if (is_empty_state(p, x)) continue;  // its O may be NaN, and 0 * NaN is NaN
    const double distance = static_cast<double>(x) - top;
    const double weight = base2 ? std::exp2(distance) : std::exp(distance);
    sum += weight;
    const auto* state = states + s * p.partial_stride_state;
    const float w = static_cast<float>(weight);
    for (int32_t d = 0; d < p.head_dim; ++d) o[d] += w * Type::to_float(state[d]);
  }
  if (sum != 0.0) {
    const float divisor = static_cast<float>(sum);
    for (int32_t d = 0; d < p.head_dim; ++d) o[d] /= divisor;
    if (p.features & kE4m3Out) {
      for (int32_t d = 0; d < p.head_dim; ++d) o[d] /= out_divisor(p);
    }
  }
  store_row(p.dtype_out, p.out, row * p.out_stride_token + head * p.out_stride_head, o, p.head_dim);
  p.out_lse[out_lse_offset(p, row, head)] =
      sum == 0.0 ? kEmpty : static_cast<float>(top + (base2 ? std::log2(sum) : std::log(sum)));
}

template <class Type>
void merge_all(const MergeStatesParams& p, int threads) {
  const int64_t items = p.num_rows * p.num_heads;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < items; ++i) {
    merge_row<Type>(p, i / p.num_heads, static_cast<int32_t>(i % p.num_heads));
  }
}

KernelStatus launch(const OpParams* params, const LaunchContext* context, KernelMessage* message) {
  const MergeStatesParams& p = params->merge_states;
  if (const KernelStatus s = check_merge_states_pointers(kMergeStates, p, message); s != KernelStatus::kOk) {
    return s;
  }
  const int threads =
      static_cast<int>(std::clamp<int64_t>(context->num_threads, 1, std::max<int64_t>(1, p.num_rows)));
  switch (p.dtype_partial) {
    case DType::kBf16:
      merge_all<Bf16>(p, threads);
      break;
    case DType::kFp16:
      merge_all<Fp16>(p, threads);
      break;
    default:
      merge_all<Fp32>(p, threads);
      break;
  }
  return KernelStatus::kOk;
}

}  // namespace

const Kernel kMergeStates = {
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant,
    .name = "cpu",
    .summary = "partial states of attention merged by their LSE",
    .shapes = "head_dim 1..1024, any number of states",
    .op = Op::kMergeStates,
    .device = DeviceKind::kCpu,
    .min_compute_capability = 0,
    .features = kBf16 | kFp16 | kFp32 | kLseBase2 | kLseTokenMajor | kRaggedStates | kInfLse | kE4m3Out,
    .supports = supports,
    .numerics = numerics,
    .workspace_bytes = workspace_bytes,
    .plan = nullptr,
    .launch = launch,
};

}  // namespace attnbench::cpu
