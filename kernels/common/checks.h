// Argument checks that every kernel needs. `supports` checks shapes, before anything is allocated; `launch`
// checks pointers. The checks read no tensor. A refusal says what is required and what is given.
#pragma once

#include <cstdint>

#include "kernels/common/checks_block_scales.h"
#include "kernels/common/checks_topk.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

/// Largest head_dim and head_dim_v of the contract.
inline constexpr int32_t kMaxHeadDim = 576;
inline constexpr int32_t kMaxHeadDimV = 512;

/// Feature bit of a launch whose q, K and V have floating type `t`; 0 for other types.
constexpr uint64_t dtype_feature(DType t) {
  switch (t) {
    case DType::kBf16:
      return kBf16;
    case DType::kFp16:
      return kFp16;
    case DType::kFp32:
      return kFp32;
    default:
      return 0;
  }
}

/// Types of q, K and V that the feature bits of a launch require.
struct InputDTypes {
  DType q, k, v;
};
constexpr InputDTypes input_dtypes(uint64_t features) {
  const DType base = features & kBf16 ? DType::kBf16 : features & kFp16 ? DType::kFp16 : DType::kFp32;
  const uint64_t small = features & (kE4m3Kv | kE5m2Kv | kE2m1Kv);
  const DType small_kv = small & kE4m3Kv ? DType::kE4m3 : small & kE5m2Kv ? DType::kE5m2 : DType::kE2m1x2;
  return {features & kE4m3Q   ? DType::kE4m3
          : features & kInt8Q ? DType::kInt8
                              : base,
          small               ? small_kv
          : features & kInt8K ? DType::kInt8
                              : base,
          small               ? small_kv
          : features & kInt8V ? DType::kInt8
                              : base};
}

/// Whether `t` is bf16, fp16 or fp32.
constexpr bool is_float_dtype(DType t) { return dtype_feature(t) != 0; }

/// Checks the type of O in a launch of attention or merge_states.
inline KernelStatus check_out_dtype(const Kernel& kernel, uint64_t features, DType out,
                                    KernelMessage* message) {
  const bool e4m3 = (features & kE4m3Out) != 0;
  if (e4m3 ? out == DType::kE4m3 : is_float_dtype(out)) return KernelStatus::kOk;
  return refuse(message, KernelStatus::kBadArgument, "%s: dtype_out %s required %s e4m3_out, given %s",
                kernel.name, e4m3 ? "e4m3" : "bf16, fp16 or fp32", e4m3 ? "with" : "without",
                dtype_name(out));
}

/// Checks rotary.q_position of an attention launch against its feature bits.
inline KernelStatus check_rotary_q(const Kernel& kernel, const AttentionParams& p, KernelMessage* message) {
  const auto bad = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kBadArgument, format, kernel.name, args...);
  };
  if (!(p.features & kRotary)) {
    return p.features & kRotaryQ ? bad("%s: rotary required for rotary_q, given none") : KernelStatus::kOk;
  }
  const auto rule = static_cast<int>(p.rotary.q_position);
  const int first = p.features & kRotaryQ ? 1 : 0;  // kRotaryQ requires a position off the diagonal
  if (rule < first || rule > 2) {
    return bad("%s: rotary.q_position %d..2 required, given %d", first, rule);
  }
  return KernelStatus::kOk;
}

/// Checks the rotary dim for rows of `head_dim` channels.
inline KernelStatus check_rotary_args(const Kernel& kernel, const RotaryParams& r, int32_t head_dim,
                                      KernelMessage* message) {
  if (r.dim < 2 || r.dim % 2 != 0 || r.dim > head_dim) {
    return refuse(message, KernelStatus::kBadArgument,
                  "%s: an even rotary dim from 2 to head_dim %d required, given %d", kernel.name, head_dim,
                  r.dim);
  }
  return KernelStatus::kOk;
}

