#include "kernels/cuda/sm90_decode/launch.h"

#include <algorithm>

#include "kernels/common/checks.h"
#include "kernels/common/mask.h"
#include "kernels/common/score.h"
#include "kernels/cuda/common/tensor_map.h"
#include "kernels/cuda/sm90_decode/sm90_decode.h"
#include "kernels/cuda/sm90_decode/workspace.h"

namespace attnbench::sm90_decode {
namespace {

constexpr int kMaxRows = 64;
constexpr Division kDivision{};

/// Batch invariant: 16 tiles, so that a sequence's splits are 1,024 keys (e4m3 of head_dim 128: 2,048).
constexpr Division kFixedDivision{.unit_shift = 4, .split_every_unit = true};
constexpr int kFixedRows = 16;  ///< of one instantiation, which must not depend on the batch either
constexpr int kAppendRows = 16;

#define INSTANCE(name, ...) &instances::bf16_##name, &instances::fp16_##name,
constexpr const Instance* kInstances[] = {
#include "kernels/cuda/sm90_decode/instances.def"
};
#undef INSTANCE
#define INSTANCE(name, ...) " " #name
constexpr const char* kInstanceNames =
#include "kernels/cuda/sm90_decode/instances.def"
    ;
#undef INSTANCE

bool launches_nothing(const AttentionParams& p) {
  const bool appends = (p.features & kAppend) && p.total_new > 0;
  return p.batch == 0 || (p.total_q == 0 && !appends);
}

/// Keys per copy: a whole tile where blocks allow it.
int32_t box_rows(const Instance& instance, const AttentionParams& p) {
  if ((p.features & kPagedKv) == 0) return instance.tile_tokens;
  const int32_t rows = p.block_size % 64 == 0 ? 64 : p.block_size % 32 == 0 ? 32 : 16;
  return std::min(rows, instance.tile_tokens);
}

/// Whether the instance may be chosen for `p`, which may have those for `use`.
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

/// A map of K or V; `rows` says how its coordinates count blocks and heads.
/// e4m3 rows travel as 16-bit words, two channels each.
bool encode_kv_map(CUtensorMap* map, KvRows* rows, const Instance& instance, const AttentionParams& p,
                   const void* base, int64_t stride_block, int64_t stride_token, int64_t stride_head) {
  const int64_t chunk_channels = hopper::kChunkBytes / static_cast<int64_t>(dtype_size(p.dtype_k));
  const auto chunks = static_cast<uint32_t>(p.head_dim / chunk_channels);
  rows->block_rows = p.features & kPackedKv ? 0 : static_cast<int32_t>(stride_block / stride_token);
  rows->head_chunks = static_cast<int32_t>(stride_head / chunk_channels);
  const uint64_t row_chunks = (p.num_heads_kv - 1) * static_cast<uint64_t>(rows->head_chunks) + chunks;
  const int32_t keys = box_rows(instance, p);
  if (base == nullptr) base = p.q;  // no sequence has keys; the map is not used, but must have an address
  return hopper::encode_row_window_map(map, p.dtype_k, base, stride_token * dtype_size(p.dtype_k), row_chunks,
                                       keys,
                                       instance.chunk_copies && keys < instance.tile_tokens ? 1 : chunks);
}

/// (64 channels, head, token, chunk): a box is one chunk of the rows that the longest sequence has.
bool encode_q_map(CUtensorMap* map, const AttentionParams& p) {
  const uint64_t element = dtype_size(p.dtype_q);
  const uint64_t dims[4] = {hopper::kChunkChannels, static_cast<uint64_t>(p.num_heads_q),
                            static_cast<uint64_t>(std::max<int64_t>(p.total_q, 1)),
                            static_cast<uint64_t>(p.head_dim / hopper::kChunkChannels)};
  const uint64_t strides[3] = {p.q_stride_head * element, p.q_stride_token * element, hopper::kChunkBytes};
  // Without any row it is not used, but must have an address and a row.
  const void* base = p.q != nullptr ? p.q : p.k;
  const uint32_t box[4] = {hopper::kChunkChannels, static_cast<uint32_t>(p.num_heads_q / p.num_heads_kv),
                           static_cast<uint32_t>(std::max(p.max_seqlen_q, 1)), 1};
  return hopper::encode_map(map, p.dtype_q, base, dims, strides, box);
}

KernelStatus check_strides(const AttentionParams& p, KernelMessage* message) {
  const auto bad = [&](const char* what, int64_t required, int64_t given) {
    return refuse(message, KernelStatus::kUnsupported,
                  "sm90_decode: %s a positive multiple of %lld required, given %lld", what,
                  static_cast<long long>(required), static_cast<long long>(given));
  };
  const auto element = static_cast<int64_t>(dtype_size(p.dtype_k));
  const int64_t unit = 16 / element, chunk = hopper::kChunkBytes / element;
  const struct {
    const char* name;
    int64_t value;
    int64_t multiple;
  } strides[] = {
      {"q_stride_token", p.q_stride_token, 8},     {"q_stride_head", p.q_stride_head, 8},
      {"k_stride_token", p.k_stride_token, unit},  {"k_stride_head", p.k_stride_head, chunk},
      {"v_stride_token", p.v_stride_token, unit},  {"v_stride_head", p.v_stride_head, chunk},
      {"out_stride_token", p.out_stride_token, 8}, {"out_stride_head", p.out_stride_head, 8},
  };
  for (const auto& s : strides) {
    if (s.value <= 0 || s.value % s.multiple != 0) return bad(s.name, s.multiple, s.value);
  }
  if (p.features & kPackedKv) return KernelStatus::kOk;
  const struct {
    const char* name;
    int64_t block;
    int64_t token;
  } blocks[] = {{"k_stride_block", p.k_stride_block, p.k_stride_token},
                {"v_stride_block", p.v_stride_block, p.v_stride_token}};
  for (const auto& s : blocks) {
    if (s.block % s.token != 0) return bad(s.name, s.token, s.block);
    if (s.block / s.token * p.num_blocks > INT32_MAX - kFar) {
      return refuse(message, KernelStatus::kUnsupported,
                    "sm90_decode: at most %d rows in the pool required, given %lld", INT32_MAX - kFar,
                    static_cast<long long>(s.block / s.token * p.num_blocks));
    }
  }
  return KernelStatus::kOk;
}

/// What appending asks for beside what the contract asks for: new rows are read in words of two channels.
KernelStatus check_append(const AttentionParams& p, KernelMessage* message) {
  if ((p.features & kAppend) == 0) return KernelStatus::kOk;
  if (max_rows(p) > kAppendRows) {
    return refuse(
        message, KernelStatus::kUnsupported,
        "sm90_decode: at most %d query rows per KV head (max_seqlen_q * num_heads_q / num_heads_kv) "
        "required for append, given %lld",
        kAppendRows, static_cast<long long>(max_rows(p)));
  }
  const struct {
    const char* name;
    int64_t value;
  } strides[] = {{"k_new_stride_token", p.k_new_stride_token},
                 {"k_new_stride_head", p.k_new_stride_head},
                 {"v_new_stride_token", p.v_new_stride_token},
                 {"v_new_stride_head", p.v_new_stride_head}};
  for (const auto& s : strides) {
    if (s.value % 2 != 0) {
      return refuse(message, KernelStatus::kUnsupported, "sm90_decode: an even %s required, given %lld",
                    s.name, static_cast<long long>(s.value));
    }
  }
  const int dim = p.rotary.dim;
  if ((p.features & kRotary) && (dim < 16 || (dim & (dim - 1)) != 0)) {
    return refuse(message, KernelStatus::kUnsupported,
                  "sm90_decode: a rotary dim of 16, 32, 64, 128 or 256 required, given %d", dim);
  }
  return KernelStatus::kOk;
}

KernelStatus supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  if (const KernelStatus s = check_features(kAttention, *op, message); s != KernelStatus::kOk) return s;
  const AttentionParams& p = op->attention;
  if (const KernelStatus s = check_attention_args(kAttention, p, message); s != KernelStatus::kOk) return s;
  const auto unsupported = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kUnsupported, format, args...);
  };
  if (context->compute_capability != 90) {
    return unsupported("sm90_decode: compute capability 90 required, given %d", context->compute_capability);
  }
  if (p.head_dim != 64 && p.head_dim != 128 && p.head_dim != 256) {
    return unsupported("sm90_decode: head_dim 64, 128 or 256 required, given %d", p.head_dim);
  }
  if ((p.features & kE4m3Kv) && p.head_dim == 64) {
    return unsupported("sm90_decode: head_dim 128 or 256 required for e4m3 KV, given 64");
  }
  if (max_rows(p) > kMaxRows) {
    return unsupported(
        "sm90_decode: at most %d query rows per KV head (max_seqlen_q * num_heads_q / num_heads_kv) "
        "required, "
        "given %lld",
        kMaxRows, static_cast<long long>(max_rows(p)));
  }
  if (p.dtype_out != p.dtype_q) {
    return unsupported("sm90_decode: dtype_out %s required, given %s", dtype_name(p.dtype_q),
                       dtype_name(p.dtype_out));
  }
  if ((p.features & kPagedKv) && p.block_size % 16 != 0) {
    return unsupported("sm90_decode: block_size a multiple of 16 required, given %d", p.block_size);
  }
  if (!(p.softmax_scale > 0.0f)) {
    return unsupported("sm90_decode: softmax_scale > 0 required, given %g",
                       static_cast<double>(p.softmax_scale));
  }
  if (p.max_seqlen_k >= kFar) {
    return unsupported("sm90_decode: lengths below %d required, given %d", kFar, p.max_seqlen_k);
  }
  if (const KernelStatus s = check_append(p, message); s != KernelStatus::kOk) return s;
  const Instance* instance = find_instance(p, Use::kLong);
  if (instance == nullptr) {
    return unsupported("sm90_decode: no instantiation for %s, head_dim %d", dtype_name(p.dtype_q),
                       p.head_dim);
  }
  const int64_t units = guess(*instance, p, *context, kDivision).most_units;
  if (units > 1 << 30) {
    return unsupported("sm90_decode: at most 2^30 tiles of 64 keys required, given up to %lld",
                       static_cast<long long>(units));
  }
  return check_strides(p, message);
}

