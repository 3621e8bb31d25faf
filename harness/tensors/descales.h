// Descales of quantised inputs: by logical coordinate, and as arrays in the layout of the contract.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/tensors/plan.h"

namespace attnbench {

/// Factor of a stored number of an input, beside block_scale_at. Not quantised, and fp8_ds_mla: 1. Others: between 0.5
/// and 1.5, divided by stored_factor. Neighbours differ. Coordinates on which the type's descales do not depend
/// (kernels/contract/attention_params.h) have no effect. `head`: the query head for q, else the KV head.
float descale_of(const Case& c, Tensor tensor, int32_t seq, int32_t pos, int32_t head, int32_t channel);

/// One of nine steps between 0.5 and 1.5.
inline float scale_step(int64_t i) { return 0.5f + 0.125f * static_cast<float>(i % 9); }

/// The number that O is divided by before it is stored in e4m3; 1 if O is stored in another type.
float out_scale_of(const Case& c);

/// The stored number that stands for `value`, before its descale.
float stored_value(const Case& c, Tensor tensor, float value);

/// The logical row whose values stand where key `pos` of sequence `seq` is read.
GivenBlocks::Row stored_row(const CaseParams& p, int32_t seq, int32_t pos);

/// Number of K or V in channel `channel` of a row without its descale: the stored number for `value`, times the scale
/// of its block if there are such. `seq` and `pos` are those of the stored row.
float scaled_value(const Case& c, Tensor tensor, int32_t seq, int32_t pos, int32_t head, int32_t channel,
                   float value);
/// The scale of block `block` of the stored row of K or V.
float block_scale_at(const Case& c, Tensor tensor, int32_t seq, int32_t pos, int32_t head, int32_t block);

/// Index of each sequence's first descale, (B + 1), where `rows` queries or packed keys share one. Descale 0 is NaN.
std::vector<int32_t> descale_begins(const CaseParams& p, Tensor tensor, int32_t rows);

/// The arrays that a launch receives; empty if the input is not quantised. Descales of poisoned rows are NaN.
std::vector<float> q_descales_of(const Case& c, const WorkloadPlan& plan, const LayoutVariant& variant);
std::vector<float> kv_descales_of(const Case& c, const WorkloadPlan& plan, const LayoutVariant& variant,
                                  bool is_v);

}  // namespace attnbench
