// The cpu kv_append kernel: writes tokens to their slots, as a bit copy or rotated and quantised.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/common/addressing.h"
#include "kernels/common/checks_append.h"
#include "kernels/common/quantise.h"
#include "kernels/common/rotary.h"
#include "kernels/cpu/cpu_kernels.h"

namespace attnbench::cpu {
namespace {

KernelStatus supports(const OpParams* params, const LaunchContext*, KernelMessage* message) {
  if (const KernelStatus s = check_features(kKvAppend, *params, message); s != KernelStatus::kOk) return s;
  return check_kv_append_args(kKvAppend, params->kv_append, message);
}

/// The verification of kv_append does not use it.
Numerics numerics(const OpParams*) { return {DType::kFp32, DType::kFp32, 0.0}; }

std::size_t workspace_bytes(const OpParams*, const LaunchContext*) { return 0; }

/// One of the two tensors of a launch.
struct Tensor {
  const void* from;
  int64_t from_stride_token;
  int64_t from_stride_head;
  int32_t dim;
  void* cache;
  DType dtype;
  int64_t stride_block;
  int64_t stride_token;
  int64_t stride_head;
  const ScaleParams* scale;
  bool rotary;
  bool computed_scales;
};

void append_token(const KvAppendParams& p, const Tensor& t, int64_t token, int64_t slot) {
  const int64_t size_in = static_cast<int64_t>(dtype_size(p.dtype_in));
  const int64_t to = slot_offset(p, slot, t.stride_block, t.stride_token);
  for (int32_t h = 0; h < p.num_heads_kv; ++h) {
    const char* source =
        static_cast<const char*>(t.from) + (token * t.from_stride_token + h * t.from_stride_head) * size_in;
    const int64_t target = to + h * t.stride_head;
    if (!t.rotary && t.dtype == p.dtype_in) {
      std::memcpy(static_cast<char*>(t.cache) + target * size_in, source,
                  static_cast<std::size_t>(t.dim * size_in));
      continue;
    }
    const auto load = [&](int32_t c) { return load_float(p.dtype_in, source, c); };
    float row[kMaxHeadDimV];
    float amax = 0.0f;
    for (int32_t c = 0; c < t.dim; ++c) {
      row[c] = t.rotary ? rotated(p.rotary, token_position(p, token), c, load) : load(c);
      amax = std::max(amax, std::abs(row[c]));
    }
    float computed = 1.0f;
    if (t.computed_scales) {
      computed = token_scale(t.dtype, amax);
      t.scale->computed[scale_slot_offset(p, *t.scale, slot, h)] = computed;
    }
    for (int32_t c = 0; c < t.dim; ++c) {
      const float scale = t.dtype == p.dtype_in ? 1.0f
                          : t.computed_scales   ? computed
                                                : t.scale->given[given_scale_offset(*t.scale, h, c)];
      store_float(t.dtype, t.cache, target + c, row[c] / scale);
    }
  }
}

/// Writes the queries of token `token` to query_out, turned and quantised as the launch says.
void return_queries(const KvAppendParams& p, int64_t token) {
  const auto size_in = static_cast<int64_t>(dtype_size(p.dtype_in));
  const bool rotary = (p.features & kRotary) != 0;
  const bool quantises = p.dtype_query_out != p.dtype_in;
  for (int32_t h = 0; h < p.num_heads_q; ++h) {
    const char* source = static_cast<const char*>(p.query) +
                         (token * p.query_stride_token + h * p.query_stride_head) * size_in;
    const int64_t target = token * p.query_out_stride_token + h * p.query_out_stride_head;
    if (!rotary && !quantises) {
      std::memcpy(static_cast<char*>(p.query_out) + target * size_in, source,
                  static_cast<std::size_t>(p.head_dim * size_in));
      continue;
    }
    const auto load = [&](int32_t c) { return load_float(p.dtype_in, source, c); };
    for (int32_t c = 0; c < p.head_dim; ++c) {
      const float x = rotary ? rotated(p.rotary, token_position(p, token), c, load) : load(c);
      store_float(p.dtype_query_out, p.query_out, target + c, quantises ? x / *p.query_scale : x);
    }
  }
}

/// Checks all slots and positions before the first write, so a bad call leaves the cache unchanged.
KernelStatus check_tokens(const KvAppendParams& p, KernelMessage* message) {
  const int64_t slots = int64_t{p.num_blocks} * p.block_size;
  for (int64_t t = 0; t < p.num_tokens; ++t) {
    const int64_t slot = p.slot_mapping[t];
    if (slot == -1) continue;
    if (slot < 0 || slot >= slots) {
      return refuse(message, KernelStatus::kBadArgument,
                    "%s: slot_mapping of token %lld: -1 or 0..%lld required, given %lld", kKvAppend.name,
                    static_cast<long long>(t), static_cast<long long>(slots - 1),
                    static_cast<long long>(slot));
    }
    if (!(p.features & kRotary)) continue;
    const int64_t position = token_position(p, t);
    if (position < 0 || position >= p.rotary.positions) {
      return refuse(message, KernelStatus::kBadArgument,
                    "%s: position of token %lld: 0..%d required, given %lld", kKvAppend.name,
                    static_cast<long long>(t), p.rotary.positions - 1, static_cast<long long>(position));
    }
  }
  return KernelStatus::kOk;
}

KernelStatus launch(const OpParams* params, const LaunchContext* context, KernelMessage* message) {
  const KvAppendParams& p = params->kv_append;
  if (const KernelStatus s = check_kv_append_pointers(kKvAppend, p, message); s != KernelStatus::kOk)
    return s;
  if (const KernelStatus s = check_tokens(p, message); s != KernelStatus::kOk) return s;
  const Tensor k{p.key,
                 p.key_stride_token,
                 p.key_stride_head,
                 p.head_dim,
                 p.k_cache,
                 p.dtype_k,
                 p.k_stride_block,
                 p.k_stride_token,
                 p.k_stride_head,
                 &p.k_scale,
                 (p.features & kRotary) != 0,
                 (p.features & kKTokenScales) != 0};
  const Tensor v{p.value,
                 p.value_stride_token,
                 p.value_stride_head,
                 p.head_dim_v,
                 p.v_cache,
                 p.dtype_v,
                 p.v_stride_block,
                 p.v_stride_token,
                 p.v_stride_head,
                 &p.v_scale,
                 false,
                 (p.features & kVTokenScales) != 0};
  const int threads =
      static_cast<int>(std::clamp<int64_t>(context->num_threads, 1, std::max<int64_t>(1, p.num_tokens)));
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t t = 0; t < p.num_tokens; ++t) {
    const int64_t slot = p.slot_mapping[t];
    if (slot < 0) continue;
    append_token(p, k, t, slot);
    append_token(p, v, t, slot);
    if (p.features & kQueryOut) return_queries(p, t);
  }
  return KernelStatus::kOk;
}

}  // namespace

const Kernel kKvAppend = {
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant,
    .name = "cpu",
    .summary = "keys and values to their slots: copied bit for bit, or rotated and quantised in fp32",
    .shapes = "head_dim 1..256, head_dim_v 1..512, any block_size",
    .op = Op::kKvAppend,
    .device = DeviceKind::kCpu,
    .min_compute_capability = 0,
    .features = kPagedKv | kHnd | kBf16 | kFp16 | kFp32 | kRotary | kE4m3Kv | kInt8K | kInt8V |
                kKTokenScales | kVTokenScales | kVChannelScales | kHeadDimV | kOneRow | kE5m2Kv | kQueryOut |
                kPositions64,
    .supports = supports,
    .numerics = numerics,
    .workspace_bytes = workspace_bytes,
    .plan = nullptr,
    .launch = launch,
};

}  // namespace attnbench::cpu
