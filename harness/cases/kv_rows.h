// How many elements a row of K or V takes in memory.
#pragma once

#include <cstdint>

#include "harness/config/case_params.h"

namespace attnbench {

/// Bytes of the parts of a row of fp8_ds_mla: the latent in e4m3, its scales in fp32, the rotary part in bf16.
struct DsMlaRow {
  int64_t latent, scales, tail;
  int64_t bytes() const { return latent + scales + tail; }
};
inline DsMlaRow ds_mla_row(const CaseParams& p) {
  return {p.dim_v(), p.dim_v() / p.scale_block() * int64_t{sizeof(float)}, int64_t{2} * p.k_tail()};
}

/// Elements of type_of_kv() that a row of one KV head takes, the scales of fp8_ds_mla included.
inline int64_t row_elements(const CaseParams& p, bool is_v) {
  if (p.kv_dtype == KvDType::kDsMla && !is_v) return ds_mla_row(p).bytes();
  return p.dim_of_kv(is_v) / numbers_per_element(p.type_of_kv(is_v));
}

/// Whether K or V has scales for blocks of channels in a tensor of their own, one byte each. A row has block_scales().
inline bool has_scale_tensor(const CaseParams& p, bool is_v) {
  return p.kv_dtype == KvDType::kNvfp4 && !(is_v && p.v_is_k_view);
}
inline int64_t block_scales(const CaseParams& p, bool is_v) { return p.dim_of_kv(is_v) / p.scale_block(); }

/// Whether K or V is in e4m3 or e5m2 with descales.
inline bool has_fp8_descales(const CaseParams& p, bool is_v) {
  return is_fp8(p.type_of_kv(is_v)) && p.kv_dtype != KvDType::kDsMla;
}

}  // namespace attnbench
