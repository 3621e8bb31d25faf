#include <gtest/gtest.h>

#include <set>

#include "harness/tensors/plan.h"
#include "harness/tensors/workload.h"

namespace attnbench {
namespace {

Case paged_case(std::vector<SeqLen> seqs, int block_size, PageLayout layout) {
  Case c;
  c.params.kv = KvSource::kPaged;
  c.params.block_size = block_size;
  c.params.page_layout = layout;
  c.params.seqs = std::move(seqs);
  return c;
}

TEST(WorkloadPlan, BlocksAreDisjointAndOwnersAgreeWithTheTable) {
  for (const PageLayout layout : {PageLayout::kContiguous, PageLayout::kShuffled, PageLayout::kLifoAged}) {
    for (const int bs : {1, 3, 16, 256}) {
      const Case c = paged_case({{1, 100}, {2, 0}, {5, 17}, {1, 256}, {0, 9}}, bs, layout);
      const WorkloadPlan p = plan_workload(c);
      std::set<int32_t> used;
      int64_t owned = 0;
      for (std::size_t b = 0; b < c.params.seqs.size(); ++b) {
        const int64_t blocks = (c.params.seqs[b].k + bs - 1) / bs;
        for (int64_t i = 0; i < p.block_table_stride; ++i) {
          const int32_t entry =
              p.block_table[b * static_cast<std::size_t>(p.block_table_stride) + static_cast<std::size_t>(i)];
          if (i >= blocks) {
            EXPECT_TRUE(entry == kJunkBlocks[0] || entry == kJunkBlocks[1]);
            continue;
          }
          EXPECT_TRUE(entry >= 0 && entry < p.num_blocks);
          EXPECT_TRUE(used.insert(entry).second) << "block in two sequences";
        }
        for (int32_t r = 0; r < c.params.seqs[b].k; ++r) {
          const int32_t block = p.block_table[b * static_cast<std::size_t>(p.block_table_stride) +
                                              static_cast<std::size_t>(r / bs)];
          const RowOwner o = p.kv_owners[static_cast<std::size_t>(block * bs + r % bs)];
          EXPECT_EQ(o.seq, static_cast<int32_t>(b));
          EXPECT_EQ(o.pos, r);
        }
      }
      for (const RowOwner& o : p.kv_owners) owned += o.seq >= 0;
      EXPECT_EQ(owned, 100 + 17 + 256 + 9);
      EXPECT_GT(p.num_blocks, static_cast<int32_t>(used.size())) << "some blocks belong to nobody";
    }
  }
}

TEST(WorkloadPlan, ShuffleIsPoolWideAndSeeded) {
  Case c = paged_case({{1, 1024}, {1, 1024}}, 16, PageLayout::kShuffled);
  const auto first = plan_workload(c).block_table;
  EXPECT_EQ(plan_workload(c).block_table, first);
  c.seed = 2;
  EXPECT_NE(plan_workload(c).block_table, first);
  // Blocks come from the whole pool: those of the first sequence are not just in its first half.
  bool outside = false;
  for (int i = 0; i < 64; ++i) outside = outside || first[static_cast<std::size_t>(i)] >= 64;
  EXPECT_TRUE(outside);
}

TEST(WorkloadPlan, PackedGapsAndTailArePoison) {
  Case c;
  c.params.seqs = {{2, 3}, {1, 1}};
  c.params.gap_tokens = 2;
  const WorkloadPlan p = plan_workload(c);
  EXPECT_EQ(p.cu_seqlens_k, (std::vector<int32_t>{0, 5, 8}));
  EXPECT_EQ(p.seqused_k, (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(p.kv_owners.size(), 8u + kTailRows);
  EXPECT_EQ(p.kv_owners[3].seq, -1);
  EXPECT_EQ(p.kv_owners[5].seq, 1);
  EXPECT_EQ(p.kv_owners.back().seq, -1);
}

TEST(WorkloadPlan, RowsBehindQueriesArePoisonInEveryCopyOfACase) {
  Case c;
  c.params.seqs = {{2, 3}, {0, 1}, {4, 9}};
  c.params.gap_queries = 3;
  for (const uint64_t seed : {1, 2}) {
    c.seed = seed;
    const std::vector<int32_t> gaps = query_gaps_of(c.params);
    ASSERT_EQ(gaps.size(), 3u);
    EXPECT_EQ(gaps[0], 3);
    for (const int32_t gap : gaps) EXPECT_TRUE(gap >= 0 && gap <= 3);
    const WorkloadPlan p = plan_workload(c, {.lead_rows = 5});
    EXPECT_EQ(p.cu_seqlens_q, (std::vector<int32_t>{5, 10, 10 + gaps[1], 14 + gaps[1] + gaps[2]}));
    EXPECT_EQ(p.seqused_q, (std::vector<int32_t>{2, 0, 4}));
    EXPECT_EQ(p.total_q, p.cu_seqlens_q.back());
    EXPECT_EQ(p.max_seqlen_q, 4);
    EXPECT_EQ(p.q_owners.size(), static_cast<std::size_t>(p.total_q + kTailRows));
    EXPECT_EQ(p.q_owners[4].seq, -1);
    EXPECT_EQ(p.q_owners[6].pos, 1);
    EXPECT_EQ(p.q_owners[7].seq, -1) << "in the gap";
    EXPECT_EQ(p.q_owners[static_cast<std::size_t>(10 + gaps[1])].seq, 2);
    EXPECT_EQ(p.q_owners[static_cast<std::size_t>(14 + gaps[1])].seq, -1);
  }
}

TEST(WorkloadPlan, PaddedPagesHoldPoisonBeforeTheirFirstKey) {
  for (const bool shuffled : {false, true}) {
    Case c = paged_case({{1, 10}, {2, 0}, {5, 17}}, 4, PageLayout::kShuffled);
    c.params.leftpad = 5;
    c.params.shuffled_table = shuffled;
    const WorkloadPlan p = plan_workload(c);
    EXPECT_EQ(p.cache_leftpad, (std::vector<int32_t>{5, 4, 3}));
    EXPECT_EQ(p.cache_batch_idx.size(), shuffled ? 3u : 0u);
    const auto stride = static_cast<std::size_t>(p.block_table_stride);
    EXPECT_EQ(p.block_table.size(), (shuffled ? 5 : 3) * stride);
    int64_t owned = 0, junk_rows = 0;
    for (std::size_t b = 0; b < 3; ++b) {
      const std::size_t row = shuffled ? static_cast<std::size_t>(p.cache_batch_idx[b]) : b;
      for (int32_t r = 0; r < p.cache_leftpad[b] + c.params.seqs[b].k; ++r) {
        const int32_t block = p.block_table[row * stride + static_cast<std::size_t>(r / 4)];
        const RowOwner o = p.kv_owners[static_cast<std::size_t>(block * 4 + r % 4)];
        const bool key = r >= p.cache_leftpad[b];
        EXPECT_EQ(o.seq, key ? static_cast<int32_t>(b) : -1);
        EXPECT_EQ(o.pos, key ? r - p.cache_leftpad[b] : -1);
      }
    }
    for (const RowOwner& o : p.kv_owners) owned += o.seq >= 0;
    EXPECT_EQ(owned, 27);
    for (std::size_t row = 0; row < p.block_table.size() / stride; ++row) {
      const int32_t first = p.block_table[row * stride];
      junk_rows += first == kJunkBlocks[0] || first == kJunkBlocks[1];
    }
    EXPECT_EQ(junk_rows, shuffled ? 2 : 0);
  }
}

TEST(WorkloadPlan, AppendSlotsAreTheLastTokensAndPaddingIsSkipped) {
  Case c = paged_case({{2, 5}, {1, 1}}, 4, PageLayout::kContiguous);
  c.params.op = Op::kKvAppend;
  c.params.padding_tokens = 4;
  const WorkloadPlan p = plan_workload(c);
  // Sequence 0 holds blocks 0 and 1, sequence 1 block 2; positions 3, 4 and 0.
  EXPECT_EQ(p.slot_mapping, (std::vector<int64_t>{3, 4, -1, 8, -1, -1, -1}));
  EXPECT_EQ(p.appended[3].pos, 3);
  EXPECT_EQ(p.kv_owners[3].seq, -1) << "not yet written before the launch";
  EXPECT_EQ(p.kv_owners[2].pos, 2);
}

TEST(WorkloadPlan, ContiguousRowsHoldPaddingKeysAndRoom) {
  Case c;
  c.params.kv = KvSource::kContiguous;
  c.params.seqs = {{1, 5}, {1, 0}, {2, 3}};
  c.params.leftpad = 2;
  const WorkloadPlan p = plan_workload(c);
  EXPECT_EQ(p.num_blocks, 5) << "two rows of the cache are nobody's";
  EXPECT_EQ(p.capacity, 5 + 2 + 3);
  EXPECT_EQ(p.cache_leftpad, (std::vector<int32_t>{2, 1, 0}));
  EXPECT_EQ(p.seqused_k, (std::vector<int32_t>{5, 0, 3}));
  ASSERT_EQ(p.cache_batch_idx.size(), 3u);
  EXPECT_EQ((std::set<int32_t>(p.cache_batch_idx.begin(), p.cache_batch_idx.end()).size()), 3u);
  int64_t owned = 0;
  for (const RowOwner& o : p.kv_owners) owned += o.seq >= 0;
  EXPECT_EQ(owned, 8);
  const auto first = static_cast<std::size_t>(p.cache_batch_idx[0] * p.capacity);
  EXPECT_EQ(p.kv_owners[first + 1].seq, -1);
  EXPECT_EQ(p.kv_owners[first + 2].pos, 0);
  EXPECT_EQ(p.kv_owners[first + 6].pos, 4);
  EXPECT_EQ(p.kv_owners[first + 7].seq, -1);
  c.params.shuffled_cache = false;
  EXPECT_TRUE(plan_workload(c).cache_batch_idx.empty()) << "null stands for the identity";
}

Case expired_case(Expired expired) {
  // Visible: from key 90 on (2 queries, 8 keys left of the first query's), all of 5, from 35 on, none.
  Case c = paged_case({{2, 100}, {1, 5}, {1, 44}, {0, 40}}, 16, PageLayout::kShuffled);
  c.params.causal = true;
  c.params.window_left = 8;
  c.params.expired = expired;
  return c;
}

int32_t entry(const WorkloadPlan& p, std::size_t b, std::size_t i) {
  return p.block_table[b * static_cast<std::size_t>(p.block_table_stride) + i];
}
bool leads_nowhere(const WorkloadPlan& p, int32_t id) { return id < 0 || id >= p.num_blocks; }

TEST(WorkloadPlan, ExpiredRowsArePoisonAndNoOthers) {
  const int32_t first[] = {90, 0, 35, 40};
  const WorkloadPlan kept = plan_workload(expired_case(Expired::kKept));
  for (const Expired expired : {Expired::kNan, Expired::kFreed}) {
    const WorkloadPlan p = plan_workload(expired_case(expired));
    ASSERT_EQ(p.kv_owners.size(), kept.kv_owners.size());
    for (std::size_t r = 0; r < p.kv_owners.size(); ++r) {
      const RowOwner o = kept.kv_owners[r];
      const bool seen = o.seq >= 0 && o.pos >= first[o.seq];
      EXPECT_EQ(p.kv_owners[r].seq, seen ? o.seq : -1) << "sequence " << o.seq << " position " << o.pos;
    }
  }
}

TEST(WorkloadPlan, FreedBlocksHaveJunkIds) {
  const WorkloadPlan kept = plan_workload(expired_case(Expired::kKept));
  EXPECT_EQ(plan_workload(expired_case(Expired::kNan)).block_table, kept.block_table);
  const WorkloadPlan p = plan_workload(expired_case(Expired::kFreed));
  const std::size_t freed[] = {5, 0, 2, 3};  // whole blocks of 16 before the first visible key
  std::set<int32_t> ids;
  for (std::size_t b = 0; b < 4; ++b) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(p.block_table_stride); ++i) {
      const int32_t id = entry(p, b, i);
      if (i < freed[b]) {
        EXPECT_TRUE(id == kJunkBlocks[0] || id == kJunkBlocks[1]) << b << " " << i;
        ids.insert(id);
      } else {
        EXPECT_EQ(id, entry(kept, b, i)) << b << " " << i;
      }
    }
  }
  EXPECT_EQ(ids.size(), 2u);
}

TEST(WorkloadPlan, NewRowsKeepTheirBlocks) {
  Case c = expired_case(Expired::kFreed);
  c.params.append = true;
  c.params.new_tokens = 30;  // from rows 70, 0, 14 and 10 on
  const WorkloadPlan p = plan_workload(c);
  const std::size_t freed[] = {4, 0, 0, 0};
  for (std::size_t b = 0; b < 4; ++b) {
    for (int32_t i = 0; i < (c.params.seqs[b].k + 15) / 16; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(leads_nowhere(p, entry(p, b, at)), at < freed[b]) << b << " " << i;
    }
  }
  int64_t appended = 0;
  for (const RowOwner& o : p.appended) appended += o.seq >= 0;
  EXPECT_EQ(appended, 30 + 5 + 30 + 30);
}

TEST(WorkloadPlan, SharedRowsStayForThoseThatSeeThem) {
  Case c = paged_case({{1, 100}, {1, 40}}, 16, PageLayout::kSharedPrefix);
  c.params.shared_prefix = 32;
  c.params.window_left = 15;  // visible: from keys 84 and 24 on
  c.params.expired = Expired::kFreed;
  const WorkloadPlan p = plan_workload(c);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(leads_nowhere(p, entry(p, 0, i))) << "no window of sequence 0 reaches block " << i;
  }
  EXPECT_TRUE(leads_nowhere(p, entry(p, 1, 0)));
  const int32_t second = entry(p, 1, 1);
  ASSERT_FALSE(leads_nowhere(p, second));
  for (int32_t r = 16; r < 32; ++r) {
    const RowOwner o = p.kv_owners[static_cast<std::size_t>(second * 16 + r % 16)];
    EXPECT_EQ(o.seq, r < 24 ? -1 : 0) << r;
  }
}

TEST(WorkloadPlan, SlopesAndSinksHaveTheirShapes) {
  Case c;
  c.params.num_heads_q = 8;
  c.params.seqs.assign(4, {1, 1});
  EXPECT_TRUE(alibi_slopes_of(c).empty());
  EXPECT_TRUE(sinks_of(c).empty());
  c.params.alibi = Alibi::kPerHead;
  EXPECT_EQ(alibi_slopes_of(c).size(), 8u);
  EXPECT_EQ(alibi_slopes_of(c)[0], 0.5f);
  EXPECT_EQ(alibi_slopes_of(c)[7], 1.0f / 256);
  c.params.alibi = Alibi::kPerSequence;
  ASSERT_EQ(alibi_slopes_of(c).size(), 32u);
  EXPECT_EQ(alibi_slopes_of(c)[8], 0.75f);
  c.params.sinks = true;
  const std::vector<float> sinks = sinks_of(c);
  EXPECT_EQ(sinks.size(), 8u);
  EXPECT_EQ(std::set<float>(sinks.begin(), sinks.end()).size(), 8u) << "no two heads alike";
}

TEST(WorkloadPlan, EmptyBatch) {
  Case c;
  const WorkloadPlan p = plan_workload(c);
  EXPECT_EQ(p.cu_seqlens_q, (std::vector<int32_t>{0}));
  EXPECT_EQ(p.total_q, 0);
}

TEST(WorkloadPlan, AgedBlocksLieBetweenOrderedAndShuffledOnes) {
  // How many entries of a table lie right behind or before the one before them.
  const auto neighbours = [](PageLayout layout) {
    const Case c = paged_case(std::vector<SeqLen>(64, {1, 64 * 16}), 16, layout);
    const WorkloadPlan p = plan_workload(c);
    int near = 0, all = 0;
    for (std::size_t b = 0; b < 64; ++b) {
      for (std::size_t i = 1; i < 64; ++i, ++all) {
        const std::size_t at = b * static_cast<std::size_t>(p.block_table_stride) + i;
        near += std::abs(p.block_table[at] - p.block_table[at - 1]) == 1;
      }
    }
    return static_cast<double>(near) / all;
  };
  EXPECT_EQ(neighbours(PageLayout::kContiguous), 1.0);
  EXPECT_LT(neighbours(PageLayout::kShuffled), 0.01);
  EXPECT_GT(neighbours(PageLayout::kLifoAged), 0.05);
  EXPECT_LT(neighbours(PageLayout::kLifoAged), 0.95);
}

TEST(WorkloadPlan, AgedBlocksOfTinySequencesAreAllThere) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Case c = paged_case({{1, 90}, {0, 9}, {4, 80}, {33, 70}}, 1024, PageLayout::kLifoAged);
    c.seed = seed;
    const WorkloadPlan p = plan_workload(c);
    std::set<int32_t> used;
    for (std::size_t b = 0; b < 4; ++b)
      used.insert(p.block_table[b * static_cast<std::size_t>(p.block_table_stride)]);
    EXPECT_EQ(used.size(), 4u);
    EXPECT_GE(*used.begin(), 0);
    EXPECT_LT(*used.rbegin(), p.num_blocks);
  }
}

TEST(WorkloadPlan, AgedBlocksAreTheSameEveryTimeAndDifferByTheCasesSeed) {
  Case c = paged_case({{1, 400}, {1, 90}, {1, 0}, {7, 7}}, 16, PageLayout::kLifoAged);
  const std::vector<int32_t> table = plan_workload(c).block_table;
  EXPECT_EQ(plan_workload(c).block_table, table);
  c.seed = 2;
  EXPECT_NE(plan_workload(c).block_table, table);
}

}  // namespace
}  // namespace attnbench