/// Checks an attention launch with kRotaryCached. Its other shapes must have been checked.
inline KernelStatus check_rotary_cached(const Kernel& kernel, const AttentionParams& p,
                                        KernelMessage* message) {
  const auto bad = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kBadArgument, format, kernel.name, args...);
  };
  if (!(p.features & kRotary) || (p.features & (kAppend | kVIsK))) {
    return bad("%s: rotary, without append and with V that is no view of K, required for rotary_cached");
  }
  if (!is_float_dtype(p.dtype_q) || !is_float_dtype(p.dtype_k) || !is_float_dtype(p.dtype_v)) {
    return bad("%s: q, K and V in bf16, fp16 or fp32 required for rotary_cached, given %s, %s and %s",
               dtype_name(p.dtype_q), dtype_name(p.dtype_k), dtype_name(p.dtype_v));
  }
  return check_rotary_args(kernel, p.rotary, p.head_dim, message);
}

/// Checks an attention launch with kAppend or kRotary. Its other shapes must have been checked.
inline KernelStatus check_append_args(const Kernel& kernel, const AttentionParams& p,
                                      KernelMessage* message) {
  const auto bad = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kBadArgument, format, kernel.name, args...);
  };
  if (const auto s = check_rotary_q(kernel, p, message); s != KernelStatus::kOk) return s;
  if (p.features & kRotaryCached) return check_rotary_cached(kernel, p, message);
  if (!(p.features & kAppend)) {
    return p.features & kRotary ? bad("%s: append or rotary_cached required for rotary, given none")
                                : KernelStatus::kOk;
  }
  if (p.features & kPackedKv) return bad("%s: paged or contiguous KV required for append, given packed");
  if (p.features & (kHeadDimV | kVIsK)) {
    return bad("%s: values of their own as wide as keys required for append, given head_dim_v %d",
               p.head_dim_v);
  }
  const DType base = input_dtypes(p.features & (kBf16 | kFp16 | kFp32)).q;
  const bool quantised = (p.features & kAppendQuantised) != 0;
  if (quantised ? p.dtype_k == base : p.dtype_k != base || p.dtype_v != base) {
    return bad("%s: KV %s %s required for append %s append_quantised, given %s and %s",
               quantised ? "other than" : "in", dtype_name(base), quantised ? "with" : "without",
               dtype_name(p.dtype_k), dtype_name(p.dtype_v));
  }
  if (quantised && ((p.dtype_k_new != p.dtype_k && p.dtype_k_new != base) ||
                    (p.dtype_v_new != p.dtype_v && p.dtype_v_new != base))) {
    return bad("%s: new rows in %s or in the type of the cache required, given %s and %s", dtype_name(base),
               dtype_name(p.dtype_k_new), dtype_name(p.dtype_v_new));
  }
  if ((p.features & kRotary) && (!is_float_dtype(p.dtype_q) || (quantised && p.dtype_k_new != base))) {
    return bad("%s: q and new keys in %s required for rotary, given %s and %s", dtype_name(base),
               dtype_name(p.dtype_q), dtype_name(quantised ? p.dtype_k_new : p.dtype_k));
  }
  if (p.features & kRotary) return check_rotary_args(kernel, p.rotary, p.head_dim, message);
  return KernelStatus::kOk;
}

/// Checks the pointers of an attention launch with kAppend, and that the longest sequence fits in the cache.
inline KernelStatus check_append_pointers(const Kernel& kernel, const AttentionParams& p,
                                          KernelMessage* message) {
  const auto bad = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kBadArgument, format, kernel.name, args...);
  };
  if (!(p.features & kAppend) || p.batch == 0) return KernelStatus::kOk;
  if (p.cu_seqlens_new == nullptr) return bad("%s: cu_seqlens_new required for append, given null");
  if (p.total_new > 0 &&
      (p.k_new == nullptr || p.v_new == nullptr || p.k_cache == nullptr || p.v_cache == nullptr)) {
    return bad("%s: k_new, v_new, k_cache and v_cache required for append, given null");
  }
  const int64_t capacity = p.features & kPagedKv ? p.block_table_stride * p.block_size : p.cache_capacity;
  if (p.max_seqlen_k > capacity) {
    return bad("%s: a cache of max_seqlen_k %d tokens per sequence required for append, given %lld",
               p.max_seqlen_k, static_cast<long long>(capacity));
  }
  return KernelStatus::kOk;
}

