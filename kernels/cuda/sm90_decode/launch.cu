#include "kernels/cuda/sm90_decode/launch.h"

#include <algorithm>
#include <bit>

#include "kernels/common/checks.h"
#include "kernels/common/mask.h"
#include "kernels/common/score.h"
#include "kernels/cuda/common/attention_host.h"
#include "kernels/cuda/sm90_decode/handover.cuh"
#include "kernels/cuda/sm90_decode/sm90_decode.h"
#include "kernels/cuda/sm90_decode/step.h"
#include "kernels/cuda/sm90_decode/workspace.h"

namespace attnbench::sm90_decode {
namespace {

constexpr int kMaxRows = 64;
constexpr Division kDivision{};

/// Division of sm90_decode_fixed, which is batch invariant. A unit is 16 tiles and a split of its own, so
/// that splits are 1,024 keys (8-bit KV of head_dim 128: 2,048).
constexpr Division kFixedDivision{.unit_shift = 4, .split_every_unit = true};
constexpr int kFixedRows = 16;  ///< rows of its one instance: the choice must not depend on the batch either
constexpr int kAppendRows = 16;

#define INSTANCE(name, ...) &instances::bf16_##name, &instances::fp16_##name,
constexpr const Instance* kInstances[] = {
#include "kernels/cuda/sm90_decode/instances.def"
};
#undef INSTANCE
#define INSTANCE(name, ...) #name " " #__VA_ARGS__ "\n"
constexpr const char* kInstanceRows =
#include "kernels/cuda/sm90_decode/instances.def"
    ;
#undef INSTANCE

bool launches_nothing(const AttentionParams& p) {
  const bool appends = (p.features & kAppend) && p.total_new > 0;
  return p.batch == 0 || (p.total_q == 0 && !appends);
}

/// Keys per copy: a whole tile for packed and contiguous KV, else 64, 32 or 16, a divisor of block_size.
int32_t box_rows(const Instance& instance, const AttentionParams& p) {
  if ((p.features & kPagedKv) == 0) return instance.tile_tokens;
  const int32_t rows = p.block_size % 64 == 0 ? 64 : p.block_size % 32 == 0 ? 32 : 16;
  return std::min(rows, instance.tile_tokens);
}

/// Whether `instance` may be chosen for `p` by a caller that also allows the instances for `use`.
bool is_for(const Instance& instance, const AttentionParams& p, Use use) {
  if (instance.use == Use::kAll || instance.use == Use::kFewBlocks) {
    return instance.use == Use::kAll || use == Use::kFewBlocks;
  }
  constexpr int64_t kManyTiles = 12 * 1024;
  const TileRange tiles = guess_tiles(instance, p);
  const bool small_pages = 4 * box_rows(instance, p) <= instance.tile_tokens;
  return use == Use::kLong && small_pages == (instance.use == Use::kLongSmallPages) &&
         int64_t{tiles.end - tiles.begin} * p.batch * p.num_heads_kv >= kManyTiles;
}

/// Encodes the map of K or V. `rows` receives how its coordinates count blocks and heads. Rows of 8 bits are
/// copied as 16-bit words of two channels each.
bool encode_kv_map(CUtensorMap* map, KvRows* rows, const Instance& instance, const AttentionParams& p,
                   const void* base, int64_t stride_block, int64_t stride_token, int64_t stride_head) {
  const auto chunk_bytes = static_cast<uint32_t>(instance.kv_chunk_bytes);
  const uint32_t chunks = hopper::head_chunks_of(p.dtype_k, p.head_dim, chunk_bytes);
  *rows = hopper::kv_rows_of(p, p.dtype_k, stride_block, stride_token, stride_head, chunk_bytes);
  const int32_t keys = box_rows(instance, p);
  if (base == nullptr) base = p.q;  // no sequence has keys: the map is not used, but must have an address
  return hopper::encode_row_window_map(
      map, p.dtype_k, base, stride_token * dtype_size(p.dtype_k),
      hopper::row_chunks_of(p, p.dtype_k, *rows, p.head_dim, chunk_bytes), keys,
      instance.chunk_copies && keys < instance.tile_tokens ? 1 : chunks, chunk_bytes);
}

/// Checks what append requires beyond the contract. New rows are read in words of two channels.
KernelStatus check_append(const Kernel& kernel, const AttentionParams& p, KernelMessage* message) {
  if ((p.features & kAppend) == 0) return KernelStatus::kOk;
  if (max_rows(p) > kAppendRows) {
    return refuse(message, KernelStatus::kUnsupported,
                  "%s: at most %d query rows per KV head (max_seqlen_q * num_heads_q / num_heads_kv) "
                  "required for append, given %lld",
                  kernel.name, kAppendRows, static_cast<long long>(max_rows(p)));
  }
  const Stride strides[] = {{"k_new_stride_token", p.k_new_stride_token, 2},
                            {"k_new_stride_head", p.k_new_stride_head, 2},
                            {"v_new_stride_token", p.v_new_stride_token, 2},
                            {"v_new_stride_head", p.v_new_stride_head, 2}};
  if (const KernelStatus s = check_strides(kernel, strides, message); s != KernelStatus::kOk) return s;
  const int dim = p.rotary.dim;
  if ((p.features & kRotary) && (dim < 16 || (dim & (dim - 1)) != 0)) {
    return refuse(message, KernelStatus::kUnsupported,
                  "%s: a rotary dim of 16, 32, 64, 128 or 256 required, given %d", kernel.name, dim);
  }
  return KernelStatus::kOk;
}

KernelStatus supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return check_supported(kAttention, *op, *context, message);
}

Numerics numerics(const OpParams* op) {
  const bool eight_bits = op->attention.features & (kE4m3Kv | kInt8K);
  return {.p_type = eight_bits ? DType::kFp16 : op->attention.dtype_q,
          .acc_type = DType::kFp32,
          .exp_rel_err = 0x1p-22};
}

KernelStatus fixed_supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  if (const KernelStatus s = check_supported(kFixedAttention, *op, *context, message); s != KernelStatus::kOk)
    return s;
  const AttentionParams& p = op->attention;
  if (max_rows(p) > kFixedRows) {
    return refuse(message, KernelStatus::kUnsupported,
                  "sm90_decode_fixed: at most %d query rows per KV head required, given %lld", kFixedRows,
                  static_cast<long long>(max_rows(p)));
  }
  const Guess g = guess(*find_instance(p, Use::kAll), p, *context, kFixedDivision);
  const int64_t rows = g.most_units * p.num_heads_kv * max_rows(p);
  if (rows > 1 << 22) {
    return refuse(message, KernelStatus::kUnsupported,
                  "sm90_decode_fixed: at most 2^22 rows of partial results required, given up to %lld",
                  static_cast<long long>(rows));
  }
  return KernelStatus::kOk;
}

