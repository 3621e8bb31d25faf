#include "kernels/cuda/sm90_prefill/launch.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "kernels/common/checks.h"
#include "kernels/common/score.h"
#include "kernels/cuda/common/attention_host.h"
#include "kernels/cuda/common/plans.h"
#include "kernels/cuda/sm90_prefill/cascade.h"
#include "kernels/cuda/sm90_prefill/merge_splits.h"
#include "kernels/cuda/sm90_prefill/prepare.h"
#include "kernels/cuda/sm90_prefill/requirements.h"
#include "kernels/cuda/sm90_prefill/sm90_prefill.h"
#include "kernels/cuda/sm90_prefill/split.h"

namespace attnbench::sm90_prefill {
namespace {

#define HEAD_DIMS "64, 96, 128, 192, 256, or 192 with head_dim_v 128"
#define INSTANCE(name, ...) #name " " #__VA_ARGS__ "\n"
constexpr const char* kInstanceRows =
#include "kernels/cuda/sm90_prefill/instances.def"
    ;
#undef INSTANCE

/// The parts of the workspace, as offsets in bytes; `suffix_row` counts rows. The schedule is at 0. The others are
/// for splits.
struct Layout {
  std::size_t split_tiles;
  std::size_t partial_sum;
  std::size_t partial_out;
  std::size_t bytes;
  int64_t suffix_row;        ///< KernelParams::suffix_row
  std::size_t absent_bytes;  ///< from partial_sum on: absent between launches
};

Layout layout_of(const Instance& instance, const AttentionParams& p, const LaunchContext& context) {
  Layout layout{};
  const int64_t states = instance.listed ? max_fixed_states(instance, p) : 0;
  layout.bytes = offsetof(Schedule, items) + (max_items(instance, p) + states) * sizeof(WorkItem);
  if (!instance.split) return layout;
  const auto align = [](std::size_t bytes) { return (bytes + 255) / 256 * 256; };
  int64_t rows = int64_t{kStateRounds} * context.multiprocessors * instance.block_m;
  if (instance.cascade) {
    const int head_tiles = num_head_tiles(instance, p);
    const int64_t tiles = p.total_q / tokens_per_tile(instance, p) + 1;
    layout.suffix_row =
        most_prefix_states(tiles, head_tiles, context.multiprocessors) * head_tiles * instance.block_m;
    rows = layout.suffix_row + p.total_q * p.num_heads_q;
  }
  if (instance.listed) {
    layout.split_tiles = align(layout.bytes);
    layout.bytes =
        layout.split_tiles + states / 2 * sizeof(SplitTile);  // a split tile has two states or more
    rows = states * num_head_tiles(instance, p) * instance.block_m;
  }
  if (instance.hands_over) layout.absent_bytes = layout.suffix_row * sizeof(float2);
  layout.partial_sum = align(layout.bytes);
  layout.partial_out = align(layout.partial_sum + rows * sizeof(float2));
  layout.bytes = layout.partial_out + rows * p.head_dim_v * sizeof(float);
  return layout;
}

/// Whether a launch needs no kernel before it, because blocks find all works by themselves. Arguments as for
/// make_launch.
bool launches_alone(const Instance& instance, const AttentionParams& p, int64_t kv_budget_bytes,
                    int32_t skip_q_len, bool draw_first) {
  if (instance.split) return !instance.listed;
  if (skip_q_len > 0 || draw_first) return false;
  return p.batch <= kMaxAloneSequences &&
         int64_t{p.batch} * p.max_seqlen_k * token_bytes(p) <= kv_budget_bytes;
}

/// The plans of launches without a kernel before them, whose counter must be zero before the first one, and sums
/// absent if they are handed over.
hopper::Plans& plans() {
  static hopper::Plans all;
  return all;
}

hopper::Plans::Plan required_plan(const Layout& layout, const LaunchContext& context) {
  return {sizeof(Schedule::next_work), layout.absent_bytes, context.stream};
}

/// Keys per copy: as many as possible where pages allow it, else the largest power of two that divides both.
int32_t box_rows(const Instance& instance, const AttentionParams& p) {
  if ((p.features & kPagedKv) == 0 || has_row_pages(p)) return instance.part_rows;
  int32_t rows = 1;
  while (instance.part_rows % (2 * rows) == 0 && p.block_size % (2 * rows) == 0) rows *= 2;
  return rows;
}

/// Log2 of the KV blocks in a window (PagesBefore): as many as never have more than 32 pages, aligned to
/// their number.
int32_t window_shift(const Instance& instance, const AttentionParams& p) {
  if ((p.features & kPagedKv) == 0) return 0;
  const int64_t page = p.block_size;
  for (int32_t shift = 0;; ++shift) {
    const int64_t keys = int64_t{instance.block_n} << (shift + 1);
    const int64_t pages = (keys + page - std::gcd(keys, page) + page - 1) / page;
    if (pages > 32 || keys > kFar) return shift;
  }
}

/// Encodes the maps of K or V. `rows` receives how their coordinates count blocks and heads.
bool encode_kv_maps(KvMaps* maps, KvRows* rows, const Instance& instance, const AttentionParams& p,
                    const void* base, DType dtype, int head_dim, int64_t stride_block, int64_t stride_token,
                    int64_t stride_head) {
  const auto chunk_bytes = static_cast<uint32_t>(instance.chunk_bytes);
  const uint32_t chunks = hopper::head_chunks_of(dtype, head_dim, chunk_bytes);
  *rows = hopper::kv_rows_of(p, dtype, stride_block, stride_token, stride_head, chunk_bytes);
  const uint64_t row_chunks = hopper::row_chunks_of(p, dtype, *rows, head_dim, chunk_bytes);
  if (base == nullptr) base = p.q;  // no sequence has keys: the map is not used, but must have an address
  const uint64_t row_bytes = stride_token * dtype_size(dtype);
  return hopper::encode_grouped_map(&maps->whole, dtype, base, row_bytes, row_chunks, box_rows(instance, p),
                                    chunks, chunk_bytes) &&
         hopper::encode_row_window_map(&maps->window, dtype, base, row_bytes, row_chunks, hopper::kGroupRows,
                                       chunks, chunk_bytes);
}

GatheredRows gathered_rows(const AttentionParams& p, const void* base, const KvRows& rows,
                           int64_t stride_token, int64_t stride_head) {
  const auto element = static_cast<int64_t>(dtype_size(p.dtype_k));
  return {static_cast<const uint8_t*>(base), rows.block_rows, static_cast<uint32_t>(stride_token * element),
          stride_head * element};
}

KvBases kv_bases_of(const AttentionParams& p, const KvRows& rows) {
  if (p.features & kPackedKv) return {p.cu_seqlens_k, nullptr, 0};
  if (p.features & kPagedKv) return {nullptr, nullptr, 1};
  return {p.cache_leftpad, p.cache_batch_idx, rows.block_rows};
}

KernelStatus supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return check_supported(kAttention, *op, *context, message);
}

const Instance* fixed_instance(const OpParams* op, const LaunchContext* context) {
  return choose_fixed_instance(op->attention, context->multiprocessors);
}

KernelStatus fixed_supports(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  if (const KernelStatus s = check_supported(kFixedAttention, *op, *context, message); s != KernelStatus::kOk)
    return s;
  const AttentionParams& p = op->attention;
  const Instance* instance = fixed_instance(op, context);
  const int64_t states = instance->listed ? max_fixed_states(*instance, p) : 0;
  if (states < kSuffixState) return KernelStatus::kOk;  // WorkItem::state counts them
  return refuse(
      message, KernelStatus::kUnsupported,
      "%s: fewer than %d partial states required, given up to %lld, by %d sequences of up to %d keys and "
      "%lld query tokens in all",
      kFixedAttention.name, int{kSuffixState}, static_cast<long long>(states), p.batch, p.max_seqlen_k,
      static_cast<long long>(p.total_q));
}

Numerics numerics(const OpParams* op) {
  const AttentionParams& p = op->attention;
  Numerics n{.p_type = p.dtype_out, .acc_type = DType::kFp32, .exp_rel_err = 0x1p-22};
  if ((p.features & kE4m3Kv) == 0) return n;
  n.p_type = p.dtype_q == DType::kE4m3 ? DType::kE4m3 : DType::kFp16;
  if (p.dtype_q != DType::kE4m3) return n;
  n.mma_roundoff = kE4m3Roundoff;
  n.p_scale = kE4m3LeastWeight;
  return n;
}

Tile tile(const OpParams* op) { return tile_of(find_instance(op->attention), op->attention); }

Tile fixed_tile(const OpParams* op) { return tile_of(choose_fixed_instance(op->attention), op->attention); }

std::size_t workspace_bytes(const OpParams* op, const LaunchContext* context) {
  const Instance* instance = choose_instance(op->attention, *context);
  return instance == nullptr ? 0 : workspace_bytes_of(*instance, op->attention, *context);
}

KernelStatus plan_checked(const Instance& instance, const OpParams& op, const LaunchContext& context,
                          KernelMessage* message) {
  const std::size_t bytes = workspace_bytes_of(instance, op.attention, context);
  if (const KernelStatus s = check_workspace(kAttention, bytes, context, message); s != KernelStatus::kOk)
    return s;
  return plan_instance(instance, op.attention, context, message);
}

KernelStatus plan(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return plan_checked(*choose_instance(op->attention, *context), *op, *context, message);
}

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return launch_instance(*choose_instance(op->attention, *context), op->attention, *context, kKvBudgetBytes,
                         0, message);
}

