// Host side: what the kernel supports, its workspace, and a launch.
#include <algorithm>
#include <cstddef>

#include "kernels/common/checks.h"
#include "kernels/common/score.h"
#include "kernels/cuda/common/attention_host.h"
#include "kernels/cuda/common/partition.cuh"
#include "kernels/cuda/common/plans.h"
#include "kernels/cuda/sm90_mla/instances.h"
#include "kernels/cuda/sm90_mla/sm90_mla.h"

namespace attnbench::sm90_mla {
namespace {

constexpr int kMaxRows = 512;
constexpr int kMaxTileRows = 64;
constexpr int kSegmentCost = 3;  ///< queries, a partial result and its merge take as long as three tiles
constexpr int kSharesSlack = 4;  ///< a part that has splits of two sequences merges twice
constexpr int64_t kMostUnits = 1 << 30;

#define INSTANCE(name, ...) &instances::bf16_##name, &instances::fp16_##name,
constexpr const Instance* kInstances[] = {
#include "kernels/cuda/sm90_mla/instances.def"
};
#undef INSTANCE
#define INSTANCE(name, ...) #name " " #__VA_ARGS__ "\n"
constexpr const char* kInstanceRows =
#include "kernels/cuda/sm90_mla/instances.def"
    ;
#undef INSTANCE

/// How the query rows of a sequence and KV head are cut into row tiles (params.h).
struct RowTiles {
  int32_t heads;            ///< of a tile
  int32_t tokens;           ///< of a tile
  int32_t tiles_per_token;  ///< 1 if a tile has all heads
  int32_t count;            ///< of the longest sequence
};

RowTiles row_tiles(const AttentionParams& p) {
  const int32_t group = p.num_heads_q / p.num_heads_kv;
  const int32_t longest = std::max(p.max_seqlen_q, 1);
  RowTiles r{};
  r.heads = std::min(group, kMaxTileRows);
  r.tiles_per_token = (group + r.heads - 1) / r.heads;
  r.tokens = std::min(kMaxTileRows / r.heads, longest);
  r.count = (longest + r.tokens - 1) / r.tokens * r.tiles_per_token;
  return r;
}

/// The instance for `p`, null if its type of q has none.
const Instance* find_instance(const AttentionParams& p) {
  for (const Instance* i : kInstances) {
    if (i->dtype == p.dtype_q) return i;
  }
  return nullptr;
}

/// The grid, and the most units that a line may have.
struct Grid {
  int32_t row_tiles;
  int32_t partial_rows;
  int32_t lines;
  int32_t parts;
  int64_t most_units;
};

Grid grid_of(const AttentionParams& p, const LaunchContext& context) {
  Grid g{};
  const RowTiles rows = row_tiles(p);
  g.row_tiles = rows.count;
  g.partial_rows = (rows.heads * rows.tokens + 15) / 16 * 16;
  g.lines = g.row_tiles * p.num_heads_kv;
  const int32_t tiles = (p.max_seqlen_k + kTileKeys - 1) / kTileKeys;
  g.most_units = int64_t{hopper::sequence_units(std::max(p.max_seqlen_q, 1), tiles, kSegmentCost)} * p.batch;
  const int64_t parts = std::max(context.multiprocessors / g.lines, 1);
  g.parts = static_cast<int32_t>(std::clamp<int64_t>(g.most_units, 1, parts));
  return g;
}

/// Offsets and sizes in the workspace, in bytes. A plan sets the counters to zero.
struct Workspace {
  std::size_t counters_bytes;
  std::size_t partial_lse;
  std::size_t partial_out;
  std::size_t bytes;
};

Workspace workspace_of(const Grid& g) {
  constexpr std::size_t kAlign = 256;
  const auto aligned = [](std::size_t n) { return (n + kAlign - 1) / kAlign * kAlign; };
  const std::size_t partials = g.parts > 1 ? std::size_t{2} * g.lines * g.parts : 0;
  Workspace w{};
  w.counters_bytes = aligned(partials * sizeof(uint32_t));
  w.partial_lse = w.counters_bytes;
  w.partial_out = w.partial_lse + aligned(partials * g.partial_rows * sizeof(float));
  w.bytes = w.partial_out + partials * g.partial_rows * kValueChannels * sizeof(float);
  return w;
}

KernelStatus supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  if (const KernelStatus s = check_features(kAttention, *op, message); s != KernelStatus::kOk) return s;
  const AttentionParams& p = op->attention;
  if (const KernelStatus s = check_attention_args(kAttention, p, message); s != KernelStatus::kOk) return s;
  const auto unsupported = [&](const char* format, auto... args) {
    return refuse(message, KernelStatus::kUnsupported, format, args...);
  };
  if (const KernelStatus s = hopper::check_basics(kAttention, p, *context, message); s != KernelStatus::kOk) {
    return s;
  }
  if (p.head_dim != kKeyChannels || p.head_dim_v != kValueChannels || !(p.features & kVIsK)) {
    return unsupported("sm90_mla: head_dim %d, head_dim_v %d and v_is_k_view required, given %d, %d and %s",
                       kKeyChannels, kValueChannels, p.head_dim, p.head_dim_v,
                       p.features & kVIsK ? "a view" : "values of their own");
  }
  const int64_t rows = int64_t{std::max(p.max_seqlen_q, 1)} * (p.num_heads_q / p.num_heads_kv);
  if (rows > kMaxRows) {
    return unsupported(
        "sm90_mla: at most %d query rows per KV head (max_seqlen_q * num_heads_q / num_heads_kv) required, "
        "given %lld",
        kMaxRows, static_cast<long long>(rows));
  }
  if ((p.features & kPagedKv) && p.block_size % 16 != 0) {
    return unsupported("sm90_mla: block_size a multiple of 16 required, given %d", p.block_size);
  }
  const Instance* instance = find_instance(p);
  if (instance == nullptr) return unsupported("sm90_mla: no instantiation for %s", dtype_name(p.dtype_q));
  const Grid g = grid_of(p, *context);
  if (g.most_units > kMostUnits) {
    return unsupported("sm90_mla: at most 2^30 tiles of 64 keys required, given up to %lld",
                       static_cast<long long>(g.most_units));
  }
  return hopper::check_strides(kAttention, p, message);
}

Numerics numerics(const OpParams* op) {
  return {.p_type = op->attention.dtype_q, .acc_type = DType::kFp32, .exp_rel_err = 0x1p-22};
}

std::size_t workspace_bytes(const OpParams* op, const LaunchContext* context) {
  if (find_instance(op->attention) == nullptr) return 0;
  return workspace_of(grid_of(op->attention, *context)).bytes;
}

hopper::Plans& plans() {
  static hopper::Plans all;
  return all;
}

KernelStatus plan(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const Workspace w = workspace_of(grid_of(op->attention, *context));
  if (const KernelStatus s = check_workspace(kAttention, w.bytes, *context, message);
      s != KernelStatus::kOk) {
    return s;
  }
  if (w.counters_bytes == 0) return KernelStatus::kOk;
  const cudaError_t error =
      cudaMemsetAsync(context->workspace, 0, w.counters_bytes, static_cast<cudaStream_t>(context->stream));
  if (error != cudaSuccess) {
    return refuse(message, KernelStatus::kDeviceError, "sm90_mla: %s", cudaGetErrorString(error));
  }
  plans().set(context->workspace, {w.counters_bytes, 0, context->stream});
  return KernelStatus::kOk;
}

bool encode_maps(Maps* maps, const KernelParams& k, const AttentionParams& p) {
  const uint64_t row_bytes = p.k_stride_token * dtype_size(p.dtype_k);
  const uint64_t row_chunks = hopper::row_chunks_of(p, p.dtype_k, k.kv_rows, p.head_dim);
  const void* keys = p.k != nullptr ? p.k : p.q;  // without keys the map is not used, but needs an address
  bool done = hopper::encode_q_map(&maps->q, p, k.tile_heads, k.tile_tokens);
  for (const int part : {0, kRest}) {
    const auto chunks = static_cast<uint32_t>(part_chunks(part));
    Maps::Keys& of_part = part == kRest ? maps->rest : maps->half;
    done = done &&
           hopper::encode_grouped_map(&of_part.rows, p.dtype_k, keys, row_bytes, row_chunks, k.box_rows,
                                      chunks) &&
           hopper::encode_row_window_map(&of_part.tail, p.dtype_k, keys, row_bytes, row_chunks,
                                         hopper::kGroupRows, chunks);
  }
  return done;
}

KernelParams params_of(const AttentionParams& p, const LaunchContext& context) {
  const RowTiles tiles = row_tiles(p);
  const Grid g = grid_of(p, context);
  const Workspace w = workspace_of(g);
  const bool packed = p.features & kPackedKv, contiguous = p.features & kContiguousKv;
  KernelParams k{};
  k.attention = p;
  k.k_end = p.seqused_k != nullptr ? p.seqused_k : p.cu_seqlens_k + 1;
  k.k_begin = p.seqused_k != nullptr ? nullptr : p.cu_seqlens_k;
  k.kv_row = packed ? p.cu_seqlens_k : contiguous ? p.cache_leftpad : nullptr;
  k.kv_block = contiguous ? p.cache_batch_idx : nullptr;
  k.block_step = contiguous ? 1 : 0;
  k.block_table = p.features & kPagedKv ? p.block_table : nullptr;
  k.box_rows = kTileKeys;
  while (k.block_table != nullptr && p.block_size % k.box_rows != 0) k.box_rows /= 2;
  k.by_block_size = Divisor(std::max(p.block_size, 1));
  k.kv_rows = hopper::kv_rows_of(p, p.dtype_k, p.k_stride_block, p.k_stride_token, p.k_stride_head);
  k.group = p.num_heads_q / p.num_heads_kv;
  k.tile_heads = tiles.heads;
  k.tile_tokens = tiles.tokens;
  k.tiles_per_token = tiles.tiles_per_token;
  k.by_tile_heads = Divisor(tiles.heads);
  k.by_tiles_per_token = Divisor(tiles.tiles_per_token);
  k.partial_rows = g.partial_rows;
  k.row_tiles = g.row_tiles;
  k.by_row_tiles = Divisor(g.row_tiles);
  k.parts = g.parts;
  k.segment_cost = kSegmentCost;
  k.by_parts = Divisor(g.parts);
  k.shares = hopper::make_shares(p.batch, g.parts);
  k.shares_slack = kSharesSlack;
  k.score_factor = p.softmax_scale * kLog2E;
  auto* workspace = static_cast<unsigned char*>(context.workspace);
  k.arrivals = reinterpret_cast<uint32_t*>(workspace);
  k.partial_lse = reinterpret_cast<float*>(workspace + w.partial_lse);
  k.partial_out = reinterpret_cast<float*>(workspace + w.partial_out);
  return k;
}

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const AttentionParams& p = op->attention;
  if (p.batch == 0 || p.total_q == 0) return KernelStatus::kOk;
  if (const KernelStatus s = check_attention_pointers(kAttention, p, message); s != KernelStatus::kOk)
    return s;
  const Alignment pointers[] = {{"q", p.q, 16}, {"k", p.k, 16}, {"out", p.out, 16}};
  if (const KernelStatus s = check_alignment(kAttention, pointers, message); s != KernelStatus::kOk) return s;
  const Instance& instance = *find_instance(p);
  const Workspace w = workspace_of(grid_of(p, *context));
  if (const KernelStatus s = check_workspace(kAttention, w.bytes, *context, message);
      s != KernelStatus::kOk) {
    return s;
  }
  if (w.counters_bytes > 0) {
    if (const KernelStatus s =
            plans().check(kAttention, {w.counters_bytes, 0, context->stream}, *context, message);
        s != KernelStatus::kOk) {
      return s;
    }
  }
  const KernelParams params = params_of(p, *context);
  Maps maps{};
  if (!encode_maps(&maps, params, p)) {
    return refuse(message, KernelStatus::kDeviceError, "sm90_mla: the driver refused a tensor map");
  }
  const cudaError_t error = instance.launch(maps, params, static_cast<cudaStream_t>(context->stream));
  if (error != cudaSuccess) {
    return refuse(message, KernelStatus::kDeviceError, "sm90_mla: %s", cudaGetErrorString(error));
  }
  return KernelStatus::kOk;
}

}  // namespace

const Kernel kAttention{
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic,
    .name = "sm90_mla",
    .summary = "Hopper decode of latent (MLA) caches: each row is read once as key and value; wgmma",
    .shapes =
        "head_dim 576, head_dim_v 512 as a view of K; block_size a multiple of 16; up to 512 query rows per "
        "KV head",
    .op = Op::kAttention,
    .device = DeviceKind::kCuda,
    .min_compute_capability = 90,
    .features = kPackedKv | kPagedKv | kContiguousKv | kHnd | kCausal | kBf16 | kFp16 | kPartialKv |
                kHeadDimV | kVIsK,
    .supports = supports,
    .numerics = numerics,
    .workspace_bytes = workspace_bytes,
    .plan = plan,
    .launch = launch,
    .instances = kInstanceRows,
};

}  // namespace attnbench::sm90_mla