KernelStatus launch_planned(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                            const Division& division, KernelMessage* message) {
  if (launches_nothing(p)) return KernelStatus::kOk;
  if (const KernelStatus s = check_plan(instance, p, context, division, message); s != KernelStatus::kOk)
    return s;
  return launch_instance(instance, p, context, division, message);
}

std::size_t fixed_workspace_bytes(const OpParams* op, const LaunchContext* context) {
  const Instance* instance = find_instance(op->attention, Use::kAll);
  return instance == nullptr ? 0 : workspace_bytes_of(*instance, op->attention, *context, kFixedDivision);
}

KernelStatus fixed_plan(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return plan_instance(*find_instance(op->attention, Use::kAll), op->attention, *context, kFixedDivision,
                       message);
}

KernelStatus fixed_launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return launch_planned(*find_instance(op->attention, Use::kAll), op->attention, *context, kFixedDivision,
                        message);
}

std::size_t workspace_bytes(const OpParams* op, const LaunchContext* context) {
  const Instance* instance = choose_instance(op->attention, *context);
  return instance == nullptr ? 0 : workspace_bytes_of(*instance, op->attention, *context, kDivision);
}

KernelStatus plan(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return plan_instance(*choose_instance(op->attention, *context), op->attention, *context, kDivision,
                       message);
}

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return launch_planned(*choose_instance(op->attention, *context), op->attention, *context, kDivision,
                        message);
}