/// Checks that the types of an attention launch are those that its feature bits require.
inline KernelStatus check_attention_dtypes(const Kernel& kernel, const AttentionParams& p,
                                           KernelMessage* message) {
  const auto bad = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kBadArgument, format, kernel.name, args...);
  };
  const auto both = [&](uint64_t a, uint64_t b) { return (p.features & a) != 0 && (p.features & b) != 0; };
  const auto without = [&](uint64_t a, uint64_t b) { return (p.features & a) != 0 && (p.features & b) == 0; };
  const uint64_t base = p.features & (kBf16 | kFp16 | kFp32);
  if (base == 0 || (base & (base - 1)) != 0) {
    return bad("%s: one of bf16, fp16 and fp32 required, given bits 0x%llx",
               static_cast<unsigned long long>(base));
  }
  const bool two_floats = both(kE4m3Kv, kE5m2Kv) || both(kE4m3Kv | kE5m2Kv, kE2m1Kv);
  if (both(kE4m3Q, kInt8Q) || both(kE4m3Kv | kE5m2Kv | kE2m1Kv, kInt8K | kInt8V) || two_floats) {
    return bad("%s: one type of q and one of KV required, given bits of two of e4m3, e5m2, e2m1 and int8");
  }
  if (without(kE4m3Q, kE4m3Kv)) return bad("%s: KV in e4m3 required for q in e4m3, given other KV");
  if (without(kInt8Q | kInt8V, kInt8K))
    return bad("%s: K in int8 required for q or V in int8, given other K");
  const InputDTypes types = input_dtypes(p.features);
  if (p.dtype_q != types.q || p.dtype_k != types.k || p.dtype_v != types.v) {
    return bad("%s: q, K and V in %s, %s and %s required by the feature bits, given %s, %s and %s",
               dtype_name(types.q), dtype_name(types.k), dtype_name(types.v), dtype_name(p.dtype_q),
               dtype_name(p.dtype_k), dtype_name(p.dtype_v));
  }
  if ((p.features & kVChannelScales) && (!is_fp8(p.dtype_v) || (p.features & kVIsK))) {
    return bad("%s: V in e4m3 or e5m2, not a view of K, required for scales of V per channel, given %s",
               dtype_name(p.dtype_v));
  }
  const bool grouped = (p.features & kDescaleRows) != 0;
  const int32_t q_rows = p.q_descale_rows, k_rows = p.k_descale_rows;
  const bool rows_fit = !grouped ? q_rows == 0 && k_rows == 0
                                 : q_rows >= 1 && k_rows >= 1 && q_rows * int64_t{k_rows} > 1 &&
                                       (q_rows == 1 || (p.features & kInt8Q)) &&
                                       (k_rows == 1 || (p.features & (kInt8K | kKTokenScales))) &&
                                       !((p.features & kPagedKv) && p.block_size % k_rows != 0) &&
                                       !(k_rows > 1 && (p.features & (kVIsK | kPagedLeftpad)));
  if (!rows_fit) {
    return bad(
        "%s: q_descale_rows for int8 q and k_descale_rows for K with descales per row, over 1 with descale_rows and "
        "0 without, and a divisor of block_size, required, given %d and %d",
        q_rows, k_rows);
  }
  const bool by_row = (p.features & (kKTokenScales | kVTokenScales)) != 0;
  const bool rows_can = !(p.features & (kKTail | kVChannelScales)) &&
                        (!(p.features & kKTokenScales) || is_fp8(p.dtype_k)) &&
                        (!(p.features & kVTokenScales) || is_fp8(p.dtype_v) || p.dtype_v == DType::kInt8) &&
                        (!(p.features & kVIsK) || both(kKTokenScales, kVTokenScales));
  if (by_row && !rows_can) {
    return bad(
        "%s: descales per row: K in e4m3 or e5m2, V in these or int8, no other scales of them, and both or none of a "
        "view of K required, given %s and %s",
        dtype_name(p.dtype_k), dtype_name(p.dtype_v));
  }
  return check_out_dtype(kernel, p.features, p.dtype_out, message);
}

