// Offsets past 2^31 elements, in memory that is reserved but not allocated: only the pages that a launch
// touches become real. The rows hold the same values as in a small pool, so the result must have the same
// bits.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace attnbench {
namespace {

constexpr int kFarHeads = 2, kFarDim = 64, kFarBlock = 16;
constexpr int64_t kRow = int64_t{kFarHeads} * kFarDim;
constexpr int64_t kPast = int64_t{1} << 31;  ///< elements

/// Address space for twice 2^31 elements before and after the data, so that an offset that wraps reads zeros
/// and not another mapping.
class FarMemory {
 public:
  FarMemory() {
    base_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~FarMemory() {
    if (ok()) munmap(base_, kBytes);
  }
  FarMemory(const FarMemory&) = delete;
  FarMemory& operator=(const FarMemory&) = delete;
  bool ok() const { return base_ != MAP_FAILED; }
  float* middle() const { return static_cast<float*>(base_) + 2 * kPast; }

 private:
  static constexpr std::size_t kBytes = 4 * kPast * sizeof(float);
  void* base_;
};

float value(int tensor, int64_t row, int64_t channel) {
  return static_cast<float>((row * 131 + channel * 37 + tensor * 71) % 97) / 48.0f - 1.0f;
}
void fill_row(float* row, int tensor, int64_t number) {
  for (int64_t c = 0; c < kRow; ++c) row[c] = value(tensor, number, c);
}

constexpr int kQueries = 3, kKeys = 40;

struct FarResult {
  std::vector<float> out, lse;
  KernelStatus status;
  std::string message;
};

/// Where the parts of one sequence are, in rows.
struct Places {
  uint64_t source = kPagedKv;
  int32_t q_row = 0;
  std::vector<int32_t> blocks = {0, 1, 2};  ///< paged: blocks of 16 keys; contiguous: the cache row
  int32_t k_row = 0;                        ///< packed
};

FarResult attend(const Places& at, float* q, float* k, float* v, float* out) {
  AttentionParams a{};
  a.features = at.source | kFp32 | kCausal;
  a.batch = 1;
  a.num_heads_q = a.num_heads_kv = kFarHeads;
  a.head_dim = kFarDim;
  a.max_seqlen_q = kQueries;
  a.max_seqlen_k = kKeys;
  a.total_q = int64_t{at.q_row} + kQueries;
  a.dtype_q = a.dtype_k = a.dtype_v = a.dtype_out = DType::kFp32;
  a.q_stride_token = a.out_stride_token = a.k_stride_token = a.v_stride_token = kRow;
  a.q_stride_head = a.out_stride_head = a.k_stride_head = a.v_stride_head = kFarDim;
  a.causal = 1;
  a.window_left = a.window_right = -1;
  a.softmax_scale = 0.125f;
  const int64_t rows_of_block = at.source == kPagedKv ? kFarBlock : 64;
  if (at.source != kPackedKv) a.k_stride_block = a.v_stride_block = rows_of_block * kRow;
  const int32_t cu_q[2] = {at.q_row, at.q_row + kQueries};
  const int32_t cu_k[2] = {at.k_row, at.k_row + kKeys};
  const int32_t used = kKeys;
  a.cu_seqlens_q = cu_q;
  if (at.source == kPackedKv) {
    a.cu_seqlens_k = cu_k;
  } else {
    a.seqused_k = &used;
  }
  if (at.source == kPagedKv) {
    a.block_size = kFarBlock;
    a.block_table = at.blocks.data();
    a.block_table_stride = static_cast<int64_t>(at.blocks.size());
  }
  if (at.source == kContiguousKv) {
    a.cache_batch_idx = at.blocks.data();
    a.cache_capacity = rows_of_block;
  }
  a.num_blocks = 0x7fffffff;
  for (int i = 0; i < kQueries; ++i) fill_row(q + (int64_t{at.q_row} + i) * kRow, 0, i);
  for (int j = 0; j < kKeys; ++j) {
    const int64_t row =
        at.source == kPackedKv ? int64_t{at.k_row} + j
        : at.source == kPagedKv
            ? int64_t{at.blocks[static_cast<std::size_t>(j / kFarBlock)]} * kFarBlock + j % kFarBlock
            : int64_t{at.blocks[0]} * rows_of_block + j;
    fill_row(k + row * kRow, 1, j);
    fill_row(v + row * kRow, 2, j);
  }
  // One LSE per (head, token). A stride of its own keeps the array small; its start is before the first row.
  std::vector<float> lse(kFarHeads * kQueries);
  a.lse_stride_head = kQueries;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): arithmetic on the pointer itself would leave its array
  a.lse = reinterpret_cast<float*>(reinterpret_cast<uintptr_t>(lse.data()) -
                                   sizeof(float) * static_cast<uintptr_t>(at.q_row));
  a.q = q;
  a.k = k;
  a.v = v;
  a.out = out;
  OpParams op{};
  op.op = Op::kAttention;
  op.attention = a;
  LaunchContext context{};
  context.num_threads = 1;
  KernelMessage message{};
  std::vector<unsigned char> workspace(cpu::kAttention.workspace_bytes(&op, &context));
  context.workspace = workspace.data();
  context.workspace_bytes = workspace.size();
  FarResult r;
  r.status = cpu::kAttention.launch(&op, &context, &message);
  r.message = message.text;
  const float* first = out + int64_t{at.q_row} * kRow;
  r.out.assign(first, first + kQueries * kRow);
  r.lse = lse;
  return r;
}

FarResult near_result() {
  std::vector<float> q(8 * kRow), k(64 * kRow), v(64 * kRow), out(8 * kRow);
  return attend({}, q.data(), k.data(), v.data(), out.data());
}

void expect_near_result(const Places& far) {
  const FarMemory q, k, v, out;
  if (!q.ok() || !k.ok() || !v.ok() || !out.ok()) GTEST_SKIP() << "no 32 GiB of address space";
  const FarResult near = near_result();
  ASSERT_EQ(near.status, KernelStatus::kOk) << near.message;
  const FarResult r = attend(far, q.middle(), k.middle(), v.middle(), out.middle());
  ASSERT_EQ(r.status, KernelStatus::kOk) << r.message;
  EXPECT_EQ(r.out, near.out);
  EXPECT_EQ(r.lse, near.lse);
}

TEST(FarOffsets, Pages) {
  const int32_t past = static_cast<int32_t>(kPast / (kFarBlock * kRow));
  expect_near_result({.blocks = {past + 7, past - 1, 3}});
  expect_near_result({.blocks = {1, 2 * past - 1, past}});
}
TEST(FarOffsets, RowsOfACache) {
  expect_near_result({.source = kContiguousKv, .blocks = {static_cast<int32_t>(kPast / (64 * kRow)) + 5}});
}
TEST(FarOffsets, PackedKeys) {
  expect_near_result({.source = kPackedKv, .blocks = {}, .k_row = static_cast<int32_t>(kPast / kRow) - 20});
}
TEST(FarOffsets, QueriesAndOutputs) { expect_near_result({.q_row = static_cast<int32_t>(kPast / kRow) - 1}); }

TEST(FarOffsets, AppendedRows) {
  const FarMemory k, v;
  if (!k.ok() || !v.ok()) GTEST_SKIP() << "no 32 GiB of address space";
  std::vector<float> key(2 * kRow), value_rows(2 * kRow);
  for (int t = 0; t < 2; ++t) {
    fill_row(&key[static_cast<std::size_t>(t * kRow)], 1, t);
    fill_row(&value_rows[static_cast<std::size_t>(t * kRow)], 2, t);
  }
  const std::vector<int64_t> slots = {kPast / kRow + 5, 2 * kPast / kRow - 1};
  OpParams op{};
  op.op = Op::kKvAppend;
  KvAppendParams& p = op.kv_append = KvAppendParams{};
  p.features = kPagedKv | kFp32;
  p.num_tokens = 2;
  p.num_heads_kv = kFarHeads;
  p.head_dim = p.head_dim_v = kFarDim;
  p.dtype_in = p.dtype_k = p.dtype_v = DType::kFp32;
  p.block_size = kFarBlock;
  p.num_blocks = static_cast<int32_t>(2 * kPast / (kFarBlock * kRow));
  p.key = key.data();
  p.value = value_rows.data();
  p.slot_mapping = slots.data();
  p.key_stride_token = p.value_stride_token = p.k_stride_token = p.v_stride_token = kRow;
  p.key_stride_head = p.value_stride_head = p.k_stride_head = p.v_stride_head = kFarDim;
  p.k_stride_block = p.v_stride_block = kFarBlock * kRow;
  p.k_cache = k.middle();
  p.v_cache = v.middle();
  LaunchContext context{};
  context.num_threads = 1;
  KernelMessage message{};
  ASSERT_EQ(cpu::kKvAppend.launch(&op, &context, &message), KernelStatus::kOk) << message.text;
  for (std::size_t t = 0; t < 2; ++t) {
    const auto same = [&](const float* row, const std::vector<float>& rows) {
      return std::equal(row, row + kRow, rows.begin() + static_cast<std::ptrdiff_t>(t) * kRow);
    };
    EXPECT_TRUE(same(k.middle() + slots[t] * kRow, key));
    EXPECT_TRUE(same(v.middle() + slots[t] * kRow, value_rows));
  }
}

}  // namespace
}  // namespace attnbench