const Instance* find_instance_for(int64_t rows, const AttentionParams& p, Use use) {
  for (const Instance* i : kInstances) {
    if (i->append == ((p.features & kAppend) != 0) && i->dtype == p.dtype_out && i->dtype_kv == p.dtype_k &&
        i->head_dim == p.head_dim && i->rows >= rows && is_for(*i, p, use)) {
      return i;
    }
  }
  return nullptr;
}

/// Whether the merge of a sequence's rows takes so long in one block that it pays to share it, if every sequence is as
/// long as the longest. `instance` is one whose blocks share nothing. A warp merges a row at a time, and loads
/// some of its splits at once. Sharing costs about one such load, of some 0.9 us.
bool sharing_pays(const Instance& instance, const AttentionParams& p, const LaunchContext& context) {
  constexpr int64_t kWarps = 4, kLeastSpared = 2;
  const Guess g = guess(instance, p, context, kDivision);
  const int64_t splits = std::min<int64_t>(g.parts / std::max(p.batch, 1), g.tiles);
  if (splits <= 1 + kMostStates) return false;  // the first block merges them (handover.cuh)
  const int64_t rows_of_warp = (max_rows(p) + kWarps - 1) / kWarps;
  const int64_t at_once = splits_at_once(p.head_dim);
  return (rows_of_warp - 1) * ((splits + at_once - 1) / at_once) >= kLeastSpared;
}

}  // namespace

KernelStatus check_supported(const Kernel& kernel, const OpParams& op, const LaunchContext& context,
                             KernelMessage* message) {
  if (const KernelStatus s = check_features(kernel, op, message); s != KernelStatus::kOk) return s;
  const AttentionParams& p = op.attention;
  if (const KernelStatus s = check_attention_args(kernel, p, message); s != KernelStatus::kOk) return s;
  const auto unsupported = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kUnsupported, format, kernel.name, args...);
  };
  if (const KernelStatus s = hopper::check_shapes(kernel, p, context, message); s != KernelStatus::kOk) {
    return s;
  }
  if (p.dtype_k == DType::kInt8 && p.head_dim == 64) {
    return unsupported("%s: head_dim 128 or 256 required for KV in int8, given 64");
  }
  if ((p.features & kInt8K) && !(p.features & kInt8V)) {
    return unsupported("%s: V in int8 required beside K in int8, given %s", dtype_name(p.dtype_v));
  }
  if (max_rows(p) > kMaxRows) {
    return unsupported(
        "%s: at most %d query rows per KV head (max_seqlen_q * num_heads_q / num_heads_kv) "
        "required, "
        "given %lld",
        kMaxRows, static_cast<long long>(max_rows(p)));
  }
  if ((p.features & kPagedKv) && p.block_size % 16 != 0) {
    return unsupported("%s: block_size a multiple of 16 required, given %d", p.block_size);
  }
  if (const KernelStatus s = check_append(kernel, p, message); s != KernelStatus::kOk) return s;
  const Instance* instance = find_instance(p, Use::kLong);
  if (instance == nullptr) {
    return unsupported("%s: no instantiation for %s, KV in %s, head_dim %d, %lld query rows per KV head",
                       dtype_name(p.dtype_out), dtype_name(p.dtype_k), p.head_dim,
                       static_cast<long long>(max_rows(p)));
  }
  const int64_t units = guess(*instance, p, context, kDivision).most_units;
  if (units > 1 << 30) {
    return unsupported("%s: at most 2^30 tiles of 64 keys required, given up to %lld",
                       static_cast<long long>(units));
  }
  return hopper::check_strides(kernel, p, message, instance->kv_chunk_bytes);
}

const Instance* find_instance(const AttentionParams& p, Use use) {
  return find_instance_for(max_rows(p), p, use);
}

