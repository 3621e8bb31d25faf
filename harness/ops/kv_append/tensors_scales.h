// Scales of the quantised caches that kv_append writes.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/tensors/plan.h"

namespace attnbench {

/// The given scale of KV head `head`, channel `channel`, in a case that quantises K or V. It is 0.5 to 1.5
/// times the scale at which the largest common value becomes the type's largest number, so that some values
/// saturate. Neighbours differ. Coordinates that share a scale (DescalesPer) have no effect.
float given_scale(const Case& c, bool is_v, int32_t head, int32_t channel);

/// The scale of queries that kv_append returns in e4m3: some of them saturate.
float query_scale_of(const Case& c);

/// The given scales: (Hkv) for e4m3, (Hkv, D or Dv) for int8, or as DescalesPer says, with given_scale_strides
/// and NaN in the padding.
/// Empty if the launch is given none.
std::vector<float> given_scales(const Case& c, bool is_v, bool padded);

/// The cache of computed scales before a launch, with row_scale_strides: numbers for rows that hold a token,
/// NaN elsewhere. Empty if the launch computes none.
std::vector<float> scales_before(const Case& c, const WorkloadPlan& plan, bool is_v, bool padded);

}  // namespace attnbench
