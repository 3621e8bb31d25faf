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

/// (Hkv) in e4m3, (Hkv, D) in int8; empty where none are given.
std::vector<float> given_scales(const Case& c, bool is_v);

/// Element of a cache of scales that belongs to physical row `r`, KV head `h`: scales lie as the rows do.
inline std::size_t scale_index(const FillJob& cache, int64_t r, int32_t h) {
  return static_cast<std::size_t>(fill_offset(cache, r, h) / cache.head_dim);
}

/// The cache of computed scales before a launch: numbers where a row holds a token, NaN elsewhere. Empty
/// where none are computed.
std::vector<float> scales_before(const Case& c, const WorkloadPlan& plan, const FillJob& cache, bool is_v);

}  // namespace attnbench
