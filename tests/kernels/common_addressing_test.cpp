// The address rule on literal examples.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/common/addressing.h"

namespace attnbench {
namespace {

TEST(CommonAddressing, PackedWithShorterKeys) {
  const int32_t cu[] = {0, 4, 7, 9};
  const int32_t used[] = {4, 3, 2};
  AttentionParams p{};
  p.features = kPackedKv;
  p.batch = 3;
  p.cu_seqlens_q = cu;
  p.cu_seqlens_k = cu;
  p.k_stride_token = 10;
  p.v_stride_token = 100;
  const int32_t begins[] = {0, 4, 7};
  const int32_t lengths[] = {4, 3, 2};
  for (const int32_t* seqused : {static_cast<const int32_t*>(nullptr), static_cast<const int32_t*>(used)}) {
    p.seqused_k = seqused;
    for (int b = 0; b < 3; ++b) {
      const SeqRange r = seq_range(p, b);
      EXPECT_EQ(r.q_begin, begins[b]);
      EXPECT_EQ(r.q_len, lengths[b]);
      EXPECT_EQ(r.k_len, lengths[b]);
      EXPECT_EQ(k_row_offset(p, b, 1), (begins[b] + 1) * 10);
      EXPECT_EQ(v_row_offset(p, b, 1), (begins[b] + 1) * 100);
    }
  }
  const int32_t shorter[] = {1, 0, 2};
  p.seqused_k = shorter;
  EXPECT_EQ(seq_range(p, 0).k_len, 1);
  EXPECT_EQ(seq_range(p, 1).k_len, 0);
}

TEST(CommonAddressing, QueriesNeedNotStartAtZero) {
  const int32_t cu_q[] = {5, 7, 7};
  const int32_t used[] = {3, 9};
  AttentionParams p{};
  p.features = kPagedKv;
  p.cu_seqlens_q = cu_q;
  p.seqused_k = used;
  EXPECT_EQ(seq_range(p, 0).q_begin, 5);
  EXPECT_EQ(seq_range(p, 0).q_len, 2);
  EXPECT_EQ(seq_range(p, 1).q_begin, 7);
  EXPECT_EQ(seq_range(p, 1).q_len, 0);
  EXPECT_EQ(seq_range(p, 1).k_len, 9);
}

TEST(CommonAddressing, QueriesMayLeaveTheRestOfTheirSlot) {
  const int32_t cu_q[] = {5, 9, 12};
  const int32_t used_q[] = {3, 0};
  const int32_t used_k[] = {3, 9};
  AttentionParams p{};
  p.features = kPagedKv | kSequsedQ;
  p.cu_seqlens_q = cu_q;
  p.seqused_q = used_q;
  p.seqused_k = used_k;
  EXPECT_EQ(seq_range(p, 0).q_begin, 5);
  EXPECT_EQ(seq_range(p, 0).q_len, 3);
  EXPECT_EQ(seq_range(p, 1).q_begin, 9);
  EXPECT_EQ(seq_range(p, 1).q_len, 0);
}

TEST(CommonAddressing, PagedSlots) {
  // Three requests of 3, 2 and 1 tokens, block size 16, in blocks 0, 3 and 5: slots 0, 1, 2, 48, 49, 80.
  const int32_t table[] = {0, 0x7ffffff0, 3, 0x7ffffff0, 5, 0x7ffffff0};
  const int32_t lengths[] = {3, 2, 1};
  AttentionParams p{};
  p.features = kPagedKv;
  p.block_table = table;
  p.block_table_stride = 2;
  p.block_size = 16;
  p.k_stride_block = 16;
  p.k_stride_token = 1;
  p.v_stride_block = 32;
  p.v_stride_token = 2;
  std::vector<int64_t> slots;
  for (int b = 0; b < 3; ++b) {
    for (int row = 0; row < lengths[b]; ++row) {
      slots.push_back(k_row_offset(p, b, row));
      EXPECT_EQ(v_row_offset(p, b, row), 2 * slots.back());
    }
  }
  EXPECT_EQ(slots, (std::vector<int64_t>{0, 1, 2, 48, 49, 80}));
}

TEST(CommonAddressing, PagesCrossAndOffsetsPassTwoToThe31) {
  const int32_t table[] = {7, 2000000};
  AttentionParams p{};
  p.features = kPagedKv;
  p.block_table = table;
  p.block_table_stride = 2;
  p.block_size = 4;
  p.k_stride_block = 8192;
  p.k_stride_token = 1024;
  EXPECT_EQ(k_row_offset(p, 0, 3), 7 * 8192 + 3 * 1024);
  EXPECT_EQ(k_row_offset(p, 0, 5), int64_t{2000000} * 8192 + 1024);
}

TEST(CommonAddressing, PaddedPagesAndRowsOfTheTable) {
  const int32_t table[] = {9, 9, 6, 2, 3, 4};
  const int32_t rows[] = {2, 1};
  const int32_t leftpad[] = {1, 5};
  AttentionParams p{};
  p.features = kPagedKv;
  p.block_table = table;
  p.block_table_stride = 2;
  p.block_size = 4;
  p.k_stride_block = 100;
  p.k_stride_token = 10;
  p.cache_batch_idx = rows;
  EXPECT_EQ(k_row_offset(p, 0, 3), 330);
  EXPECT_EQ(k_row_offset(p, 1, 4), 200);
  p.cache_leftpad = leftpad;
  EXPECT_EQ(k_row_offset(p, 0, 3), 400);
  EXPECT_EQ(k_row_offset(p, 1, 0), 210);
  p.cache_batch_idx = nullptr;
  EXPECT_EQ(k_row_offset(p, 0, 0), 910);
}

TEST(CommonAddressing, ContiguousCache) {
  const int32_t rows[] = {3, 1};
  const int32_t leftpad[] = {0, 2};
  AttentionParams p{};
  p.features = kContiguousKv;
  p.k_stride_block = 1000;
  p.k_stride_token = 10;
  EXPECT_EQ(k_row_offset(p, 1, 4), 1040);
  p.cache_batch_idx = rows;
  p.cache_leftpad = leftpad;
  EXPECT_EQ(k_row_offset(p, 0, 4), 3040);
  EXPECT_EQ(k_row_offset(p, 1, 4), 1060);
}

TEST(CommonAddressing, AppendSlots) {
  KvAppendParams p{};
  p.block_size = 16;
  p.k_stride_block = 4096;
  p.k_stride_token = 256;
  p.v_stride_block = int64_t{1} << 33;
  p.v_stride_token = 1;
  EXPECT_EQ(k_slot_offset(p, 49), 3 * 4096 + 256);
  EXPECT_EQ(v_slot_offset(p, 80), (int64_t{1} << 33) * 5);
}

TEST(CommonAddressing, RowsOfOutputs) {
  AttentionParams p{};
  p.q_stride_token = 12;
  p.q_stride_head = 3;
  p.out_stride_token = 24;
  p.out_stride_head = 6;
  p.lse_stride_head = 100;
  EXPECT_EQ(q_offset(p, 5, 2), 66);
  EXPECT_EQ(out_offset(p, 5, 2), 132);
  EXPECT_EQ(lse_offset(p, 5, 2), 205);
}

}  // namespace
}  // namespace attnbench
