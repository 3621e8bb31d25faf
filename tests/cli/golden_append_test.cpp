// Three requests of 3, 2 and 1 tokens, block size 16, in blocks 0, 3 and 5: slots [0, 1, 2, 48, 49, 80].
#include <gtest/gtest.h>

#include <vector>

#include "harness/tensors/plan.h"
#include "kernels/registry.h"

namespace attnbench {
namespace {

const std::vector<int64_t> kSlots = {0, 1, 2, 48, 49, 80};

TEST(GoldenSlots, PlanHasTheSlotsOfTheExample) {
  Case c;
  c.params.op = Op::kKvAppend;
  c.params.kv = KvSource::kPaged;
  c.params.block_size = 16;
  c.params.page_layout = PageLayout::kContiguous;
  // Between the three requests are two sequences without new tokens. They hold blocks 1 and 2, and block 4.
  c.params.seqs = {{3, 3}, {0, 32}, {2, 2}, {0, 16}, {1, 1}};
  EXPECT_EQ(plan_workload(c).slot_mapping, kSlots);
}

TEST(GoldenSlots, KernelWritesThoseRowsAndNoOther) {
  constexpr int kHeads = 2, kDim = 3, kBlock = 16, kBlocks = 6;
  constexpr float kUntouched = -7.0f;
  const Kernel* kernel = nullptr;
  for (const Kernel* k : builtin_kernels()) {
    if (k->op == Op::kKvAppend && k->device == DeviceKind::kCpu) kernel = k;
  }
  ASSERT_NE(kernel, nullptr);
  for (const bool hnd : {false, true}) {
    std::vector<float> key, value;
    for (int i = 0; i < static_cast<int>(kSlots.size()) * kHeads * kDim; ++i) {
      key.push_back(static_cast<float>(100 + i));
      value.push_back(static_cast<float>(500 + i));
    }
    std::vector<float> k_cache(kBlocks * kBlock * kHeads * kDim, kUntouched), v_cache = k_cache;
    OpParams op{};
    op.op = Op::kKvAppend;
    KvAppendParams& a = op.kv_append = KvAppendParams{};
    a.features = kPagedKv | kFp32 | (hnd ? uint64_t{kHnd} : 0u);
    a.num_tokens = static_cast<int64_t>(kSlots.size());
    a.num_heads_kv = kHeads;
    a.head_dim = a.head_dim_v = kDim;
    a.dtype_in = a.dtype_k = a.dtype_v = DType::kFp32;
    a.block_size = kBlock;
    a.num_blocks = kBlocks;
    a.key = key.data();
    a.value = value.data();
    a.key_stride_token = a.value_stride_token = kHeads * kDim;
    a.key_stride_head = a.value_stride_head = kDim;
    a.slot_mapping = kSlots.data();
    a.k_cache = k_cache.data();
    a.v_cache = v_cache.data();
    a.k_stride_block = a.v_stride_block = kBlock * kHeads * kDim;
    a.k_stride_token = a.v_stride_token = hnd ? kDim : kHeads * kDim;
    a.k_stride_head = a.v_stride_head = hnd ? kBlock * kDim : kDim;
    LaunchContext context{};
    context.num_threads = 2;
    KernelMessage message{};
    ASSERT_EQ(kernel->supports(&op, &context, &message), KernelStatus::kOk) << message.text;
    ASSERT_EQ(kernel->launch(&op, &context, &message), KernelStatus::kOk) << message.text;

    std::vector<float> k_expected(k_cache.size(), kUntouched), v_expected = k_expected;
    for (std::size_t t = 0; t < kSlots.size(); ++t) {
      for (int h = 0; h < kHeads; ++h) {
        for (int c = 0; c < kDim; ++c) {
          const int64_t to = kSlots[t] / kBlock * a.k_stride_block + kSlots[t] % kBlock * a.k_stride_token +
                             h * a.k_stride_head + c;
          const std::size_t from =
              (t * kHeads + static_cast<std::size_t>(h)) * kDim + static_cast<std::size_t>(c);
          k_expected[static_cast<std::size_t>(to)] = key[from];
          v_expected[static_cast<std::size_t>(to)] = value[from];
        }
      }
    }
    EXPECT_EQ(k_cache, k_expected) << (hnd ? "hnd" : "nhd");
    EXPECT_EQ(v_cache, v_expected) << (hnd ? "hnd" : "nhd");
  }
}

}  // namespace
}  // namespace attnbench