/// Checks head_dim and head_dim_v of an attention launch, and what kVIsK requires.
inline KernelStatus check_head_dims(const Kernel& kernel, const AttentionParams& p, KernelMessage* message) {
  const auto bad = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kBadArgument, format, kernel.name, args...);
  };
  if (p.head_dim < 1 || p.head_dim > kMaxHeadDim) {
    return bad("%s: head_dim 1..%d required, given %d", kMaxHeadDim, p.head_dim);
  }
  if (p.head_dim_v < 1 || p.head_dim_v > kMaxHeadDimV) {
    return bad("%s: head_dim_v 1..%d required, given %d", kMaxHeadDimV, p.head_dim_v);
  }
  if (((p.features & kHeadDimV) != 0) != (p.head_dim_v != p.head_dim)) {
    return bad("%s: head_dim_v equal to head_dim %d required %s head_dim_v, given %d", p.head_dim,
               p.features & kHeadDimV ? "not with feature" : "without feature", p.head_dim_v);
  }
  if ((p.features & kVIsK) != 0 &&
      (p.head_dim_v > p.head_dim || p.dtype_v != p.dtype_k || (p.features & kInt8K) != 0 ||
       p.v_stride_block != p.k_stride_block || p.v_stride_token != p.k_stride_token ||
       p.v_stride_head != p.k_stride_head)) {
    return bad(
        "%s: V with K's strides and type, not int8, and head_dim_v up to %d required of a view of K, "
        "given %s and %d",
        p.head_dim, dtype_name(p.dtype_v), p.head_dim_v);
  }
  return KernelStatus::kOk;
}

/// Checks the mask of a launch of attention or attention_backward.
template <class Params>
KernelStatus check_top_left(const Kernel& kernel, const Params& p, KernelMessage* message) {
  constexpr uint64_t kOthers = kAttentionChunk | kAlibi | kRotary;
  if (!(p.features & kTopLeft) || ((p.features & kCausal) && !(p.features & kOthers)))
    return KernelStatus::kOk;
  return refuse(
      message, KernelStatus::kBadArgument,
      "%s: causal, without attention_chunk, alibi and rotary, required for top_left, given bits 0x%llx",
      kernel.name, static_cast<unsigned long long>(p.features & (kOthers | kCausal)));
}