std::size_t fixed_workspace_bytes(const OpParams* op, const LaunchContext* context) {
  const Instance* instance = fixed_instance(op, context);
  return instance == nullptr ? 0 : workspace_bytes_of(*instance, op->attention, *context);
}

KernelStatus fixed_plan(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return plan_checked(*fixed_instance(op, context), *op, *context, message);
}

KernelStatus fixed_launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  return launch_instance(*fixed_instance(op, context), op->attention, *context, kKvBudgetBytes, 0, message);
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
  if (const KernelStatus s = hopper::check_basics(kernel, p, context, message); s != KernelStatus::kOk) {
    return s;
  }
  if (const KernelStatus s = check_int8(kernel, p, message); s != KernelStatus::kOk) return s;
  const Instance* instance = find_instance(p);
  if (instance == nullptr && has_row_pages(p) &&
      ((p.features & kE4m3Kv) || p.softcap > 0.0f ||
       (p.head_dim != 64 && p.head_dim != 128 && p.head_dim != 256))) {
    return unsupported(
        "%s: block_size a multiple of 8 required for e4m3 KV, softcap, and head_dim other than 64, 128 "
        "and 256, given %d",
        p.block_size);
  }
  if (instance == nullptr) {
    const char* required = p.features & kE4m3Kv ? "64, 128 or 256 for e4m3 KV"
                           : p.softcap > 0.0f   ? "64, 128 or 256 for softcap"
                                                : HEAD_DIMS;
    return unsupported("%s: head_dim %s required, given %d with head_dim_v %d", required, p.head_dim,
                       p.head_dim_v);
  }
  // With so few keys on the left the first visible key and the last one may lie in one group of rows, which
  // then comes row by row (KvLoader::copy_rows).
  if (instance->chunk_bytes < hopper::kChunkBytes && p.window_left >= 0 &&
      p.window_left + 1 < hopper::kGroupRows) {
    return unsupported("%s: window_left of %d or more, or -1, required for head_dim %d%s, given %d",
                       hopper::kGroupRows - 1, p.head_dim, p.features & kE4m3Kv ? " with e4m3 KV" : "",
                       p.window_left);
  }
  if (const KernelStatus s = hopper::check_strides(kernel, p, message, instance->chunk_bytes);
      s != KernelStatus::kOk) {
    return s;
  }
  return check_cache_rows(kernel, p, message);
}

