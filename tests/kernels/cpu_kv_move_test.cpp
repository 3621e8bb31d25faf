// The cpu kv_move kernel: the whole destination is compared, byte for byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace attnbench {
namespace {

constexpr int kHeadsMoved = 3;
constexpr int kDimK = 5;
constexpr int kDimV = 7;
constexpr int kRowsMoved = 4;  ///< of a block
constexpr int kBlocksMoved = 6;

std::vector<uint8_t> bytes_like(std::size_t n, int factor, int offset) {
  std::vector<uint8_t> x(n);
  for (std::size_t i = 0; i < n; ++i)
    x[i] = static_cast<uint8_t>(i * static_cast<std::size_t>(factor) + offset);
  return x;
}

/// Two pools of kBlocksMoved blocks.
struct Move {
  OpParams params{};
  DType type;
  bool hnd;
  std::vector<uint8_t> k_src, v_src, k_dst, v_dst;
  std::vector<int64_t> pairs;
  std::vector<int32_t> table, cu, starts;
  std::vector<float> scales = {0.5f, 1.25f};
  KernelMessage message{};

  std::size_t elements(int dim) const {
    return static_cast<std::size_t>(kBlocksMoved * kRowsMoved * kHeadsMoved * dim);
  }
  Move(DType t, bool is_hnd) : type(t), hnd(is_hnd) {
    const std::size_t size = dtype_size(t);
    k_src = bytes_like(elements(kDimK) * size, 37, 11);
    v_src = bytes_like(elements(kDimV) * size, 53, 200);
    k_dst = bytes_like(elements(kDimK) * size, 7, 0);
    v_dst = bytes_like(elements(kDimV) * size, 13, 1);
    params.op = Op::kKvMove;
    KvMoveParams& p = params.kv_move;
    p = {};
    p.features = (t == DType::kFp32 ? kFp32 : t == DType::kFp16 ? kFp16 : kBf16) | kPagedKv | kHeadDimV;
    if (t == DType::kE4m3) p.features |= kE4m3Kv;
    if (hnd) p.features |= kHnd;
    p.num_heads_kv = kHeadsMoved;
    p.head_dim = kDimK;
    p.head_dim_v = kDimV;
    p.block_size = kRowsMoved;
    p.num_blocks_src = p.num_blocks_dst = kBlocksMoved;
    p.dtype_k = p.dtype_v = p.dtype_out = t;
    for (const bool is_v : {false, true}) {
      const int dim = is_v ? kDimV : kDimK;
      const int64_t block = kRowsMoved * kHeadsMoved * dim;
      const int64_t token = hnd ? dim : kHeadsMoved * dim, head = hnd ? kRowsMoved * dim : dim;
      (is_v ? p.v_src_stride_block : p.k_src_stride_block) = block;
      (is_v ? p.v_dst_stride_block : p.k_dst_stride_block) = block;
      (is_v ? p.v_src_stride_token : p.k_src_stride_token) = token;
      (is_v ? p.v_dst_stride_token : p.k_dst_stride_token) = token;
      (is_v ? p.v_src_stride_head : p.k_src_stride_head) = head;
      (is_v ? p.v_dst_stride_head : p.k_dst_stride_head) = head;
    }
    point();
  }
  void point() {
    KvMoveParams& p = params.kv_move;
    p.k_src = k_src.data();
    p.v_src = v_src.data();
    p.k_dst = k_dst.data();
    p.v_dst = v_dst.data();
    p.block_pairs = pairs.data();
    p.num_pairs = std::ssize(pairs) / 2;
  }
  /// Makes a gather of the destination, which has `rows` rows of type `out`.
  void gather(std::vector<int32_t> block_table, std::vector<int32_t> cu_seqlens,
              std::vector<int32_t> seq_starts, DType out, int rows) {
    table = std::move(block_table);
    cu = std::move(cu_seqlens);
    starts = std::move(seq_starts);
    KvMoveParams& p = params.kv_move;
    p.features |= starts.empty() ? uint64_t{kGather} : kGather | kSeqStarts;
    p.dtype_out = out;
    p.batch = static_cast<int32_t>(cu.size()) - 1;
    p.block_table = table.data();
    p.block_table_stride = std::ssize(table) / p.batch;
    p.cu_seqlens = cu.data();
    p.seq_starts = starts.empty() ? nullptr : starts.data();
    p.total_k = cu.back();
    p.k_descale = &scales[0];
    p.v_descale = &scales[1];
    p.k_dst_stride_token = kHeadsMoved * kDimK;
    p.v_dst_stride_token = kHeadsMoved * kDimV;
    p.k_dst_stride_head = kDimK;
    p.v_dst_stride_head = kDimV;
    k_dst = bytes_like(static_cast<std::size_t>(rows * kHeadsMoved * kDimK) * dtype_size(out), 7, 0);
    v_dst = bytes_like(static_cast<std::size_t>(rows * kHeadsMoved * kDimV) * dtype_size(out), 13, 1);
    p.k_dst = k_dst.data();
    p.v_dst = v_dst.data();
  }