/// Checks the shapes and types of an attention launch. Call check_features first.
inline KernelStatus check_attention_args(const Kernel& kernel, const AttentionParams& p,
                                         KernelMessage* message) {
  const auto bad = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kBadArgument, format, kernel.name, args...);
  };
  if (p.batch < 0) return bad("%s: batch >= 0 required, given %d", p.batch);
  if (p.total_q < 0) {
    return bad("%s: total_q >= 0 required, given %lld", static_cast<long long>(p.total_q));
  }
  if (p.num_heads_kv < 1) return bad("%s: num_heads_kv >= 1 required, given %d", p.num_heads_kv);
  if (p.num_heads_q < 1 || p.num_heads_q % p.num_heads_kv != 0) {
    return bad("%s: num_heads_q a positive multiple of num_heads_kv %d required, given %d", p.num_heads_kv,
               p.num_heads_q);
  }
  if (const KernelStatus s = check_attention_dtypes(kernel, p, message); s != KernelStatus::kOk) return s;
  if (const KernelStatus s = check_head_dims(kernel, p, message); s != KernelStatus::kOk) return s;
  if (const KernelStatus s = check_block_scales(kernel, p, message); s != KernelStatus::kOk) return s;
  if (const KernelStatus s = check_qv(kernel, p, message); s != KernelStatus::kOk) return s;
  if (const KernelStatus s = check_top_left(kernel, p, message); s != KernelStatus::kOk) return s;
  const uint64_t sources = p.features & (kPackedKv | kPagedKv | kContiguousKv);
  if (sources == 0 || (sources & (sources - 1)) != 0) {
    return bad("%s: one of packed, paged and contiguous required, given bits 0x%llx",
               static_cast<unsigned long long>(sources));
  }
  if (sources == kPagedKv && p.block_size < 1) {
    return bad("%s: block_size >= 1 required, given %d", p.block_size);
  }
  if (p.shared_prefix < 0 ||
      (p.shared_prefix > 0 && (sources != kPagedKv || p.shared_prefix % p.block_size != 0))) {
    return bad("%s: shared_prefix: paged KV and a multiple of block_size required, given %d of blocks of %d",
               p.shared_prefix, p.block_size);
  }
  if (sources != kPagedKv && (p.features & (kPagedBatchIdx | kPagedLeftpad)) != 0) {
    return bad("%s: paged KV required for paged_batch_idx and paged_leftpad, given other KV");
  }
  if (sources == kPagedKv && p.block_table_stride < 0) {
    return bad("%s: block_table_stride >= 0 required, given %lld",
               static_cast<long long>(p.block_table_stride));
  }
  if (!(p.softcap >= 0.0f)) return bad("%s: softcap >= 0 required, given %g", static_cast<double>(p.softcap));
  if (p.num_splits < 0 || ((p.features & kSplitKv) != 0) != (p.num_splits > 0)) {
    return bad("%s: num_splits over 0 with its feature bit, 0 without, required, given %d", p.num_splits);
  }
  if (p.attention_chunk < 0 || ((p.features & kAttentionChunk) != 0) != (p.attention_chunk > 0)) {
    return bad("%s: attention_chunk over 0 with its feature bit, 0 without, required, given %d",
               p.attention_chunk);
  }

  if (const KernelStatus s = check_topk_args(kernel, p, message); s != KernelStatus::kOk) return s;
  const bool dropout = (p.features & kDropout) != 0;
  if (dropout ? !(p.p_dropout > 0.0f && p.p_dropout < 1.0f) : p.p_dropout != 0.0f) {
    return bad("%s: p_dropout over 0 and under 1 with dropout, 0 without, required, given %g",
               static_cast<double>(p.p_dropout));
  }
  return check_append_args(kernel, p, message);
}

