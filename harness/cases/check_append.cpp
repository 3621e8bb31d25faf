// Checks of the keys for rows that a launch writes to a cache, against each other.
#include <fmt/format.h>

#include "harness/cases/paths.h"

namespace attnbench {
namespace {

/// Most channels of a key, and of a value, that a launch writes (kernels/contract/attention_params.h).
constexpr int32_t kMaxKey = 256, kMaxValue = 512;

void check_kv_append(const CaseParams& p, const FailAt& fail) {
  if (p.head_dim > kMaxKey) {
    fail("head_dim",
         fmt::format("kv_append writes keys of up to {} channels; lower head_dim {}", kMaxKey, p.head_dim));
  }
  if (p.v_is_k_view) {
    fail("v_is_k_view", "kv_append writes values of their own; drop v_is_k_view, or set one_row");
  }
  if (p.dim_v() > kMaxValue) {
    fail("head_dim_v", fmt::format("kv_append writes values of up to {} channels; lower head_dim_v {}",
                                   kMaxValue, p.dim_v()));
  }
  if (!p.one_row) return;
  if (p.kv_dtype == KvDType::kInt8 || p.kv_dtype == KvDType::kInt8K) {
    fail("kv_dtype",
         "a value and its key in one row share a descale, and in int8 they have others; take kv_dtype e4m3, "
         "e5m2 or same, or drop one_row");
  }
  if (p.computes_scales(false)) {
    fail("scales",
         "a value and its key in one row share a given scale; write 'scales: given' or drop one_row");
  }
}

void check_in_call(const CaseParams& p, const FailAt& fail) {
  if (p.kv == KvSource::kPacked) {
    fail(
        "append",
        "append: in_call writes into a cache, and packed keys are none; set 'kv: paged' or 'kv: contiguous'");
  }
  if (p.head_dim > kMaxKey || p.dim_v() != p.head_dim || p.v_is_k_view) {
    fail("append",
         fmt::format(
             "append: in_call writes new keys and values of one width, up to {} channels; drop head_dim_v "
             "and v_is_k_view, or append",
             kMaxKey));
  }
  if (p.new_as_stored && p.kv_dtype != KvDType::kSame && p.rotary != Rotary::kNone) {
    fail("new_dtype", "rotary turns new keys in dtype; write 'new_dtype: dtype' or drop rotary");
  }
}

void check_rotary_cached(const CaseParams& p, const FailAt& fail) {
  if (p.append) {
    fail(
        "rotary_cached",
        "append: in_call writes keys that have turned, beside which keys of the cache cannot turn when they are "
        "read; drop append or rotary_cached");
  }
  if (p.kv_dtype != KvDType::kSame) {
    fail("kv_dtype", "rotary_cached turns keys in dtype, not quantised ones; drop kv_dtype or rotary_cached");
  }
  if (p.v_is_k_view) {
    fail("v_is_k_view",
         "values that are a view of the keys would turn with them; drop v_is_k_view or rotary_cached");
  }
  if (p.head_dim > kMaxKey) {
    fail("head_dim", fmt::format("rotary_cached turns keys of up to {} channels; lower head_dim {}", kMaxKey,
                                 p.head_dim));
  }
  if (p.path != Path::kOneCall) {
    fail("path",
         fmt::format(
             "rotary_cached counts from a sequence's first key, which a part of the keys does not show; "
             "drop it or path: {}",
             path_name(p.path)));
  }
}

}  // namespace

void check_append(const CaseParams& p, const FailAt& fail) {
  if (p.op == Op::kKvAppend) check_kv_append(p, fail);
  if (p.op == Op::kAttention && p.append) check_in_call(p, fail);
  if (p.op == Op::kAttention && p.rotary != Rotary::kNone && p.rotary_cached) check_rotary_cached(p, fail);
}

}  // namespace attnbench
