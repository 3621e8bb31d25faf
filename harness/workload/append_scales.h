// Scales of the quantised caches that kv_append writes.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/workload/plan.h"

namespace attnbench {

/// The given scale of KV head `head`, channel `channel`, of a case that quantises K or V: between half and
/// one and a half of what takes the largest common value to the type's largest number, so that some values
/// saturate. No two neighbours are alike. In e4m3 the channel does not count.
float given_scale(const Case& c, bool is_v, int32_t head, int32_t channel);

/// (Hkv) in e4m3, (Hkv, D) in int8, as given_scale_strides says, NaN between; empty where none are given.
std::vector<float> given_scales(const Case& c, bool is_v, bool padded);

/// The cache of computed scales before a launch, as row_scale_strides says: numbers where a row holds a
/// token, NaN elsewhere. Empty where none are computed.
std::vector<float> scales_before(const Case& c, const WorkloadPlan& plan, bool is_v, bool padded);

}  // namespace attnbench
