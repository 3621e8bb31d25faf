// The choice of kernel and grid for launches into quantised caches.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>

#include "kernels/contract/kernel.h"
#include "kernels/cuda/append/alike.cuh"
#include "kernels/cuda/append/quantise.cuh"

namespace attnbench::cuda_append {

inline Cache k_of(const KvAppendParams& p) {
  return {p.key,
          p.key_stride_token,
          p.key_stride_head,
          p.k_cache,
          p.dtype_k,
          p.k_stride_block,
          p.k_stride_token,
          p.k_stride_head,
          (p.features & kKTokenScales) != 0,
          p.k_scale};
}

inline Cache v_of(const KvAppendParams& p) {
  return {p.value,
          p.value_stride_token,
          p.value_stride_head,
          p.v_cache,
          p.dtype_v,
          p.v_stride_block,
          p.v_stride_token,
          p.v_stride_head,
          (p.features & kVTokenScales) != 0,
          p.v_scale};
}

/// Number of blocks of quantise_kernel: one per `per_block` units if all of them fit at once (`room`).
/// Otherwise it is as many as fit such that a pass of the grid is a whole number of tokens of `groups` units.
inline unsigned quantise_blocks(int64_t tokens, int64_t groups, int64_t per_block, int64_t room) {
  const int64_t needed = (tokens * groups + per_block - 1) / per_block;
  if (needed <= room) return static_cast<unsigned>(needed);
  const int64_t step = groups / std::gcd(groups, per_block);
  return static_cast<unsigned>(std::min(needed, std::max(room / step, int64_t{1}) * step));
}

template <DType kType, Rotary kRotary, bool kPerChannel>
void launch_any(const KvAppendParams& p, const LaunchContext& context) {
  const int row_lanes = lanes_of_row(p);
  const int64_t groups = (p.num_heads_kv + kHeads - 1) / kHeads;
  const unsigned blocks = quantise_blocks(p.num_tokens, groups, kThreads / row_lanes,
                                          int64_t{kBlocks<kPerChannel>} * context.multiprocessors);
  quantise_kernel<kType, kRotary, kPerChannel>
      <<<blocks, kThreads, 0, static_cast<cudaStream_t>(context.stream)>>>(p, k_of(p), v_of(p), row_lanes);
}

/// Whether rows of a cache are divided by scales that differ from channel to channel.
inline bool per_channel(DType dtype, DType dtype_in, bool computed, const ScaleParams& scale) {
  return dtype != dtype_in && !computed && scale.given_stride_channel != 0;
}

namespace alike {

/// Blocks per multiprocessor where they stay for the whole launch.
inline constexpr int kStayingBlocks = 4;
/// The most passes for which they stay. Scales per channel have no limit, because each block first makes many
/// reciprocals.
template <Scales kOfV>
inline constexpr uint32_t kMostStaying = kOfV == Scales::kPerChannel ? UINT32_MAX : 24;

/// None where alike_kernel does not support the scales.
inline std::optional<Scales> scales_of(const Cache& cache) {
  if (cache.computed) return Scales::kComputed;
  if (cache.scale.given_stride_channel == 0) return Scales::kPerHead;
  const bool by_four =
      reinterpret_cast<std::uintptr_t>(cache.scale.given) % 16 == 0 && cache.scale.given_stride_head % 4 == 0;
  if (cache.scale.given_stride_channel == 1 && by_four) return Scales::kPerChannel;
  return std::nullopt;
}

/// Converts `stride`, in elements of `bytes` bytes, to bytes in 32 bits. Returns false where it does not fit.
inline bool narrow(int64_t stride, int64_t bytes, uint32_t& to) {
  to = static_cast<uint32_t>(stride * bytes);
  return stride >= 0 && stride <= int64_t{UINT32_MAX} / bytes;
}

inline bool narrow(const Cache& cache, Side& side) {
  side.source = static_cast<const char*>(cache.source);
  side.rows = static_cast<char*>(cache.rows);
  side.given = cache.scale.given;
  side.given_stride_head = cache.scale.given_stride_head;
  side.computed = reinterpret_cast<char*>(cache.scale.computed);
  return narrow(cache.source_stride_token, 2, side.source_stride_token) &&
         narrow(cache.source_stride_head, 2, side.source_stride_head) &&
         narrow(cache.stride_block, 1, side.stride_block) &&
         narrow(cache.stride_token, 1, side.stride_token) && narrow(cache.stride_head, 1, side.stride_head);
}

/// Fills the parameters of alike_kernel. Returns false where it does not support the caches.
inline bool params_of(const KvAppendParams& p, Params& to) {
  const Cache k = k_of(p), v = v_of(p);
  const ScaleParams &a = k.scale, &b = v.scale;
  const bool both = k.computed && v.computed;
  const auto rows = p.num_tokens * p.num_heads_kv;
  if (k.dtype != v.dtype || p.head_dim > 512 || p.num_heads_kv > 65535 || rows > 1 << 30 ||
      (both && (a.stride_block != b.stride_block || a.stride_token != b.stride_token ||
                a.stride_head != b.stride_head))) {
    return false;
  }
  to.slot_mapping = p.slot_mapping;
  to.positions = p.positions;
  to.rotary = p.rotary;
  to.tokens = static_cast<uint32_t>(p.num_tokens);
  to.heads = static_cast<uint32_t>(p.num_heads_kv);
  to.head_dim = static_cast<uint32_t>(p.head_dim);
  to.block_size = static_cast<uint32_t>(p.block_size);
  to.capacity = to.block_size * static_cast<uint32_t>(p.num_blocks);
  to.by_heads = Divisor(to.heads);
  to.by_block_size = Divisor(to.block_size);
  to.row_lanes_log2 = 1;  // at least two lanes: where both scales are computed, neighbours share the work
  while ((kChunks * kChannels << to.row_lanes_log2) < p.head_dim) ++to.row_lanes_log2;
  return narrow(k, to.k) && narrow(v, to.v) &&
         (!k.computed || (narrow(a.stride_block, 4, to.scale_stride_block) &&
                          narrow(a.stride_token, 4, to.scale_stride_token) &&
                          narrow(a.stride_head, 4, to.scale_stride_head)));
}

template <DType kType, Rotary kRotary, DType kTo, Scales kOfK, Scales kOfV>
void start(Params p, const LaunchContext& context) {
  const Cut cut = cut_of(p.tokens, p.heads, kThreads >> p.row_lanes_log2,
                         static_cast<uint32_t>(kStayingBlocks * context.multiprocessors), kMostStaying<kOfV>);
  p.token_step = cut.token_step;
  p.passes = cut.passes;
  alike_kernel<kType, kRotary, kTo, kOfK, kOfV>
      <<<dim3(cut.blocks_x, cut.blocks_y), kThreads, 0, static_cast<cudaStream_t>(context.stream)>>>(p);
}

/// Launches alike_kernel. Returns false where it does not support the caches.
template <DType kType, Rotary kRotary>
bool launch(const KvAppendParams& p, const LaunchContext& context) {
  Params params;
  const std::optional<Scales> k = scales_of(k_of(p)), v = scales_of(v_of(p));
  if (!k || !v || !params_of(p, params)) return false;
  const auto are = [&](DType to, Scales of_k, Scales of_v) {
    return p.dtype_k == to && *k == of_k && *v == of_v;
  };
  using enum Scales;
  constexpr DType kE4m3 = DType::kE4m3, kInt8 = DType::kInt8;
  if (are(kE4m3, kComputed, kComputed)) {
    start<kType, kRotary, kE4m3, kComputed, kComputed>(params, context);
  } else if (are(kE4m3, kPerHead, kPerHead)) {
    start<kType, kRotary, kE4m3, kPerHead, kPerHead>(params, context);
  } else if (are(kE4m3, kComputed, kPerHead)) {
    start<kType, kRotary, kE4m3, kComputed, kPerHead>(params, context);
  } else if (are(kInt8, kComputed, kComputed)) {
    start<kType, kRotary, kInt8, kComputed, kComputed>(params, context);
  } else if (are(kInt8, kPerChannel, kPerChannel)) {
    start<kType, kRotary, kInt8, kPerChannel, kPerChannel>(params, context);
  } else if (are(kInt8, kComputed, kPerChannel)) {
    start<kType, kRotary, kInt8, kComputed, kPerChannel>(params, context);
  } else {
    return false;
  }
  return true;
}

}  // namespace alike

template <DType kType, Rotary kRotary>
void launch_quantise(const KvAppendParams& p, const LaunchContext& context) {
  if (alike::launch<kType, kRotary>(p, context)) return;
  if (per_channel(p.dtype_k, p.dtype_in, (p.features & kKTokenScales) != 0, p.k_scale) ||
      per_channel(p.dtype_v, p.dtype_in, (p.features & kVTokenScales) != 0, p.v_scale)) {
    launch_any<kType, kRotary, true>(p, context);
  } else {
    launch_any<kType, kRotary, false>(p, context);
  }
}

template <DType kType>
void launch_quantise(const KvAppendParams& p, const LaunchContext& context) {
  if ((p.features & kRotary) == 0) {
    launch_quantise<kType, Rotary::kNone>(p, context);
  } else if (p.rotary.interleaved) {
    launch_quantise<kType, Rotary::kAdjacent>(p, context);
  } else {
    launch_quantise<kType, Rotary::kHalves>(p, context);
  }
}

}  // namespace attnbench::cuda_append
