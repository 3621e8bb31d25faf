// The workspace sizes of sm90_decode_fixed and sm90_prefill_fixed are enough for the partial results of every batch
// within its maxima. Calls only host code, without a GPU.
#include <gtest/gtest.h>

#include <random>
#include <string_view>

#include "kernels/common/mask.h"
#include "kernels/cuda/common/partition.cuh"
#include "kernels/cuda/sm90_prefill/split.h"
#include "kernels/registry.h"

namespace attnbench {
namespace {

constexpr int32_t kTileKeys = 64, kUnitShift = 4, kHeadDim = 128, kKvHeads = 8, kGroup = 4;

const Kernel* find(std::string_view name) {
  for (const Kernel* k : builtin_kernels()) {
    if (k->name == name) return k;
  }
  return nullptr;
}

OpParams launch_of(int32_t batch, int32_t max_q, int32_t max_k, int32_t window_left) {
  OpParams op{};
  op.op = Op::kAttention;
  AttentionParams& p = op.attention;
  p.features = kPagedKv | kCausal | kBf16 | kWindow;
  p.batch = batch;
  p.num_heads_q = kKvHeads * kGroup;
  p.num_heads_kv = kKvHeads;
  p.head_dim = p.head_dim_v = kHeadDim;
  p.max_seqlen_q = max_q;
  p.max_seqlen_k = max_k;
  p.dtype_q = p.dtype_k = p.dtype_v = p.dtype_out = DType::kBf16;
  p.block_size = 16;
  p.causal = 1;
  p.window_left = window_left;
  p.window_right = -1;
  return op;
}

TEST(FixedWorkspace, HoldsEverySplitOfAnyBatchWithinItsMaxima) {
  const Kernel* kernel = find("sm90_decode_fixed");
  if (kernel == nullptr) GTEST_SKIP() << "built without CUDA";
  const LaunchContext context{.compute_capability = 90, .multiprocessors = 132};
  std::mt19937 draw(1);
  int as_many = 0;
  for (int n = 0; n < 20000; ++n) {
    const auto below = [&](int32_t most) { return static_cast<int32_t>(draw() % (most + 1u)); };
    const int32_t window = below(1) ? 1024 * (1 + below(7)) - 1 : below(9000);
    const int32_t max_k = below(1) ? 1024 * (1 + below(15)) : 1 + below(16000);
    const int32_t max_q = 1 + below(3), batch = 1 + below(5);
    int64_t units = 0;
    for (int32_t b = 0; b < batch; ++b) {
      const int32_t k_len = below(2) ? std::max(max_k - below(70), 0) : below(max_k),
                    q_len = 1 + below(max_q - 1);
      const KeyBounds keys = visible_keys_of_sequence(window, q_len, k_len);
      const auto tiles = hopper::tiles_of_keys(keys.begin, keys.end, kTileKeys);
      units += hopper::sequence_units(q_len, hopper::units_of_tiles(tiles.end - tiles.begin, kUnitShift), 0);
    }
    const int64_t rows = units * kKvHeads * max_q * kGroup;
    const int64_t needed = rows * (kHeadDim + 1) * int64_t{sizeof(float)};
    const OpParams op = launch_of(batch, max_q, max_k, window);
    const auto given = static_cast<int64_t>(kernel->workspace_bytes(&op, &context));
    ASSERT_GE(given, needed) << "batch " << batch << ", " << max_q << " queries, " << max_k
                             << " keys, window " << window;
    as_many += given < needed + needed / 100 + 4096;
  }
  EXPECT_GT(as_many, 100) << "the bound is reached, or this test would see nothing";
}

TEST(FixedPrefillWorkspace, HoldsEverySplitOfAnyBatchWithinItsMaxima) {
  const Kernel* kernel = find("sm90_prefill_fixed");
  if (kernel == nullptr) GTEST_SKIP() << "built without CUDA";
  const LaunchContext context{.compute_capability = 90, .multiprocessors = 132};
  constexpr int32_t kTileRows = 128, kTokens = kTileRows / kGroup, kBlockKeys = 128;
  constexpr int64_t kItemBytes = 32, kSplitTileBytes = 16;  // WorkItem and SplitTile
  std::mt19937 draw(1);
  int as_many = 0;
  for (int n = 0; n < 20000; ++n) {
    const auto below = [&](int32_t most) { return static_cast<int32_t>(draw() % (most + 1u)); };
    const int32_t max_k = kBlockKeys * 16 * (1 + below(40)), max_q = 1 + below(below(1) ? 31 : 600),
                  batch = 1 + below(5);
    OpParams op = launch_of(batch, max_q, max_k, -1);
    int64_t states = 0, items = 0, split_tiles = 0;
    for (int32_t b = 0; b < batch; ++b) {
      const int32_t q_len = below(1) ? max_q : below(max_q), k_len = below(2) ? max_k : below(max_k);
      op.attention.total_q += q_len;
      const sm90_prefill::Division d = sm90_prefill::fixed_division((q_len + kTokens - 1) / kTokens, kKvHeads,
                                                                    (k_len + kBlockKeys - 1) / kBlockKeys);
      items += int64_t{d.tiles} * d.splits;
      if (d.splits < 2) continue;
      split_tiles += d.tiles;
      states += int64_t{d.tiles} * d.splits * kKvHeads;
    }
    const int64_t needed = states * kTileRows * (kHeadDim + 2) * int64_t{sizeof(float)} + items * kItemBytes +
                           split_tiles * kSplitTileBytes;
    const auto given = static_cast<int64_t>(kernel->workspace_bytes(&op, &context));
    ASSERT_GE(given, needed) << "batch " << batch << ", " << max_q << " queries, " << max_k << " keys";
    as_many += states > 0 && given < needed + needed / 100 + 4096;
  }
  EXPECT_GT(as_many, 100) << "the bound is reached, or this test would see nothing";
}

}  // namespace
}  // namespace attnbench
