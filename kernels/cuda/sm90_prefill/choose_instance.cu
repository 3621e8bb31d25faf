// Which instance runs a launch, by what the host knows of it.
#include <algorithm>
#include <vector>

#include "kernels/cuda/sm90_prefill/cascade.h"
#include "kernels/cuda/sm90_prefill/launch.h"
#include "kernels/cuda/sm90_prefill/requirements.h"
#include "kernels/cuda/sm90_prefill/split.h"

namespace attnbench::sm90_prefill {
namespace {

#define INSTANCE(name, ...) &instances::bf16_##name, &instances::fp16_##name,
constexpr const Instance* kInstances[] = {
#include "kernels/cuda/sm90_prefill/instances.def"
};
#undef INSTANCE

/// A launch of several sequences may be split from so many KV blocks of the longest one on: others may be
/// shorter, so that the longest would go on alone.
constexpr int kRaggedBlocks = 192;

/// Whether `instance`, which splits, is worth its longer way: by the longest lengths alone, because rows of
/// nobody, which total_q counts, must not change a bit of a result.
bool splitting_pays(const Instance& instance, const AttentionParams& p, const LaunchContext& context) {
  if (p.batch > kMaxFewSequences || p.window_left >= 0 || p.max_seqlen_k <= 0) return false;
  const int64_t tokens = tokens_per_tile(instance, p);
  const int64_t works = p.batch * ((p.max_seqlen_q + tokens - 1) / tokens) * num_head_tiles(instance, p);
  if (works == 0 || works > int64_t{kMostWholeRounds} * context.multiprocessors) return false;
  const int32_t blocks = (p.max_seqlen_k + instance.block_n - 1) / instance.block_n;
  if (p.batch > 1 && blocks >= kRaggedBlocks) return true;
  return best_split(static_cast<float>(works), blocks, context.multiprocessors).length < blocks;
}

/// Whether `instance`, which reads shared keys once, spares enough: by what the host knows of the launch.
bool cascade_pays(const Instance& instance, const AttentionParams& p) {
  if ((p.features & kPagedKv) == 0 || p.window_left >= 0) return false;
  if (p.max_seqlen_q > tokens_per_tile(instance, p) || max_items(instance, p) >= kSuffixState / 4)
    return false;
  const int64_t keys = p.shared_prefix / instance.block_n * instance.block_n;
  return keys * (p.batch - 1) * p.num_heads_kv * token_bytes(p) >= kLeastSpared;
}

/// Whether `instance` loads pages of `p`'s size. One warp keeps up with copies of 16 rows, but not of 8.
bool fits_pages(const Instance& instance, const AttentionParams& p) {
  if (instance.gathers) return (p.features & kPagedKv) != 0 && p.block_size % (2 * hopper::kGroupRows) != 0;
  return !has_row_pages(p);
}

/// Whether `instance` has the types, the head_dim, the softcap and the way to load pages of `p`.
bool fits(const Instance& instance, const AttentionParams& p, bool one_level = false) {
  return instance.one_level == one_level && instance.dtype == p.dtype_out &&
         instance.e4m3_kv == (p.dtype_k == DType::kE4m3) && instance.e4m3_q == (p.dtype_q == DType::kE4m3) &&
         instance.int8_qk == (p.dtype_k == DType::kInt8) && instance.int8_qk == (p.dtype_q == DType::kInt8) &&
         instance.head_dim == p.head_dim && instance.head_dim_v == p.head_dim_v &&
         instance.softcap == (p.softcap > 0.0f) && fits_pages(instance, p);
}

/// Whether tiles are short (kShortKeys), if all sequences are as long as the longest.
bool has_short_tiles(const AttentionParams& p, int multiprocessors) {
  if (p.window_left >= 0) return false;
  if (p.max_seqlen_k <= kShortKeys) return true;
  const int64_t keys = p.max_seqlen_k - (p.causal ? std::min(p.max_seqlen_q, p.max_seqlen_k) / 2 : 0);
  const int64_t tiles = p.total_q * p.num_heads_q / 128;
  return keys <= 128 * kShortSteps && tiles * keys <= 128 * kShortSteps * multiprocessors;
}

/// The rows that split, for sm90_prefill_fixed.
std::vector<Instance> listed_instances() {
  std::vector<Instance> listed;
  for (const Instance* i : kInstances) {
    if (!i->split || i->cascade) continue;
    listed.push_back(*i);
    listed.back().listed = true;
  }
  return listed;
}

/// Most splits of any sequence that a launch with the listed `instance` may have.
int32_t most_splits_of_launch(const Instance& instance, const AttentionParams& p) {
  const int32_t blocks = (p.max_seqlen_k + instance.block_n - 1) / instance.block_n;
  return most_fixed_splits(num_head_tiles(instance, p), blocks);
}

/// Whether a wide instance pays (kWideRows).
bool has_many_rows(const AttentionParams& p) {
  return p.total_q * p.num_heads_q >= kWideRows &&
         (!p.causal || int64_t{p.max_seqlen_q} * (p.num_heads_q / p.num_heads_kv) >= kWideSequenceRows);
}

/// Whether tiles of the listed `instance` pack as many heads as those by which works are counted (division_tokens).
bool packs_as_counted(const Instance& instance, const AttentionParams& p) {
  return !instance.wide || heads_per_tile(p.num_heads_q, p.num_heads_kv, instance.block_m) ==
                               heads_per_tile(p.num_heads_q, p.num_heads_kv, kNarrowTileRows);
}

}  // namespace

const Instance* find_instance(const AttentionParams& p, bool one_level, int multiprocessors) {
  // Paged KV takes the masked instances: without a mask it is rare.
  const bool masked = p.causal || p.window_left >= 0 || p.window_right >= 0 || p.softcap > 0.0f ||
                      (p.features & kPagedKv) != 0;
  const bool short_tiles = has_short_tiles(p, multiprocessors);
  const bool wide = has_many_rows(p);
  const Instance* found = nullptr;
  for (const Instance* i : kInstances) {
    if (!fits(*i, p, one_level) || i->split || (masked && !i->masked) || (i->short_tiles && !short_tiles) ||
        (i->wide && !wide)) {
      continue;
    }
    // Rows for short tiles and for many rows come last. A masked instance takes all, but without a mask others are faster.
    if (found == nullptr || found->masked == i->masked) found = i;
  }
  return found;
}

const Instance* choose_instance(const AttentionParams& p, const LaunchContext& context) {
  for (const Instance* i : kInstances) {
    if (i->cascade && fits(*i, p) && cascade_pays(*i, p)) return i;
  }
  const Instance* found = nullptr;
  for (const Instance* i : kInstances) {
    if (i->split && !i->cascade && !i->wide && fits(*i, p) && splitting_pays(*i, p, context)) found = i;
  }
  return found != nullptr ? found : find_instance(p, false, context.multiprocessors);
}

const Instance* choose_fixed_instance(const AttentionParams& p, int multiprocessors) {
  static const std::vector<Instance> listed = listed_instances();
  const Instance* found = nullptr;
  for (const Instance& i : listed) {
    if (!fits(i, p) || p.window_left >= 0 || p.batch == 0 || most_splits_of_launch(i, p) < 2) continue;
    if (!i.wide || (has_many_rows(p) && packs_as_counted(i, p))) found = &i;
  }
  return found != nullptr ? found : find_instance(p, false, multiprocessors);
}

int64_t max_fixed_states(const Instance& instance, const AttentionParams& p) {
  const int64_t of_sequence = kFixedWorks / num_head_tiles(instance, p);  // tiles times splits
  return std::min(max_items(instance, p) * most_splits_of_launch(instance, p), p.batch * of_sequence);
}

int heads_per_tile(int num_heads_q, int num_heads_kv, int block_m) {
  const int group = num_heads_q / num_heads_kv;
  for (int heads = std::min(group, block_m); heads > 1; --heads) {
    if (group % heads == 0 && block_m / heads * heads * 16 >= block_m * 15) return heads;
  }
  return 1;
}

}  // namespace attnbench::sm90_prefill