const Instance* choose_instance(const AttentionParams& p, const LaunchContext& context) {
  const Instance* const found = find_instance(p, Use::kLong);
  if (found == nullptr || !found->first_waits || found->use != Use::kAll) return found;
  const Instance* const shares =
      sharing_pays(*found, p, context) ? find_instance_for(found->rows + 1, p, Use::kAll) : nullptr;
  return shares != nullptr ? shares : found;
}

KernelStatus make_launch(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                         const Division& division, KernelMessage* message, Launch* launch) {
  if (const KernelStatus s = check_attention_pointers(kAttention, p, message); s != KernelStatus::kOk)
    return s;
  const Alignment pointers[] = {{"q", p.q, 16},
                                {"k", p.k, 16},
                                {"v", p.v, 16},
                                {"out", p.out, 16},
                                {"k_new", p.k_new, 4},
                                {"v_new", p.v_new, 4},
                                {"cos", p.rotary.cos, 16},
                                {"sin", p.rotary.sin, 16}};
  if (const KernelStatus s = check_alignment(kAttention, pointers, message); s != KernelStatus::kOk) return s;
  const Guess g = guess(instance, p, context, division);
  const Workspace w = workspace_of(p, g);
  if (const KernelStatus s = check_workspace(kAttention, w.bytes, context, message); s != KernelStatus::kOk)
    return s;

  KernelParams& k = launch->params;
  k = {};
  k.attention = p;
  k.cu_seqlens_q = p.cu_seqlens_q;
  k.batch = p.batch;
  k.max_seqlen_q = p.max_seqlen_q;
  k.max_seqlen_k = p.max_seqlen_k;
  k.block_table = p.features & kPagedKv ? p.block_table : nullptr;
  k.block_table_stride = p.block_table_stride;
  k.block_size = std::max(p.block_size, 1);
  k.k_end = p.seqused_k != nullptr ? p.seqused_k : p.cu_seqlens_k + 1;
  k.k_begin = p.seqused_k != nullptr ? nullptr : p.cu_seqlens_k;
  k.kv_row = p.features & kPackedKv ? p.cu_seqlens_k : p.features & kContiguousKv ? p.cache_leftpad : nullptr;
  k.kv_block = p.features & kContiguousKv ? p.cache_batch_idx : nullptr;
  k.block_step = p.features & kContiguousKv ? 1 : 0;
  k.q_chunks = static_cast<int32_t>(p.head_dim * dtype_size(p.dtype_q) / hopper::kChunkBytes);
  k.group = p.num_heads_q / p.num_heads_kv;
  k.max_rows = static_cast<int32_t>(max_rows(p));
  k.parts = g.parts;
  k.min_units = division.min_units;
  k.segment_cost = division.segment_cost;
  k.unit_shift = division.unit_shift;
  k.split_every_unit = division.split_every_unit ? 1 : 0;
  k.partials = g.partials;
  k.most_keys = division.split_every_unit ? p.max_seqlen_k : INT32_MAX;
  k.window_left = std::min(p.window_left, kFar);
  k.by_group = Divisor(k.group);
  k.by_parts = Divisor(k.parts);
  k.by_block_size = Divisor(k.block_size);
  k.by_guessed_sequence_units = Divisor(static_cast<uint32_t>(g.sequence_units));
  k.box_rows = box_rows(instance, p);
  k.box_shift = std::countr_zero(static_cast<uint32_t>(k.box_rows));
  k.guessed_sequence_units = static_cast<int32_t>(g.sequence_units);
  k.guessed_partition = make_partition(static_cast<int32_t>(g.total_units), g.parts, k.by_parts,
                                       division.min_units, division.segment_cost);
  k.guess_is_usable = g.tiles > 0 && division.segment_cost == 0 && p.max_seqlen_q > 0;
  k.guessed_first_tile = g.first_tile;
  const bool softcap = p.softcap > 0.0f;
  k.tanh_factor = softcap ? 2.0f * kLog2E * p.softmax_scale / p.softcap : 0.0f;
  k.score_factor = (softcap ? p.softcap : p.softmax_scale) * kLog2E;
  auto* workspace = static_cast<unsigned char*>(context.workspace);
  k.counters = reinterpret_cast<uint32_t*>(workspace);
  k.steps = k.counters + int64_t{g.partials} * p.num_heads_kv;
  k.step_ns = step_ns(context.multiprocessors, hopper::rates_of(context));
  k.state_out = reinterpret_cast<float*>(workspace + w.states);
  k.state_lse = reinterpret_cast<float*>(workspace + w.state_lse);
  k.partial_lse = reinterpret_cast<float*>(workspace + w.partial_lse);
  k.partial_out = reinterpret_cast<float*>(workspace + w.partial_out);

  Maps& maps = launch->maps;
  if (!hopper::encode_q_map(&maps.q, p, k.group, std::max(p.max_seqlen_q, 1)) ||
      !encode_kv_map(&maps.k, &k.k_rows, instance, p, p.k, p.k_stride_block, p.k_stride_token,
                     p.k_stride_head) ||
      !encode_kv_map(&maps.v, &k.v_rows, instance, p, p.v, p.v_stride_block, p.v_stride_token,
                     p.v_stride_head)) {
    return refuse(message, KernelStatus::kDeviceError, "sm90_decode: the driver refused a tensor map");
  }
  return KernelStatus::kOk;
}

