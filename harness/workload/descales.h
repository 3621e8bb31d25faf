// Descales of quantised inputs: by logical coordinate, and as arrays in the layout of the contract.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/workload/plan.h"

namespace attnbench {

/// Factor of a stored number of an input. Not quantised: 1. e4m3: between 0.5 and 1.5. int8: the same divided
/// by int8_factor. Neighbours differ. Coordinates on which the type's descales do not depend
/// (kernels/contract/attention_params.h) have no effect. `head`: the query head for q, else the KV head.
float descale_of(const Case& c, Tensor tensor, int32_t seq, int32_t pos, int32_t head, int32_t channel);

/// One of nine steps between 0.5 and 1.5.
inline float scale_step(int64_t i) { return 0.5f + 0.125f * static_cast<float>(i % 9); }

/// The number that O is divided by before it is stored in e4m3; 1 if O is stored in another type.
float out_scale_of(const Case& c);

/// The stored number that stands for `value`, before its descale.
float stored_value(const Case& c, Tensor tensor, float value);

/// The arrays that a launch receives; empty if the input is not quantised. Descales of poisoned rows are NaN.
std::vector<float> q_descales_of(const Case& c, const WorkloadPlan& plan, const LayoutVariant& variant);
std::vector<float> k_descales_of(const Case& c, const WorkloadPlan& plan, const LayoutVariant& variant);
std::vector<float> v_descales_of(const Case& c, const LayoutVariant& variant);

}  // namespace attnbench
