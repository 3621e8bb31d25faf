// Captured tensors: every row is found where the file's shapes say it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "harness/config/captured.h"
#include "harness/interop/captured_file.h"
#include "harness/interop/safetensors.h"
#include "tests/unit/temp_folder.h"

namespace attnbench {
namespace {

class Captured : public ::testing::Test {
 protected:
  /// Writes tensors whose elements are their own indices, from `first` on, beside these index tensors.
  Case read(const std::vector<int64_t>& kv_shape, std::vector<TensorView> more,
            const Metadata& metadata = {}) {
    const auto count = [](float first, int64_t n) {
      std::vector<float> out(static_cast<std::size_t>(n));
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = first + static_cast<float>(i);
      return out;
    };
    const std::vector<float> q = count(0, 5 * 4 * 8), k = count(1000, element_count(kv_shape)),
                             v = count(100000, element_count(kv_shape));
    more.push_back({"q", Element::kF32, {5, 4, 8}, q.data()});
    more.push_back({"k", Element::kF32, kv_shape, k.data()});
    more.push_back({"v", Element::kF32, kv_shape, v.data()});
    write_safetensors(path_, metadata, more);
    return read_tensor_case(path_, 1);
  }
  static float at(const Case& c, Tensor tensor, int seq, int pos, int head, int channel) {
    return load_float(DType::kFp32, c.params.captured->row(tensor, seq, pos, head), channel);
  }

  const std::vector<int32_t> cu_q_ = {1, 3, 5};  // the first row of q belongs to no sequence
  const test::TempFolder dir_;
  const std::string path_ = (dir_ / "capture.safetensors").string();
};

TEST_F(Captured, PackedRowsFollowCuSeqlens) {
  const std::vector<int64_t> cu_k = {2, 6, 11}, used = {3, 5};
  const Case c = read({12, 2, 8}, {{"cu_seqlens_q", Element::kI32, {3}, cu_q_.data()},
                                   {"cu_seqlens_k", Element::kI64, {3}, cu_k.data()},
                                   {"seqused_k", Element::kI64, {2}, used.data()}});
  EXPECT_EQ(c.params.seqs, (std::vector<SeqLen>{{2, 3}, {2, 5}}));
  EXPECT_EQ(at(c, Tensor::kQ, 0, 0, 0, 0), 1 * 32);
  EXPECT_EQ(at(c, Tensor::kQ, 1, 1, 3, 7), 4 * 32 + 3 * 8 + 7);
  EXPECT_EQ(at(c, Tensor::kK, 0, 2, 1, 5), 1000 + (2 + 2) * 16 + 8 + 5);
  EXPECT_EQ(at(c, Tensor::kV, 1, 4, 0, 3), 100000 + (6 + 4) * 16 + 3);
}

TEST_F(Captured, PagedRowsFollowTheBlockTable) {
  const std::vector<int32_t> used = {6, 3}, table = {2, 0, 2, -1};  // blocks of 4; both begin with block 2
  const std::vector<TensorView> index = {{"cu_seqlens_q", Element::kI32, {3}, cu_q_.data()},
                                         {"seqused_k", Element::kI32, {2}, used.data()},
                                         {"block_table", Element::kI32, {2, 2}, table.data()}};
  const Case nhd = read({3, 4, 2, 8}, index, {{"case", " {mask: causal} "}});
  EXPECT_TRUE(nhd.params.causal);
  EXPECT_EQ(nhd.params.blocks->ids(), (GivenBlocks::Ids{{2, 0}, {2}}));
  EXPECT_EQ(at(nhd, Tensor::kK, 0, 5, 1, 7), 1000 + 0 * 64 + 1 * 16 + 8 + 7);
  EXPECT_EQ(at(nhd, Tensor::kK, 1, 2, 1, 7), 1000 + 2 * 64 + 2 * 16 + 8 + 7);
  const Case hnd = read({3, 2, 4, 8}, index, {{"kv_layout", "hnd"}});
  EXPECT_EQ(hnd.params.kv_layout, KvLayout::kHnd);
  EXPECT_EQ(at(hnd, Tensor::kV, 1, 2, 1, 7), 100000 + 2 * 64 + 1 * 32 + 2 * 8 + 7);
  EXPECT_NE(nhd.id, hnd.id);
}

}  // namespace
}  // namespace attnbench
