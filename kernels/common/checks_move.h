// Argument checks of the op kv_move, as checks.h has them for the others.
#pragma once

#include <cstdint>

#include "kernels/common/checks.h"

namespace attnbench {

/// Checks the types of a kv_move against its feature bits.
inline KernelStatus check_kv_move_dtypes(const Kernel& kernel, const KvMoveParams& p,
                                         KernelMessage* message) {
  const auto bad = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kBadArgument, format, kernel.name, args...);
  };
  const uint64_t base = p.features & (kBf16 | kFp16 | kFp32);
  if (base == 0 || (base & (base - 1)) != 0) {
    return bad("%s: one of bf16, fp16 and fp32 required, given bits 0x%llx",
               static_cast<unsigned long long>(base));
  }
  if ((p.features & kE4m3Kv) && (p.features & (kInt8K | kInt8V))) {
    return bad("%s: a cache in e4m3 or in int8 required, given both");
  }
  const InputDTypes types = input_dtypes(p.features);
  const bool has_v = (p.features & kVIsK) == 0;
  if (p.dtype_k != types.k || (has_v && p.dtype_v != types.v)) {
    return bad("%s: K in %s and V in %s required by its features, given %s and %s", dtype_name(types.k),
               dtype_name(types.v), dtype_name(p.dtype_k), dtype_name(p.dtype_v));
  }
  if (!(p.features & kGather)) return KernelStatus::kOk;
  if (p.features & (kInt8K | kInt8V)) {
    return bad("%s: rows in e4m3 or in a float type required for gather, given %s and %s",
               dtype_name(p.dtype_k), dtype_name(p.dtype_v));
  }
  const DType out = input_dtypes(base).k;
  if (p.dtype_out != out) {
    return bad("%s: dtype_out %s required by its features, given %s", dtype_name(out),
               dtype_name(p.dtype_out));
  }
  return KernelStatus::kOk;
}

/// Checks the shapes and types of a kv_move.
inline KernelStatus check_kv_move_args(const Kernel& kernel, const KvMoveParams& p, KernelMessage* message) {
  const auto bad = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kBadArgument, format, kernel.name, args...);
  };
  if (p.num_heads_kv < 1) return bad("%s: num_heads_kv >= 1 required, given %d", p.num_heads_kv);
  if (p.head_dim < 1 || p.head_dim > kMaxHeadDim) {
    return bad("%s: head_dim 1..%d required, given %d", kMaxHeadDim, p.head_dim);
  }
  const bool has_v = (p.features & kVIsK) == 0;
  if (has_v && (p.head_dim_v < 1 || p.head_dim_v > kMaxHeadDimV)) {
    return bad("%s: head_dim_v 1..%d required, given %d", kMaxHeadDimV, p.head_dim_v);
  }
  if (has_v && ((p.features & kHeadDimV) != 0) != (p.head_dim_v != p.head_dim)) {
    return bad("%s: head_dim_v equal to head_dim %d required %s head_dim_v, given %d", p.head_dim,
               p.features & kHeadDimV ? "not with feature" : "without feature", p.head_dim_v);
  }
  if (p.block_size < 1) return bad("%s: block_size >= 1 required, given %d", p.block_size);
  if (p.num_blocks_src < 0 || p.num_blocks_dst < 0) {
    return bad("%s: num_blocks_src and num_blocks_dst >= 0 required, given %d and %d", p.num_blocks_src,
               p.num_blocks_dst);
  }
  if (p.num_pairs < 0)
    return bad("%s: num_pairs >= 0 required, given %lld", static_cast<long long>(p.num_pairs));
  if (p.batch < 0 || p.total_k < 0) {
    return bad("%s: batch and total_k >= 0 required, given %d and %lld", p.batch,
               static_cast<long long>(p.total_k));
  }
  if ((p.features & kSeqStarts) && !(p.features & kGather)) {
    return bad("%s: gather required for seq_starts, given blocks");
  }
  return check_kv_move_dtypes(kernel, p, message);
}

/// Checks the pointers of a kv_move. Its shapes must have been checked.
inline KernelStatus check_kv_move_pointers(const Kernel& kernel, const KvMoveParams& p,
                                           KernelMessage* message) {
  const auto bad = [&](const char* format) {
    return refuse(message, KernelStatus::kBadArgument, format, kernel.name);
  };
  const bool gather = (p.features & kGather) != 0;
  if (gather ? p.batch == 0 || p.total_k == 0 : p.num_pairs == 0) return KernelStatus::kOk;
  const bool has_v = (p.features & kVIsK) == 0;
  if (p.k_src == nullptr || p.k_dst == nullptr || (has_v && (p.v_src == nullptr || p.v_dst == nullptr))) {
    return bad("%s: k_src, v_src, k_dst and v_dst required, given null");
  }
  if (!gather) {
    return p.block_pairs == nullptr ? bad("%s: block_pairs required, given null") : KernelStatus::kOk;
  }
  if (p.block_table == nullptr || p.cu_seqlens == nullptr) {
    return bad("%s: block_table and cu_seqlens required for gather, given null");
  }
  if ((p.features & kSeqStarts) && p.seq_starts == nullptr) return bad("%s: seq_starts required, given null");
  if ((p.features & kE4m3Kv) && (p.k_descale == nullptr || (has_v && p.v_descale == nullptr))) {
    return bad("%s: descales required of rows in e4m3, given null");
  }
  return KernelStatus::kOk;
}

}  // namespace attnbench