std::size_t workspace_bytes_of(const Instance& instance, const AttentionParams& p,
                               const LaunchContext& context) {
  return layout_of(instance, p, context).bytes;
}

KernelStatus make_launch(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                         int64_t kv_budget_bytes, int32_t skip_q_len, bool draw_first, KernelMessage* message,
                         Launch* launch) {
  if (const KernelStatus s = check_attention_pointers(kAttention, p, message); s != KernelStatus::kOk)
    return s;
  const Alignment pointers[] = {{"q", p.q, 16}, {"k", p.k, 16}, {"v", p.v, 16}, {"out", p.out, 16}};
  if (const KernelStatus s = check_alignment(kAttention, pointers, message); s != KernelStatus::kOk) return s;
  const Layout layout = layout_of(instance, p, context);
  if (const KernelStatus s = check_workspace(kAttention, layout.bytes, context, message);
      s != KernelStatus::kOk) {
    return s;
  }
  const int heads = heads_per_tile(p.num_heads_q, p.num_heads_kv, instance.block_m);
  const int tokens = instance.block_m / heads;
  auto* const workspace = static_cast<unsigned char*>(context.workspace);

  KernelParams& k = launch->params;
  k = {};
  k.schedule = reinterpret_cast<Schedule*>(workspace);
  k.kv_budget = {kv_budget_bytes, static_cast<int32_t>(token_bytes(p))};
  k.num_head_tiles = p.num_heads_q / heads;
  k.head_tiles_per_kv_head = k.num_head_tiles / p.num_heads_kv;
  k.by_head_tiles_per_kv_head = Divisor(k.head_tiles_per_kv_head);
  k.heads_per_tile = heads;
  k.token_factor = (0xffff + heads) / heads;
  k.tokens_per_tile = tokens;
  k.draw_first = draw_first ? 1 : 0;
  k.alone = launches_alone(instance, p, kv_budget_bytes, skip_q_len, draw_first) ? 1 : 0;
  k.tiles_per_token = 1.0f / static_cast<float>(tokens);
  k.block_table = p.features & kPagedKv ? p.block_table : nullptr;
  k.block_table_stride = p.block_table_stride;
  k.block_size = p.block_size;
  k.by_block_size = Divisor(std::max(p.block_size, 1));
  k.box_rows = box_rows(instance, p);
  k.window_shift = window_shift(instance, p);
  const int32_t right = p.causal ? 0 : p.window_right;
  k.reach_left = p.window_left < 0 ? kFar : std::min(p.window_left, kFar);
  k.reach_right = right < 0 ? kFar : std::min(right, kFar);
  k.score_factor = (instance.softcap ? p.softcap : p.softmax_scale) * kLog2E;
  k.tanh_factor = instance.softcap ? 2.0f * kLog2E * p.softmax_scale / p.softcap : 0.0f;
  k.sinks = p.features & kSinks ? p.sinks : nullptr;
  k.out = p.out;
  k.out_stride_token = p.out_stride_token;
  k.out_stride_head = p.out_stride_head;
  k.lse = p.lse;
  k.lse_stride_head = p.lse_stride_head;
  if (instance.split) {
    k.partial_out = reinterpret_cast<float*>(workspace + layout.partial_out);
    k.partial_sum = reinterpret_cast<float2*>(workspace + layout.partial_sum);
    k.multiprocessors = context.multiprocessors;
    k.shared_prefix = p.shared_prefix;
    k.prefix_step = std::lcm(instance.block_n, std::max(p.block_size, 1));
    k.suffix_row = layout.suffix_row;
  }
  SplitTile* const split_tiles =
      instance.listed ? reinterpret_cast<SplitTile*>(workspace + layout.split_tiles) : nullptr;
  k.split_tiles = split_tiles;

  k.descales = {dtype_size(p.dtype_q) == 1 ? p.q_descale : nullptr,
                p.k_descale,
                p.v_descale,
                p.q_descale_stride_outer,
                p.q_descale_stride_head,
                p.k_descale_stride_outer,
                p.k_descale_stride_head,
                p.v_descale_stride_outer,
                p.v_descale_stride_head,
                p.cu_seqlens_q,
                p.batch,
                p.k_descale_stride_block};

  Maps& maps = launch->maps;
  const auto chunk_bytes = static_cast<uint32_t>(instance.chunk_bytes);
  if (!hopper::encode_q_map(&maps.q, p, heads, tokens, chunk_bytes) ||
      !encode_kv_maps(&maps.k, &k.k_rows, instance, p, p.k, p.dtype_k, p.head_dim, p.k_stride_block,
                      p.k_stride_token, p.k_stride_head) ||
      !encode_kv_maps(&maps.v, &k.v_rows, instance, p, p.v, p.dtype_v, p.head_dim_v, p.v_stride_block,
                      p.v_stride_token, p.v_stride_head) ||
      !hopper::encode_row_window_map(
          &maps.v_row, p.dtype_v, p.v != nullptr ? p.v : p.q, p.v_stride_token * dtype_size(p.dtype_v),
          hopper::row_chunks_of(p, p.dtype_v, k.v_rows, p.head_dim_v, chunk_bytes), 1, 1, chunk_bytes)) {
    return refuse(message, KernelStatus::kDeviceError, "sm90_prefill: the driver refused a tensor map");
  }

  if (has_row_pages(p)) {
    k.gathered = {gathered_rows(p, p.k, k.k_rows, p.k_stride_token, p.k_stride_head),
                  gathered_rows(p, p.v, k.v_rows, p.v_stride_token, p.v_stride_head)};
  }
  const KvBases kv_bases = kv_bases_of(p, k.k_rows);
  if (k.alone || (p.batch <= kMaxFewSequences && skip_q_len == 0 && !instance.listed)) {
    k.sequences = {p.batch, p.cu_seqlens_q, p.cu_seqlens_k, p.seqused_k, kv_bases};
  }

  const int64_t works = instance.split ? context.multiprocessors : max_items(instance, p) * k.num_head_tiles;
  launch->blocks = static_cast<int>(std::min<int64_t>(works, context.multiprocessors));
  launch->schedule_params = {
      .tokens_per_tile = tokens,
      .block_n = instance.block_n,
      .num_head_tiles = k.num_head_tiles,
      .head_tiles_per_kv_head = k.head_tiles_per_kv_head,
      .kv_budget = k.kv_budget,
      .first_drawn = draw_first ? 0 : launch->blocks,
      .skip_q_len = skip_q_len,
      .reach_left = k.reach_left,
      .kv_bases = kv_bases,
      .split_tiles = split_tiles,
      .division_tokens = division_tokens(instance, p),
  };
  return KernelStatus::kOk;
}

