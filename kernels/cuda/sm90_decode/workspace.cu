#include "kernels/cuda/sm90_decode/workspace.h"

#include "kernels/common/checks.h"
#include "kernels/common/mask.h"
#include "kernels/cuda/common/plans.h"
#include "kernels/cuda/sm90_decode/sm90_decode.h"

namespace attnbench::sm90_decode {
namespace {

/// The most tiles that a sequence can have. A window that begins inside a tile touches one tile more than an
/// aligned one, so a shorter sequence may have more tiles than the longest.
int32_t most_tiles(const Instance& instance, const AttentionParams& p) {
  const int64_t tile = instance.tile_tokens;
  const int64_t longest = (int64_t{p.max_seqlen_k} + tile - 1) / tile;
  if (p.window_left < 0 || p.max_seqlen_k == 0) return static_cast<int32_t>(longest);
  const int64_t seen = std::max<int64_t>(p.max_seqlen_q, 1) + p.window_left;
  return static_cast<int32_t>(std::min(longest, (seen + 2 * tile - 2) / tile));
}

hopper::Plans& plans() {
  static hopper::Plans all;
  return all;
}

}  // namespace

TileRange guess_tiles(const Instance& instance, const AttentionParams& p) {
  const KeyBounds keys =
      visible_keys_of_sequence(std::min(p.window_left, kFar), std::max(p.max_seqlen_q, 1), p.max_seqlen_k);
  return tiles_of_keys(keys.begin, keys.end, instance.tile_tokens);
}

Guess guess(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
            const Division& division) {
  const TileRange tiles = guess_tiles(instance, p);
  Guess g{};
  g.tiles = tiles.end - tiles.begin;
  g.first_tile = tiles.begin;
  g.sequence_units =
      sequence_units(std::max(p.max_seqlen_q, 1),
                     units_of_tiles(tiles.end - tiles.begin, division.unit_shift), division.segment_cost);
  g.total_units = g.sequence_units * p.batch;
  const int32_t most = units_of_tiles(most_tiles(instance, p), division.unit_shift);
  g.most_units = int64_t{sequence_units(std::max(p.max_seqlen_q, 1), most, division.segment_cost)} * p.batch;
  // Further parts would be empty.
  const int64_t useful = std::max<int64_t>((g.total_units + division.min_units - 1) / division.min_units, 1);
  const int resident = context.multiprocessors * instance.blocks_per_sm;
  const int parts = std::clamp(resident / p.num_heads_kv, 1, division.max_parts);
  g.parts = static_cast<int32_t>(std::min<int64_t>(hopper::fit_parts(parts, p.batch), useful));
  if (division.split_every_unit) {
    g.partials = static_cast<int32_t>(std::max<int64_t>(g.most_units, 1));
  } else {
    g.partials = 2 * g.parts;
    if (instance.first_waits) g.waiting_parts = g.parts;
  }
  return g;
}

Workspace workspace_of(const AttentionParams& p, const Guess& g) {
  constexpr std::size_t kAlign = 256;
  const auto aligned = [](std::size_t n) { return (n + kAlign - 1) / kAlign * kAlign; };
  const std::size_t partials = static_cast<std::size_t>(g.partials) * p.num_heads_kv;
  const std::size_t rows = partials * max_rows(p);
  Workspace w{};
  w.counters_bytes = aligned((partials + 1) * sizeof(uint32_t));
  const std::size_t state_out =
      static_cast<std::size_t>(g.waiting_parts) * p.num_heads_kv * max_rows(p) * p.head_dim * sizeof(float);
  w.states = w.counters_bytes;
  w.state_lse = w.states + state_out;
  w.states_bytes = aligned(state_out + state_out / 4);
  w.partial_lse = w.states + w.states_bytes;
  w.partial_out = w.partial_lse + aligned(rows * sizeof(float));
  w.bytes = w.partial_out + rows * p.head_dim * sizeof(float);
  return w;
}

std::size_t workspace_bytes_of(const Instance& instance, const AttentionParams& p,
                               const LaunchContext& context, const Division& division) {
  return workspace_of(p, guess(instance, p, context, division)).bytes;
}

KernelStatus plan_instance(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                           const Division& division, KernelMessage* message) {
  const Workspace w = workspace_of(p, guess(instance, p, context, division));
  if (const KernelStatus s = check_workspace(kAttention, w.bytes, context, message); s != KernelStatus::kOk)
    return s;
  auto* workspace = static_cast<unsigned char*>(context.workspace);
  const auto stream = static_cast<cudaStream_t>(context.stream);
  cudaError_t error = cudaMemsetAsync(workspace, 0, w.counters_bytes, stream);
  if (error == cudaSuccess) error = cudaMemsetAsync(workspace + w.states, 0xff, w.states_bytes, stream);
  if (error != cudaSuccess) {
    return refuse(message, KernelStatus::kDeviceError, "sm90_decode: %s", cudaGetErrorString(error));
  }
  plans().set(workspace, {w.counters_bytes, w.states_bytes, context.stream});
  return KernelStatus::kOk;
}

KernelStatus check_plan(const Instance& instance, const AttentionParams& p, const LaunchContext& context,
                        const Division& division, KernelMessage* message) {
  const Workspace w = workspace_of(p, guess(instance, p, context, division));
  if (const KernelStatus s = check_workspace(kAttention, w.bytes, context, message); s != KernelStatus::kOk)
    return s;
  return plans().check(kAttention, {w.counters_bytes, w.states_bytes, context.stream}, context, message);
}

void forget_plan(const LaunchContext& context) { plans().erase(context.workspace); }

}  // namespace attnbench::sm90_decode