/// Checks the pointers of an attention launch. Its shapes must have been checked.
inline KernelStatus check_attention_pointers(const Kernel& kernel, const AttentionParams& p,
                                             KernelMessage* message) {
  const auto bad = [&](const char* format) {
    return refuse(message, KernelStatus::kBadArgument, format, kernel.name);
  };
  const uint64_t sources = p.features & (kPackedKv | kPagedKv | kContiguousKv);
  if (p.batch > 0 && p.cu_seqlens_q == nullptr) return bad("%s: cu_seqlens_q required, given null");
  if (p.batch > 0 && (p.features & kSequsedQ) && p.seqused_q == nullptr) {
    return bad("%s: seqused_q required for seqused_q, given null");
  }
  if (p.batch > 0 && (p.features & kPagedBatchIdx) && p.cache_batch_idx == nullptr) {
    return bad("%s: cache_batch_idx required for paged_batch_idx, given null");
  }
  if (p.batch > 0 && (p.features & kPagedLeftpad) && p.cache_leftpad == nullptr) {
    return bad("%s: cache_leftpad required for paged_leftpad, given null");
  }
  if (p.batch > 0 && sources == kPackedKv && p.cu_seqlens_k == nullptr) {
    return bad("%s: cu_seqlens_k required for packed KV, given null");
  }
  if (p.batch > 0 && sources != kPackedKv && p.seqused_k == nullptr) {
    return bad("%s: seqused_k required for paged and contiguous KV, given null");
  }
  const bool lists = (p.features & kTopkIndices) != 0;
  if (p.total_q > 0 && lists && p.topk_indices == nullptr) {
    return bad("%s: topk_indices required for topk_indices, given null");
  }
  if (p.batch > 0 && sources == kPagedKv && !lists && p.block_table == nullptr) {
    return bad("%s: block_table required for paged KV, given null");
  }
  if (sources == kPagedKv && !lists && p.max_seqlen_k > p.block_table_stride * p.block_size) {
    return refuse(message, KernelStatus::kBadArgument,
                  "%s: a block_table row for max_seqlen_k %d tokens required, given %lld blocks of %d",
                  kernel.name, p.max_seqlen_k, static_cast<long long>(p.block_table_stride), p.block_size);
  }
  if (p.batch > 0 && (p.features & kAlibi) && p.alibi_slopes == nullptr) {
    return bad("%s: alibi_slopes required for alibi, given null");
  }
  if (p.batch > 0 && (p.features & kCustomMask) && (p.custom_mask == nullptr || p.mask_indptr == nullptr)) {
    return bad("%s: custom_mask and mask_indptr required for custom_mask, given null");
  }
  const auto missing = [&](uint64_t bits, const float* p_descale) {
    return p.batch > 0 && (p.features & bits) != 0 && p_descale == nullptr;
  };
  if (missing(kE4m3Q | kInt8Q, p.q_descale)) return bad("%s: q_descale required for quantised q, given null");
  if (p.batch > 0 && ((p.q_descale_rows > 1 && p.cu_q_descales == nullptr) ||
                      (p.k_descale_rows > 1 && (p.features & kPackedKv) && p.cu_k_descales == nullptr))) {
    return bad("%s: cu_q_descales and cu_k_descales required for descale_rows, given null");
  }
  const uint64_t described = p.features & kKTail ? 0 : kE4m3Kv | kE5m2Kv | kE2m1Kv;
  if (missing(described | kInt8K, p.k_descale))
    return bad("%s: k_descale required for quantised K, given null");
  if (missing(described | kInt8V, p.v_descale))
    return bad("%s: v_descale required for quantised V, given null");
  if (const KernelStatus s = check_block_scale_pointers(kernel, p, message); s != KernelStatus::kOk) return s;
  if (p.batch > 0 && (p.features & kE4m3Out) && p.out_scale == nullptr) {
    return bad("%s: out_scale required for O in e4m3, given null");
  }
  if (p.batch > 0 && (p.features & kRotary) && (p.rotary.cos == nullptr || p.rotary.sin == nullptr)) {
    return bad("%s: cos and sin required for rotary, given null");
  }
  if ((p.features & kVIsK) && p.v != p.k)
    return bad("%s: v equal to k required of a view of K, given another");
  if ((p.features & kProbs) && p.total_q > 0 && p.max_seqlen_k > 0 && p.probs == nullptr) {
    return bad("%s: probs required for probs, given null");
  }
  if ((p.features & kSinks) && p.sinks == nullptr) return bad("%s: sinks required for sinks, given null");
  if (p.total_q > 0 && (p.q == nullptr || p.out == nullptr || p.lse == nullptr)) {
    return bad("%s: q, out and lse required, given null");
  }
  if (p.total_q > 0 && (p.features & kQv) && p.qv == nullptr)
    return bad("%s: qv required for qv, given null");
  return check_append_pointers(kernel, p, message);
}

/// Alignment in bytes that a kernel requires of an address. Null passes.
struct Alignment {
  const char* name;
  const void* pointer;
  int bytes;
};

/// Refuses the first pointer that is not aligned. For `launch` only: `supports` has no pointers yet.
template <std::size_t kCount>
KernelStatus check_alignment(const Kernel& kernel, const Alignment (&pointers)[kCount],
                             KernelMessage* message) {
  for (const Alignment& a : pointers) {
    const auto off = static_cast<int>(reinterpret_cast<std::uintptr_t>(a.pointer) % a.bytes);
    if (off != 0) {
      return refuse(message, KernelStatus::kBadArgument,
                    "%s: %s aligned to %d bytes required, given an address %d bytes past", kernel.name,
                    a.name, a.bytes, off);
    }
  }
  return KernelStatus::kOk;
}