KernelStatus plan_instance(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                           KernelMessage* message) {
  if (!launches_alone(instance, p, kKvBudgetBytes, 0, false)) {  // the kernel before it sets the counter
    plans().erase(context.workspace);
    return KernelStatus::kOk;
  }
  const Layout layout = layout_of(instance, p, context);
  auto* const workspace = static_cast<unsigned char*>(context.workspace);
  int32_t* counter = &static_cast<Schedule*>(context.workspace)->next_work;
  const auto stream = static_cast<cudaStream_t>(context.stream);
  cudaError_t error = cudaMemsetAsync(counter, 0, sizeof *counter, stream);
  if (error == cudaSuccess && layout.absent_bytes > 0) {
    error = cudaMemsetAsync(workspace + layout.partial_sum, 0xff, layout.absent_bytes, stream);
  }
  if (error != cudaSuccess) {
    return refuse(message, KernelStatus::kDeviceError, "sm90_prefill: %s", cudaGetErrorString(error));
  }
  plans().set(context.workspace, required_plan(layout, context));
  return KernelStatus::kOk;
}

KernelStatus check_plan(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                        KernelMessage* message) {
  if (!launches_alone(instance, p, kKvBudgetBytes, 0, false)) return KernelStatus::kOk;
  return plans().check(kAttention, required_plan(layout_of(instance, p, context), context), context, message);
}