  KernelStatus supports() {
    LaunchContext context{};
    return cpu::kKvMove.supports(&params, &context, &message);
  }
  KernelStatus launch(int threads) {
    LaunchContext context{};
    context.num_threads = threads;
    return cpu::kKvMove.launch(&params, &context, &message);
  }
  /// Element of a pool.
  std::size_t at(int64_t block, int64_t row, int head, int c, int dim) const {
    const int64_t in_block = hnd ? head * kRowsMoved + row : row * kHeadsMoved + head;
    return static_cast<std::size_t>((block * kRowsMoved * kHeadsMoved + in_block) * dim + c);
  }
};

/// The expected pool, element by element.
std::vector<uint8_t> after(const Move& m, const std::vector<uint8_t>& before,
                           const std::vector<uint8_t>& from, int dim) {
  std::vector<uint8_t> pool = before;
  const std::size_t size = dtype_size(m.type);
  for (std::size_t i = 0; i < m.pairs.size(); i += 2) {
    for (int row = 0; row < kRowsMoved; ++row) {
      for (int h = 0; h < kHeadsMoved; ++h) {
        for (int c = 0; c < dim; ++c) {
          std::memcpy(&pool[m.at(m.pairs[i + 1], row, h, c, dim) * size],
                      &from[m.at(m.pairs[i], row, h, c, dim) * size], size);
        }
      }
    }
  }
  return pool;
}

TEST(CpuKvMove, CopiesBlocksAndTouchesNothingElse) {
  for (const DType t : {DType::kBf16, DType::kFp32, DType::kE4m3}) {
    for (const bool hnd : {false, true}) {
      for (const int threads : {1, 2, 5}) {
        Move m(t, hnd);
        m.pairs = {0, 5, 3, 1, 0, 2};
        m.point();
        const auto k = after(m, m.k_dst, m.k_src, kDimK), v = after(m, m.v_dst, m.v_src, kDimV);
        ASSERT_EQ(m.supports(), KernelStatus::kOk) << m.message.text;
        ASSERT_EQ(m.launch(threads), KernelStatus::kOk) << m.message.text;
        EXPECT_EQ(m.k_dst, k);
        EXPECT_EQ(m.v_dst, v);
      }
    }
  }
}

TEST(CpuKvMove, CopiesWithinOnePool) {
  Move m(DType::kFp16, false);
  m.pairs = {0, 5, 3, 1, 0, 2};
  m.point();
  m.k_dst = m.k_src;
  m.v_dst = m.v_src;
  m.params.kv_move.k_src = m.k_dst.data();
  m.params.kv_move.v_src = m.v_dst.data();
  const auto k = after(m, m.k_dst, m.k_src, kDimK), v = after(m, m.v_dst, m.v_src, kDimV);
  ASSERT_EQ(m.launch(2), KernelStatus::kOk) << m.message.text;
  EXPECT_EQ(m.k_dst, k);
  EXPECT_EQ(m.v_dst, v);
}

TEST(CpuKvMove, BlocksOutsideAPoolAreNamedAndNothingIsWritten) {
  for (const auto& [src, dst] : {std::pair<int64_t, int64_t>{6, 0}, {-1, 0}, {0, 6}, {0, -1}}) {
    Move m(DType::kBf16, false);
    m.pairs = {1, 2, src, dst};
    m.point();
    const auto k = m.k_dst;
    EXPECT_EQ(m.launch(1), KernelStatus::kBadArgument);
    EXPECT_NE(std::string(m.message.text).find("pair 1"), std::string::npos) << m.message.text;
    EXPECT_EQ(m.k_dst, k);
  }
}

TEST(CpuKvMove, OneTensorIsKAlone) {
  Move m(DType::kBf16, false);
  m.pairs = {0, 5};
  m.point();
  KvMoveParams& p = m.params.kv_move;
  p.features = (p.features & ~uint64_t{kHeadDimV}) | kVIsK;
  p.v_src = p.v_dst = nullptr;
  const auto k = after(m, m.k_dst, m.k_src, kDimK);
  ASSERT_EQ(m.supports(), KernelStatus::kOk) << m.message.text;
  ASSERT_EQ(m.launch(2), KernelStatus::kOk) << m.message.text;
  EXPECT_EQ(m.k_dst, k);
}

/// Three sequences: rows 2 to 8 of blocks 4, 0, 3; none; rows 1 and 2 of block 2. A row lies before them, two behind.
TEST(CpuKvMove, GathersRowsByTableAndStart) {
  for (const bool hnd : {false, true}) {
    for (const int threads : {1, 3, 40}) {
      Move m(DType::kFp16, hnd);
      m.gather({4, 0, 3, -7, 5, 5, 5, 5, 2, 99, 99, 99}, {1, 8, 8, 10}, {2, 0, 1}, DType::kFp16, 12);
      std::vector<uint8_t> k = m.k_dst, v = m.v_dst;
      const std::pair<int, int> rows[] = {{4, 2}, {4, 3}, {0, 0}, {0, 1}, {0, 2},
                                          {0, 3}, {3, 0}, {2, 1}, {2, 2}};
      for (int r = 0; r < 9; ++r) {
        for (int h = 0; h < kHeadsMoved; ++h) {
          const auto [block, row] = rows[r];
          std::memcpy(&k[static_cast<std::size_t>(((r + 1) * kHeadsMoved + h) * kDimK) * 2],
                      &m.k_src[m.at(block, row, h, 0, kDimK) * 2], kDimK * 2);
          std::memcpy(&v[static_cast<std::size_t>(((r + 1) * kHeadsMoved + h) * kDimV) * 2],
                      &m.v_src[m.at(block, row, h, 0, kDimV) * 2], kDimV * 2);
        }
      }
      ASSERT_EQ(m.supports(), KernelStatus::kOk) << m.message.text;
      ASSERT_EQ(m.launch(threads), KernelStatus::kOk) << m.message.text;
      EXPECT_EQ(m.k_dst, k);
      EXPECT_EQ(m.v_dst, v);
    }
  }
}

TEST(CpuKvMove, RowsInE4m3AreMultipliedByTheirDescale) {
  for (const DType out : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    Move m(DType::kE4m3, false);
    m.params.kv_move.features &= ~uint64_t{kBf16};
    m.params.kv_move.features |= out == DType::kFp32 ? kFp32 : out == DType::kFp16 ? kFp16 : kBf16;
    m.gather({1, 3}, {0, 6}, {}, out, 6);
    ASSERT_EQ(m.supports(), KernelStatus::kOk) << m.message.text;
    ASSERT_EQ(m.launch(2), KernelStatus::kOk) << m.message.text;
    for (int r = 0; r < 6; ++r) {
      for (int c = 0; c < kDimV; ++c) {
        const float stored = e4m3_to_float(m.v_src[m.at(r < 4 ? 1 : 3, r % 4, 2, c, kDimV)]);
        const float got = load_float(out, m.v_dst.data(), (r * kHeadsMoved + 2) * kDimV + c);
        EXPECT_TRUE(std::isnan(stored) ? std::isnan(got) : got == round_to(out, stored * 1.25f))
            << r << " " << c;
      }
      const float stored = e4m3_to_float(m.k_src[m.at(r < 4 ? 1 : 3, r % 4, 0, 0, kDimK)]);
      const float got = load_float(out, m.k_dst.data(), r * kHeadsMoved * kDimK);
      EXPECT_TRUE(std::isnan(stored) ? std::isnan(got) : got == round_to(out, stored * 0.5f)) << r;
    }
  }
}

TEST(CpuKvMove, RefusesWhatContradictsItself) {
  const auto refused = [](const char* words, void (*change)(KvMoveParams&)) {
    Move m(DType::kBf16, false);
    m.gather({1, 3}, {0, 6}, {}, DType::kBf16, 6);
    change(m.params.kv_move);
    const bool taken = m.supports() == KernelStatus::kOk && m.launch(1) == KernelStatus::kOk;
    EXPECT_FALSE(taken) << words;
    EXPECT_NE(std::string(m.message.text).find(words), std::string::npos) << m.message.text;
  };
  refused("int8", [](KvMoveParams& p) { p.dtype_k = DType::kInt8; });
  refused("required for gather", [](KvMoveParams& p) {
    p.features |= kInt8K | kInt8V;
    p.dtype_k = p.dtype_v = DType::kInt8;
  });
  refused("dtype_out", [](KvMoveParams& p) { p.dtype_out = DType::kFp32; });
  refused("seq_starts", [](KvMoveParams& p) { p.features |= kSeqStarts; });
  refused("head_dim_v", [](KvMoveParams& p) { p.head_dim_v = 513; });
  refused("head_dim 1..576", [](KvMoveParams& p) { p.head_dim = 577; });
  refused("block_table", [](KvMoveParams& p) { p.block_table = nullptr; });
  refused("k_src", [](KvMoveParams& p) { p.v_src = nullptr; });
  refused("one of bf16", [](KvMoveParams& p) { p.features |= kFp32; });
}

}  // namespace
}  // namespace attnbench