/// A stride in elements, and the number of which it must be a multiple.
struct Stride {
  const char* name;
  int64_t value;
  int64_t multiple;
};

/// Refuses the first stride that is not a positive multiple.
template <std::size_t kCount>
KernelStatus check_strides(const Kernel& kernel, const Stride (&strides)[kCount], KernelMessage* message) {
  for (const Stride& s : strides) {
    if (s.value <= 0 || s.value % s.multiple != 0) {
      return refuse(message, KernelStatus::kUnsupported,
                    "%s: %s a positive multiple of %lld required, given %lld", kernel.name, s.name,
                    static_cast<long long>(s.multiple), static_cast<long long>(s.value));
    }
  }
  return KernelStatus::kOk;
}

/// Refuses a workspace that is smaller than `bytes` bytes or not aligned to 16 bytes.
inline KernelStatus check_workspace(const Kernel& kernel, std::size_t bytes, const LaunchContext& context,
                                    KernelMessage* message) {
  const Alignment workspace[] = {{"workspace", context.workspace, 16}};
  if (const KernelStatus s = check_alignment(kernel, workspace, message); s != KernelStatus::kOk) return s;
  if (context.workspace != nullptr && context.workspace_bytes >= bytes) return KernelStatus::kOk;
  return refuse(message, KernelStatus::kBadArgument, "%s: workspace of %zu bytes required, given %zu",
                kernel.name, bytes, context.workspace_bytes);
}

/// Checks the shapes and types of a merge_states.
inline KernelStatus check_merge_states_args(const Kernel& kernel, const MergeStatesParams& p,
                                            KernelMessage* message) {
  const auto bad = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kBadArgument, format, kernel.name, args...);
  };
  if (p.num_states < 1) return bad("%s: num_states >= 1 required, given %d", p.num_states);
  if (p.num_heads < 1) return bad("%s: num_heads >= 1 required, given %d", p.num_heads);
  if (p.num_rows < 0)
    return bad("%s: num_rows >= 0 required, given %lld", static_cast<long long>(p.num_rows));
  if (p.head_dim < 1 || p.head_dim > 1024) return bad("%s: head_dim 1..1024 required, given %d", p.head_dim);
  const uint64_t base = p.features & (kBf16 | kFp16 | kFp32);
  if (base == 0 || base != dtype_feature(p.dtype_partial)) {
    return bad("%s: one of bf16, fp16, fp32, equal to dtype_partial, required, given bits 0x%llx and %s",
               static_cast<unsigned long long>(base), dtype_name(p.dtype_partial));
  }
  return check_out_dtype(kernel, p.features, p.dtype_out, message);
}

/// Checks the pointers of a merge_states. Its shapes must have been checked.
inline KernelStatus check_merge_states_pointers(const Kernel& kernel, const MergeStatesParams& p,
                                                KernelMessage* message) {
  if (p.num_rows == 0) return KernelStatus::kOk;
  if ((p.features & kRaggedStates) != 0 && p.state_indptr == nullptr) {
    return refuse(message, KernelStatus::kBadArgument,
                  "%s: state_indptr required for ragged_states, given null", kernel.name);
  }
  if ((p.features & kE4m3Out) && p.out_scale == nullptr) {
    return refuse(message, KernelStatus::kBadArgument, "%s: out_scale required for O in e4m3, given null",
                  kernel.name);
  }
  if (p.partial_out && p.partial_lse && p.out && p.out_lse) return KernelStatus::kOk;
  return refuse(message, KernelStatus::kBadArgument,
                "%s: partial_out, partial_lse, out and out_lse required, given null", kernel.name);
}

}  // namespace attnbench