KernelStatus launch_instance(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                             int64_t kv_budget_bytes, int32_t skip_q_len, KernelMessage* message,
                             cudaEvent_t placed) {
  if (p.batch == 0 || p.total_q == 0) return KernelStatus::kOk;
  Launch l;
  if (const KernelStatus s =
          make_launch(instance, p, context, kv_budget_bytes, skip_q_len, placed != nullptr, message, &l);
      s != KernelStatus::kOk) {
    return s;
  }
  if (l.params.alone) {
    const KernelStatus s = check_plan(instance, p, context, message);
    if (s != KernelStatus::kOk) return s;
  }
  const auto stream = static_cast<cudaStream_t>(context.stream);
  cudaError_t error = cudaSuccess;
  if (!l.params.alone) error = launch_prepare(p, l.schedule_params, l.params.schedule, stream);
  if (error == cudaSuccess && placed != nullptr) error = cudaStreamWaitEvent(stream, placed);
  if (error == cudaSuccess) error = instance.launch(l.maps, l.params, l.blocks, stream);
  if (error == cudaSuccess && instance.split) error = launch_merge(l.params, instance, stream);
  if (error != cudaSuccess) {
    return refuse(message, KernelStatus::kDeviceError, "sm90_prefill: %s", cudaGetErrorString(error));
  }
  return KernelStatus::kOk;
}