KernelStatus launch_instance(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                             const Division& division, KernelMessage* message, cudaEvent_t started) {
  if (launches_nothing(p)) return KernelStatus::kOk;
  Launch l;
  if (const KernelStatus s = make_launch(instance, p, context, division, message, &l);
      s != KernelStatus::kOk) {
    return s;
  }
  const auto stream = static_cast<cudaStream_t>(context.stream);
  const cudaError_t error = instance.launch(l.maps, l.params, stream, started);
  if (error != cudaSuccess) {
    return refuse(message, KernelStatus::kDeviceError, "sm90_decode: %s", cudaGetErrorString(error));
  }
  return KernelStatus::kOk;
}

const Kernel kAttention{
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic,
    .name = "sm90_decode",
    .summary =
        "Hopper decode: TMA ring, mma.sync, equal parts over ragged lengths; merges and appends in its "
        "launch",
    .shapes =
        "head_dim 64, 128, 256; block_size a multiple of 16; up to 64 query rows per KV head, 16 with append",
    .op = Op::kAttention,
    .device = DeviceKind::kCuda,
    .min_compute_capability = 90,
    .features = kPackedKv | kPagedKv | kContiguousKv | kHnd | kCausal | kWindow | kSoftcap | kSinks | kBf16 |
                kFp16 | kE4m3Kv | kE4m3Q | kInt8K | kInt8V | kPartialKv | kAppend | kRotary,
    .supports = supports,
    .numerics = numerics,
    .workspace_bytes = workspace_bytes,
    .plan = plan,
    .launch = launch,
    .instances = kInstanceRows,
};

const Kernel kFixedAttention{
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant | kPagingInvariant,
    .name = "sm90_decode_fixed",
    .summary = "Hopper decode, batch invariant: sm90_decode with sequences cut at fixed places",
    .shapes = "head_dim 64, 128, 256; block_size a multiple of 16; up to 16 query rows per KV head",
    .op = Op::kAttention,
    .device = DeviceKind::kCuda,
    .min_compute_capability = 90,
    .features = kPackedKv | kPagedKv | kContiguousKv | kHnd | kCausal | kWindow | kSoftcap | kSinks | kBf16 |
                kFp16 | kE4m3Kv | kE4m3Q | kInt8K | kInt8V | kPartialKv | kAppend | kRotary,
    .supports = fixed_supports,
    .numerics = numerics,
    .workspace_bytes = fixed_workspace_bytes,
    .plan = fixed_plan,
    .launch = fixed_launch,
};

}  // namespace attnbench::sm90_decode
