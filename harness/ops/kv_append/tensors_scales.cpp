#include "harness/ops/kv_append/tensors_scales.h"

#include <algorithm>
#include <limits>

#include "harness/tensors/descales.h"
#include "harness/tensors/strides.h"

namespace attnbench {
namespace {

constexpr float kLargestBell = 3.0f;
constexpr float kUnwritten = std::numeric_limits<float>::quiet_NaN();

}  // namespace

float given_scale(const Case& c, bool is_v, int32_t head, int32_t channel) {
  const CaseParams& p = c.params;
  const bool int8 = p.type_of_kv(is_v) == DType::kInt8;
  is_v = is_v && !p.one_row;  // one scale for the row
  const int64_t a = is_v ? 5 : 3;
  const auto largest = [&](Tensor tensor) {
    if (p.data == Profile::kCorners) return kCornersLargest;
    return p.data == Profile::kHuge && tensor == Tensor::kNewK
               ? kHugeK
               : kLargestBell * profile_scale(p.data, tensor, 0, 0);
  };
  const float of_row = p.one_row ? std::max(largest(Tensor::kNewK), largest(Tensor::kNewV))
                                 : largest(is_v ? Tensor::kNewV : Tensor::kNewK);
  const DescalesPer per = p.descales_of(is_v);
  const bool by_channel = per == DescalesPer::kChannel || (per == DescalesPer::kUsual && int8);
  const int64_t step =
      (per == DescalesPer::kTensor ? 0 : a * head) + (by_channel ? (7 - a) * channel : 0) + a;
  return of_row / largest_number(p.type_of_kv(is_v)) * scale_step(step);
}

float query_scale_of(const Case& c) {
  const Profile data = c.params.data;
  const float largest =
      data == Profile::kHuge ? kHugeQ : kLargestBell * profile_scale(data, Tensor::kQ, 0, 0);
  return largest / largest_number(DType::kE4m3) * scale_step(static_cast<int64_t>(c.seed % 7) + 2);
}

std::vector<float> given_scales(const Case& c, bool is_v, bool padded) {
  const CaseParams& p = c.params;
  std::vector<float> out;
  if (!p.quantises(is_v) || p.computes_scales(is_v)) return out;
  const GivenScaleStrides s = given_scale_strides(p, is_v, padded);
  const int32_t channels = s.channel == 0 ? 1 : p.dim_of_kv(is_v);
  const int32_t heads = s.head == 0 ? 1 : p.num_heads_kv;
  out.assign(static_cast<std::size_t>(std::max<int64_t>(1, heads * s.head)), kUnwritten);
  for (int32_t h = 0; h < heads; ++h) {
    for (int32_t ch = 0; ch < channels; ++ch) {
      out[static_cast<std::size_t>(h * s.head + ch * s.channel)] = given_scale(c, is_v, h, ch);
    }
  }
  return out;
}

std::vector<float> scales_before(const Case& c, const WorkloadPlan& plan, bool is_v, bool padded) {
  const CaseParams& p = c.params;
  std::vector<float> out;
  if (!p.computes_scales(is_v)) return out;
  const KvStrides s = row_scale_strides(p, is_v, padded);
  out.assign(static_cast<std::size_t>(s.elements(std::ssize(plan.kv_owners))), kUnwritten);
  for (std::size_t r = 0; r < plan.kv_owners.size(); ++r) {
    const RowOwner& o = plan.kv_owners[r];
    for (int32_t h = 0; o.seq >= 0 && h < p.num_heads_kv; ++h) {
      out[static_cast<std::size_t>(s.offset(static_cast<int64_t>(r), h))] =
          scale_step(int64_t{o.seq} + 2 * o.pos + 5 * h);
    }
  }
  return out;
}

}  // namespace attnbench