constexpr const char* kShapes =
    "head_dim " HEAD_DIMS "; block_size a multiple of 8, at head_dim 64, 128 and 256 any";
constexpr uint64_t kFeatures = kPackedKv | kPagedKv | kContiguousKv | kHnd | kCausal | kWindow | kSoftcap |
                               kSinks | kBf16 | kFp16 | kE4m3Kv | kE4m3Q | kInt8K | kInt8Q | kPartialKv |
                               kHeadDimV;

const Kernel kAttention{
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic,
    .name = "sm90_prefill",
    .summary =
        "Hopper prefill: wgmma and TMA, specialised warps, persistent blocks; splits long keys where tiles "
        "are few",
    .shapes = kShapes,
    .op = Op::kAttention,
    .device = DeviceKind::kCuda,
    .min_compute_capability = 90,
    .features = kFeatures,
    .supports = supports,
    .numerics = numerics,
    .workspace_bytes = workspace_bytes,
    .plan = plan,
    .launch = launch,
    .tile = tile,
    .instances = kInstanceRows,
};

const Kernel kFixedAttention{
    .abi_version = kKernelAbiVersion,
    .flags = kDeterministic | kBatchInvariant | kPagingInvariant,
    .name = "sm90_prefill_fixed",
    .summary = "Hopper prefill, batch invariant: sm90_prefill with splits by a sequence's own lengths",
    .shapes = kShapes,
    .op = Op::kAttention,
    .device = DeviceKind::kCuda,
    .min_compute_capability = 90,
    .features = kFeatures,
    .supports = fixed_supports,
    .numerics = numerics,
    .workspace_bytes = fixed_workspace_bytes,
    .plan = fixed_plan,
    .launch = fixed_launch,
    .tile = fixed_tile,
};

}  // namespace attnbench::sm90_prefill
