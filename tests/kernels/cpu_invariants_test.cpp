// Changes that must not alter a bit of the cpu kernel's result: page layout, batch, number of threads,
// repetition.
#include <gtest/gtest.h>

#include "kernels/cpu/schedule.h"
#include "tests/kernels/cpu_attention_layout.h"

namespace attnbench {
namespace {

using testing::Cache;
using testing::Layout;
using testing::Problem;
using testing::Result;
using testing::run;
using testing::Seq;
using testing::Slopes;

/// Decode, prefill, chunked prefill, speculative decode, and contexts long enough to be split in both paths.
Problem serving_batch(DType t) {
  Problem p{.seqs = {{1, 5000}, {100, 100}, {40, 2500}, {3, 77}, {1, 1}, {130, 260}, {1, 2100}}};
  p.heads_q = 6;
  p.heads_kv = 2;
  p.dim = 40;
  p.dtype = t;
  p.dtype_out = t;
  p.causal = true;
  return p;
}

/// The same batch with every term of the score: softcap, ALiBi and sinks.
Problem serving_batch_with_terms(DType t) {
  Problem p = serving_batch(t);
  p.softcap = 20.0f;
  p.alibi = Slopes::kPerSequence;
  p.sinks = true;
  return p;
}

/// Compares all layouts of the KV cache with packed keys.
void expect_layouts_agree(Problem p) {
  const Result packed = run(p);
  p.gaps = true;
  EXPECT_TRUE(packed == run(p)) << "gaps";
  p.gaps = false;
  for (const int block_size : {1, 16, 64, 256}) {
    for (const bool hnd : {false, true}) {
      for (const unsigned shuffle : {1u, 2u}) {
        p.block_size = block_size;
        p.hnd = hnd;
        p.shuffle = shuffle;
        EXPECT_TRUE(packed == run(p))
            << dtype_name(p.dtype) << " block_size " << block_size << " hnd " << hnd;
      }
    }
  }
  p.block_size = 0;
  p.hnd = false;
  for (const Cache cache : {Cache::kRows, Cache::kIndexed}) {
    for (const unsigned shuffle : {1u, 2u}) {
      p.cache = cache;
      p.shuffle = shuffle;
      EXPECT_TRUE(packed == run(p)) << dtype_name(p.dtype) << " contiguous";
    }
  }
}

TEST(CpuInvariants, PackedPagedAndContiguousAgree) {
  for (const DType t : testing::kDTypes) {
    expect_layouts_agree(serving_batch(t));
    expect_layouts_agree(serving_batch_with_terms(t));
  }
}

TEST(CpuInvariants, ThreadsDoNotMatter) {
  for (const Problem& p : {serving_batch(DType::kBf16), serving_batch_with_terms(DType::kBf16)}) {
    Layout layout(p);
    const Result one = layout.run(1);
    for (const int threads : {1, 2, 5, 16}) EXPECT_TRUE(one == layout.run(threads)) << threads;
  }
}

// So many splits that few threads run those of a tile one after the other, in memory of their own.
TEST(CpuInvariants, NeitherDoThreadsThatMergeTheirOwnSplits) {
  Problem p{.seqs = {{70, 300}, {60, 290}, {1, 0}}};
  p.heads_q = p.heads_kv = 8;
  p.dim = 256;
  Layout layout(p);
  AttentionParams& params = layout.params().attention;
  params.features |= kSplitKv;
  params.num_splits = 300;
  cpu::Schedule few, many;
  cpu::make_schedule(params, 1, few);
  cpu::make_schedule(params, 64, many);
  EXPECT_EQ(few.partial_floats, 0);
  EXPECT_EQ(few.thread_floats, int64_t{300} * 70 * 258)
      << "of one tile and head; a split without keys has none";
  EXPECT_EQ(many.partial_floats, int64_t{8} * 258 * (300 * 70 + 290 * 60));
  EXPECT_TRUE(layout.run(1) == layout.run(64));
}

/// Compares each sequence in the batch with the same sequence alone.
void expect_batch_invariant(const Problem& batch) {
  const Result together = run(batch);
  const std::size_t row = static_cast<std::size_t>(batch.heads_q) * batch.dim;
  const int total = 1 + 100 + 40 + 3 + 1 + 130 + 1;
  int begin = 0;
  for (std::size_t b = 0; b < batch.seqs.size(); ++b) {
    Problem alone = batch;
    alone.seqs = {{batch.seqs[b].q, batch.seqs[b].k, static_cast<int>(b)}};
    const Result result = run(alone, 5);
    const int q = batch.seqs[b].q;
    EXPECT_EQ(0, std::memcmp(result.out.data(), together.out.data() + begin * row, q * row * sizeof(float)))
        << b;
    for (int h = 0; h < batch.heads_q; ++h) {
      EXPECT_EQ(0, std::memcmp(result.lse.data() + h * q, together.lse.data() + h * total + begin,
                               q * sizeof(float)));
    }
    begin += q;
  }
}

TEST(CpuInvariants, AloneAndInABatchAgree) {
  expect_batch_invariant(serving_batch(DType::kBf16));
  Problem p = serving_batch_with_terms(DType::kBf16);
  expect_batch_invariant(p);
  p.cache = Cache::kIndexed;
  expect_batch_invariant(p);
}

TEST(CpuInvariants, RunsRepeat) {
  for (const DType t : testing::kDTypes) {
    for (const Problem& p : {serving_batch(t), serving_batch_with_terms(t)}) {
      Layout layout(p);
      const Result first = layout.run(5);
      for (int i = 0; i < 3; ++i) EXPECT_TRUE(first == layout.run(5));
    }
  }
}

TEST(CpuInvariants, InputsStayAsTheyWere) {
  Layout layout(serving_batch(DType::kFp32));
  const AttentionParams& p = layout.params().attention;
  const std::size_t bytes = static_cast<std::size_t>(p.cu_seqlens_k[p.batch] + 2) * p.k_stride_token * 4;
  const std::vector<char> k(static_cast<const char*>(p.k), static_cast<const char*>(p.k) + bytes);
  const std::vector<char> v(static_cast<const char*>(p.v), static_cast<const char*>(p.v) + bytes);
  layout.run();
  EXPECT_EQ(0, std::memcmp(k.data(), p.k, bytes));
  EXPECT_EQ(0, std::memcmp(v.data(), p.v, bytes));
}

}  // namespace
}  // namespace attnbench
