// Pools larger than needed, repeated blocks, arbitrary slots, states in one list, LSEs of other conventions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/ops/merge_states/tensors_states.h"
#include "harness/tensors/plan.h"
#include "harness/tensors/workload.h"

namespace attnbench {
namespace {

Case case_of(const std::string& yaml, uint64_t seed = 1) {
  return expand(parse_inline_case(yaml, {}, seed)).cases.at(0);
}

TEST(WorkloadDraws, BlocksLieAnywhereInALargePool) {
  const Case c =
      case_of("{kv: paged, block_size: 1, pool_blocks: 32768, heads: 1, head_dim: 8, batch: q1s300}");
  const WorkloadPlan p = plan_workload(c);
  EXPECT_EQ(p.num_blocks, 32768);
  const auto end = p.block_table.begin() + 300;
  EXPECT_GT(*std::max_element(p.block_table.begin(), end), 30000);
  EXPECT_LT(*std::min_element(p.block_table.begin(), end), 3000);
  // Fewer blocks than the sequences need are no limit.
  const Case small =
      case_of("{kv: paged, block_size: 1, pool_blocks: 7, heads: 1, head_dim: 8, batch: q1s300}");
  EXPECT_GT(plan_workload(small).num_blocks, 300);
}

TEST(WorkloadDraws, RepeatedBlocksHaveOneOwner) {
  const Case c = case_of(
      "{kv: paged, page_layout: repeated, block_size: 4, heads: 1, head_dim: 8, batch: q1s100_q1s203_q1s77}",
      9);
  EXPECT_EQ(case_of(case_yaml(c.params), 9).params.blocks->digest(), c.params.blocks->digest());
  EXPECT_EQ(c.id.find("-given"), std::string::npos) << c.id;
  const WorkloadPlan p = plan_workload(c);
  std::multiset<int32_t> met;
  for (std::size_t b = 0; b < c.params.seqs.size(); ++b) {
    for (int32_t r = 0; r < c.params.seqs[b].k; ++r) {
      const int32_t block =
          p.block_table[b * static_cast<std::size_t>(p.block_table_stride) + static_cast<std::size_t>(r / 4)];
      if (r % 4 == 0) met.insert(block);
      ASSERT_TRUE(block >= 0 && block < p.num_blocks);
      const RowOwner o = p.kv_owners[static_cast<std::size_t>(block * 4 + r % 4)];
      const GivenBlocks::Row row = c.params.blocks->owner(static_cast<int32_t>(b), r);
      EXPECT_EQ(o.seq, row.seq);
      EXPECT_EQ(o.pos, row.pos);
    }
  }
  const std::set<int32_t> distinct(met.begin(), met.end());
  EXPECT_LT(distinct.size(), met.size()) << "some block stands twice";
  EXPECT_GT(distinct.size(), met.size() / 2);
}

TEST(WorkloadDraws, ArbitrarySlotsAreDifferentAndAnywhere) {
  for (const char* pool : {"0", "1000", "997"}) {
    const Case c =
        case_of(std::string("{op: kv_append, slots: arbitrary, block_size: 16, heads: 1, head_dim: 8, "
                            "padding_tokens: 3, batch: q33s40_q1s90_q0s5, pool_blocks: ") +
                pool + "}");
    const WorkloadPlan p = plan_workload(c);
    std::set<int64_t> slots;
    int neighbours = 0;
    int64_t before = -9;
    for (std::size_t t = 0; t < p.slot_mapping.size(); ++t) {
      const int64_t slot = p.slot_mapping[t];
      if (slot < 0) continue;
      EXPECT_TRUE(slots.insert(slot).second) << "slot " << slot << " twice";
      ASSERT_LT(slot, int64_t{p.num_blocks} * 16);
      EXPECT_EQ(p.appended[static_cast<std::size_t>(slot)].pos, p.token_owners[t].pos);
      neighbours += slot == before + 1;
      before = slot;
    }
    EXPECT_EQ(slots.size(), 34u);
    EXPECT_LT(neighbours, 3);
  }
}

TEST(WorkloadDraws, RowsHaveNoneToAllStates) {
  const Case c = case_of(
      "{op: merge_states, states: 5, states_per_row: varied, heads: 2, head_dim: 8, empty_states: 0.3, batch: q200}");
  const std::vector<int32_t> indptr = state_indptr_of(c);
  ASSERT_EQ(indptr.size(), 201u);
  std::set<int32_t> counts;
  for (std::size_t t = 0; t < 200; ++t) counts.insert(indptr[t + 1] - indptr[t]);
  EXPECT_EQ(counts, (std::set<int32_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(indptr[1], 5) << "the first row has all";
  EXPECT_EQ(partial_out_owners(c).size(), static_cast<std::size_t>(indptr.back()) * 2);
}

TEST(WorkloadDraws, EmptyStatesSaySoAsTheKeySays) {
  const auto counts = [](const char* word) {
    const Case c =
        case_of(std::string("{op: merge_states, states: 4, heads: 2, head_dim: 8, empty_states: 0.5, "
                            "batch: q50, empty_lse: ") +
                word + "}");
    std::pair<int, int> minus_plus;
    for (int s = 0; s < 4; ++s) {
      for (int t = 0; t < 50; ++t) {
        const float x = partial_lse_of(c, s, t, 0);
        minus_plus.first += x == -INFINITY;
        minus_plus.second += x == INFINITY;
      }
    }
    return minus_plus;
  };
  EXPECT_EQ(counts("minus_inf").second, 0);
  EXPECT_EQ(counts("plus_inf").first, 0);
  EXPECT_GT(counts("both").first, 20);
  EXPECT_GT(counts("both").second, 20);
}

/// download_outputs gives natural LSEs (head, token), whatever the launch writes.
TEST(WorkloadDraws, LsesAreReadAsTheLaunchWritesThem) {
  const auto device = open_device("cpu", 1);
  for (const bool padded : {false, true}) {
    const Case c =
        case_of("{heads: 3, head_dim: 8, lse_log: base2, out_lse_layout: token_major, batch: q2_q3}");
    LayoutVariant layout;
    layout.padded_strides = padded;
    Workload w(*device, c, layout);
    w.reset_outputs();
    const AttentionParams p = w.params().attention;
    EXPECT_EQ(p.lse_stride_token > p.num_heads_q, padded);
    for (int t = 0; t < 5; ++t) {
      for (int h = 0; h < 3; ++h) p.lse[t * p.lse_stride_token + h] = static_cast<float>(10 * h + t);
    }
    const HostOutputs out = w.download_outputs();
    ASSERT_EQ(out.lse.size(), 15u);
    EXPECT_FLOAT_EQ(out.lse[2 * 5 + 4], static_cast<float>(24 * std::log(2.0)));
    EXPECT_TRUE(out.stray.empty()) << out.stray;
  }
}

TEST(WorkloadDraws, WindowsAreDrawnWithinTheLongestSequence) {
  std::set<int32_t> lefts;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Case c = case_of("{window: drawn, batch: q9s40_q5s90}", seed);
    EXPECT_FALSE(c.params.window_drawn);
    EXPECT_TRUE(c.params.window_left >= 0 && c.params.window_left < 90);
    EXPECT_TRUE(c.params.window_right >= 0 && c.params.window_right < 90);
    EXPECT_EQ(case_of(case_yaml(c.params), seed).id, c.id) << "the id and the repro line hold the numbers";
    lefts.insert(c.params.window_left);
  }
  EXPECT_GT(lefts.size(), 12u);
  EXPECT_NE(case_of("{window: drawn, batch: q9s40_q5s90}").params.window_left,
            case_of("{window: drawn, dtype: fp16, batch: q9s40_q5s90}").params.window_left)
      << "another case has a window of its own";
  EXPECT_EQ(case_of("{window: drawn, mask: causal, batch: q9s40}").params.window_right, -1);
  EXPECT_EQ(case_of("{window: drawn, batch: 0q0}").params.window_left, -1);
}

}  // namespace
}  // namespace attnbench