Numerics numerics(const OpParams* op) {
  const bool e4m3 = op->attention.features & kE4m3Kv;
  return {.p_type = e4m3 ? DType::kFp16 : op->attention.dtype_q,
          .acc_type = DType::kFp32,
          .exp_rel_err = 0x1p-22};
}

KernelStatus fixed_supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  if (const KernelStatus s = supports(op, context, message); s != KernelStatus::kOk) return s;
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
  const Instance* instance = find_instance(op->attention, Use::kLong);
  return instance == nullptr ? 0 : workspace_bytes_of(*instance, op->attention, *context, kDivision);
}

KernelStatus plan(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return plan_instance(*find_instance(op->attention, Use::kLong), op->attention, *context, kDivision,
                       message);
}

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return launch_planned(*find_instance(op->attention, Use::kLong), op->attention, *context, kDivision,
                        message);
}

}  // namespace

const Instance* find_instance(const AttentionParams& p, Use use) {
  for (const Instance* i : kInstances) {
    if (i->append == ((p.features & kAppend) != 0) && i->dtype == p.dtype_q &&
        i->eight_bit_kv == (p.dtype_k == DType::kE4m3) && i->head_dim == p.head_dim &&
        i->rows >= max_rows(p) && is_for(*i, p, use)) {
      return i;
    }
  }
  return nullptr;
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
  if (const KernelStatus s = check_workspace(w, context, message); s != KernelStatus::kOk) return s;

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
  k.state_out = reinterpret_cast<float*>(workspace + w.states);
  k.state_lse = reinterpret_cast<float*>(workspace + w.state_lse);
  k.partial_lse = reinterpret_cast<float*>(workspace + w.partial_lse);
  k.partial_out = reinterpret_cast<float*>(workspace + w.partial_out);

  Maps& maps = launch->maps;
  if (!encode_q_map(&maps.q, p) ||
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
                kFp16 | kE4m3Kv | kPartialKv | kAppend | kRotary,
    .supports = supports,
    .numerics = numerics,
    .workspace_bytes = workspace_bytes,
    .plan = plan,
    .launch = launch,
    .instances = kInstanceNames,
};

const Kernel kFixedAttention{
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant,
    .name = "sm90_decode_fixed",
    .summary = "Hopper decode, batch invariant: sm90_decode with sequences cut at fixed places",
    .shapes = "head_dim 64, 128, 256; block_size a multiple of 16; up to 16 query rows per KV head",
    .op = Op::kAttention,
    .device = DeviceKind::kCuda,
    .min_compute_capability = 90,
    .features = kPackedKv | kPagedKv | kContiguousKv | kHnd | kCausal | kWindow | kSoftcap | kSinks | kBf16 |
                kFp16 | kE4m3Kv | kPartialKv | kAppend | kRotary,
    .supports = fixed_supports,
    .numerics = numerics,
    .workspace_bytes = fixed_workspace_bytes,
    .plan = fixed_plan,
    .launch = fixed_launch,
    .instances = kInstanceNames,
};

}  // namespace attnbench::sm90_decode
