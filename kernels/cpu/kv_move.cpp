// The cpu kv_move kernel: copies blocks, or gathers rows of sequences, on threads.
#include <algorithm>
#include <cstring>

#include "kernels/common/checks_move.h"
#include "kernels/common/move.h"
#include "kernels/cpu/cpu_kernels.h"

namespace attnbench::cpu {
namespace {

KernelStatus supports(const OpParams* params, const LaunchContext*, KernelMessage* message) {
  if (const KernelStatus s = check_features(kKvMove, *params, message); s != KernelStatus::kOk) return s;
  return check_kv_move_args(kKvMove, params->kv_move, message);
}

/// The verification of kv_move does not use it.
Numerics numerics(const OpParams*) { return {DType::kFp32, DType::kFp32, 0.0}; }

std::size_t workspace_bytes(const OpParams*, const LaunchContext*) { return 0; }

/// Copies one row of one head, or multiplies it by the descale.
void move_row(const MovedTensor& t, const char* from, char* to) {
  if (t.descale == nullptr) {
    std::memcpy(to, from, static_cast<std::size_t>(t.dim) * dtype_size(t.dtype_src));
    return;
  }
  const float descale = *t.descale;
  for (int32_t c = 0; c < t.dim; ++c)
    store_float(t.dtype_dst, to, c, load_float(t.dtype_src, from, c) * descale);
}

/// Copies rows of one block that follow each other, all heads. If a row's heads do so too, that is one piece.
void copy_rows(const KvMoveParams& p, const MovedTensor& t, int64_t src, int64_t dst) {
  const bool dense = t.src_stride_head == t.dim && t.dst_stride_head == t.dim &&
                     t.src_stride_token == p.num_heads_kv * t.src_stride_head &&
                     t.dst_stride_token == t.src_stride_token;
  if (dense) {
    const auto elements =
        static_cast<std::size_t>(p.block_size) * static_cast<std::size_t>(t.src_stride_token);
    std::memcpy(t.to(dst, 0, 0), t.from(src, 0, 0), elements * dtype_size(t.dtype_src));
    return;
  }
  for (int32_t h = 0; h < p.num_heads_kv; ++h) {
    for (int32_t r = 0; r < p.block_size; ++r) move_row(t, t.from(src, r, h), t.to(dst, r, h));
  }
}

/// Checks all pairs before the first write, so that a bad call leaves the destination unchanged.
KernelStatus check_pairs(const KvMoveParams& p, KernelMessage* message) {
  for (int64_t i = 0; i < p.num_pairs; ++i) {
    for (const bool is_dst : {false, true}) {
      const int64_t block = p.block_pairs[2 * i + (is_dst ? 1 : 0)];
      const int32_t blocks = is_dst ? p.num_blocks_dst : p.num_blocks_src;
      if (block >= 0 && block < blocks) continue;
      return refuse(message, KernelStatus::kBadArgument,
                    "%s: %s of pair %lld: a block from 0 to %d required, given %lld", kKvMove.name,
                    is_dst ? "destination" : "source", static_cast<long long>(i), blocks - 1,
                    static_cast<long long>(block));
    }
  }
  return KernelStatus::kOk;
}

int threads_for(const LaunchContext& context, int64_t items) {
  return static_cast<int>(std::clamp<int64_t>(context.num_threads, 1, std::max<int64_t>(1, items)));
}

void copy_blocks(const KvMoveParams& p, const LaunchContext& context) {
  const MovedTensor k = moved_k(p), v = moved_v(p);
  const bool has_v = (p.features & kVIsK) == 0;
#pragma omp parallel for num_threads(threads_for(context, p.num_pairs)) schedule(static)
  for (int64_t i = 0; i < p.num_pairs; ++i) {
    const int64_t src = p.block_pairs[2 * i], dst = p.block_pairs[2 * i + 1];
    copy_rows(p, k, src, dst);
    if (has_v) copy_rows(p, v, src, dst);
  }
}

void gather(const KvMoveParams& p, const LaunchContext& context) {
  const MovedTensor k = moved_k(p), v = moved_v(p);
  const bool has_v = (p.features & kVIsK) == 0;
  const int64_t first = p.cu_seqlens[0], last = p.cu_seqlens[p.batch];
#pragma omp parallel for num_threads(threads_for(context, last - first)) schedule(static)
  for (int64_t row = first; row < last; ++row) {
    const GatheredRow from = gathered_row(p, row);
    for (int32_t h = 0; h < p.num_heads_kv; ++h) {
      move_row(k, k.from(from.block, from.row, h), k.to(0, row, h));
      if (has_v) move_row(v, v.from(from.block, from.row, h), v.to(0, row, h));
    }
  }
}

KernelStatus launch(const OpParams* params, const LaunchContext* context, KernelMessage* message) {
  const KvMoveParams& p = params->kv_move;
  if (const KernelStatus s = check_kv_move_pointers(kKvMove, p, message); s != KernelStatus::kOk) return s;
  if (p.features & kGather) {
    if (p.batch > 0 && p.total_k > 0) gather(p, *context);
    return KernelStatus::kOk;
  }
  if (const KernelStatus s = check_pairs(p, message); s != KernelStatus::kOk) return s;
  copy_blocks(p, *context);
  return KernelStatus::kOk;
}

}  // namespace

const Kernel kKvMove = {
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant,
    .name = "cpu",
    .summary = "blocks copied, or rows gathered by block_table: bit for bit, or e4m3 times its descale",
    .shapes = "head_dim 1..576, head_dim_v 1..512, any block_size",
    .op = Op::kKvMove,
    .device = DeviceKind::kCpu,
    .min_compute_capability = 0,
    .features = kPagedKv | kHnd | kBf16 | kFp16 | kFp32 | kE4m3Kv | kInt8K | kInt8V | kHeadDimV | kVIsK |
                kGather | kSeqStarts,
    .supports = supports,
    .numerics = numerics,
    .workspace_bytes = workspace_bytes,
    .plan = nullptr,
    .launch = launch,
};

}  // namespace attnbench::cpu
