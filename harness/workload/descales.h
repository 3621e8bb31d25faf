// Descales of quantised inputs, by logical coordinate and as the contract lays them out.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/workload/plan.h"

namespace attnbench {

/// What the stored numbers of an input are multiplied by: 1 where it is not quantised, else between 0.5
/// and 1.5 in e4m3, and as much over int8_factor in int8. No two neighbours are alike. Coordinates that the
/// type does not know (contract/attention_params.h) do not count. `head`: query head of q, else KV head.
float descale_of(const Case& c, Tensor tensor, int32_t seq, int32_t pos, int32_t head, int32_t channel);

/// One of nine steps between 0.5 and 1.5.
inline float scale_step(int64_t i) { return 0.5f + 0.125f * static_cast<float>(i % 9); }

/// The stored number that stands for `value`, before its descale.
float stored_value(const Case& c, Tensor tensor, float value);

/// The arrays that a launch is handed; empty where the input is not quantised. Rows that hold poison have
/// NaN.
std::vector<float> q_descales_of(const Case& c, const WorkloadPlan& plan, const LayoutVariant& variant);
std::vector<float> k_descales_of(const Case& c, const WorkloadPlan& plan, const LayoutVariant& variant);
std::vector<float> v_descales_of(const Case& c, const LayoutVariant& variant);

}  // namespace attnbench
