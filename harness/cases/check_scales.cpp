// Checks of caches with scales for blocks of channels against the other keys.
#include <fmt/format.h>

#include "harness/cases/paths.h"

namespace attnbench {
namespace {

void check_ds_mla(const CaseParams& p, const FailAt& fail) {
  if (p.dtype != DType::kBf16) {
    fail(
        "dtype",
        "the last channels of a row of kv_dtype: fp8_ds_mla are in bf16, as queries are; write 'dtype: bf16' or drop kv_dtype");
  }
  if (!p.v_is_k_view) {
    fail(
        "kv_dtype",
        "values of fp8_ds_mla are the first channels of the keys; write 'v_is_k_view: true', 'head_dim: 576', "
        "'head_dim_v: 512', or drop kv_dtype");
  }
  if (p.dim_v() % p.scale_block() != 0 || p.k_tail() <= 0 || p.k_tail() % 2 != 0) {
    fail(
        "kv_dtype",
        fmt::format(
            "a row of fp8_ds_mla has head_dim_v channels with a scale for {} each, then an even number of "
            "others, but head_dim is {} and head_dim_v {}; write 'head_dim: 576', 'head_dim_v: 512', or drop kv_dtype",
            p.scale_block(), p.head_dim, p.dim_v()));
  }
}

}  // namespace

void check_scales(const CaseParams& p, const FailAt& fail) {
  if (p.scale_block() == 0) return;
  const char* type = kv_dtype_name(p.kv_dtype);
  if (p.op == Op::kKvAppend || p.op == Op::kKvMove) {
    fail("kv_dtype",
         fmt::format(
             "op {} has no rows of {}, which attention reads; write 'op: attention' or take another kv_dtype",
             op_name(p.op), type));
  }
  if (p.op != Op::kAttention) return;
  if (p.append) {
    fail("append", fmt::format("append: in_call writes no rows of kv_dtype: {}; drop one", type));
  }
  if (p.path != Path::kOneCall) {
    fail("path", fmt::format("kv_dtype: {} is for one launch, and path: {} has several; drop one", type,
                             path_name(p.path)));
  }
  if (p.kv_dtype == KvDType::kDsMla) return check_ds_mla(p, fail);
  for (const bool is_v : {false, true}) {
    if (p.dim_of_kv(is_v) % p.scale_block() == 0) continue;
    const char* key = is_v && p.head_dim_v > 0 ? "head_dim_v" : "head_dim";
    fail(key,
         fmt::format(
             "{} channels of kv_dtype: {} share a scale: a {} that is a multiple of it is required, given {}",
             p.scale_block(), type, key, p.dim_of_kv(is_v)));
  }
}

}  // namespace attnbench
