// fill_host and digest_host.
#include "harness/values/fill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include <cstring>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace attnbench {
namespace {

constexpr unsigned char kUntouched = 0x5a;

struct Layout {
  const char* name;
  int64_t block_size, stride_block, stride_token, stride_head;
};

// 21 rows of 3 heads of 5 channels, in rows of 6 elements or more.
constexpr int64_t kRows = 21;
constexpr int32_t kHeads = 3;
constexpr int32_t kDim = 5;
constexpr Layout kLayouts[] = {
    {"plain", kRows, 0, 18, 6},
    {"NHD blocks", 4, 80, 18, 6},
    {"HND blocks", 4, 90, 6, 28},
};
constexpr std::size_t kElements = 600;

std::vector<RowOwner> some_owners() {
  std::vector<RowOwner> owners;
  for (int32_t r = 0; r < kRows; ++r)
    owners.push_back(r % 5 == 2 ? RowOwner{-1, 0} : RowOwner{r % 4, 1000 * r});
  return owners;
}

TEST(FillTest, EveryElementIsItsValuePoisonOrUntouched) {
  const std::vector<RowOwner> owners = some_owners();
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    for (const Layout& layout : kLayouts) {
      SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + layout.name);
      const std::size_t size = dtype_size(dtype);
      std::vector<unsigned char> got(kElements * size, kUntouched), expected = got;
      FillJob job{};
      job.base = got.data();
      job.dtype = dtype;
      job.tensor = Tensor::kV;
      job.spec = {7, Profile::kOutlier};
      job.num_rows = kRows;
      job.block_size = layout.block_size;
      job.stride_block = layout.stride_block;
      job.stride_token = layout.stride_token;
      job.stride_head = layout.stride_head;
      job.num_heads = kHeads;
      job.head_dim = kDim;
      job.owners = owners.data();
      fill_host(job);

      for (int64_t r = 0; r < kRows; ++r) {
        const RowOwner owner = owners[static_cast<std::size_t>(r)];
        for (int32_t h = 0; h < kHeads; ++h) {
          const int64_t at = r / layout.block_size * layout.stride_block +
                             r % layout.block_size * layout.stride_token + h * layout.stride_head;
          for (uint32_t c = 0; c < kDim; ++c) {
            if (owner.seq < 0) {
              std::memset(expected.data() + static_cast<std::size_t>(at + c) * size, 0xff, size);
              continue;
            }
            float quad[4];
            values_of_quad(job.spec, job.tensor, static_cast<uint32_t>(owner.seq),
                           static_cast<uint32_t>(owner.pos), static_cast<uint32_t>(h), c / 4, quad);
            store_float(dtype, expected.data(), at + c, quad[c % 4]);
          }
        }
      }
      EXPECT_EQ(got, expected);
    }
  }
}

TEST(FillTest, PoisonIsNaN) {
  const RowOwner owner{-1, 0};
  for (const DType dtype : {DType::kBf16, DType::kFp16, DType::kFp32}) {
    std::vector<float> memory(8, 0.0f);
    FillJob job{};
    job.base = memory.data();
    job.dtype = dtype;
    job.num_rows = job.block_size = 1;
    job.num_heads = 1;
    job.head_dim = 3;
    job.owners = &owner;
    fill_host(job);
    for (int c = 0; c < 3; ++c) {
      const float x = load_float(dtype, memory.data(), c);
      EXPECT_NE(x, x) << dtype_name(dtype);
    }
    EXPECT_EQ(load_float(dtype, memory.data(), 3), 0.0f) << dtype_name(dtype);
  }
}

TEST(FillTest, NothingToDo) {
  FillJob job{};
  job.block_size = 1;
  EXPECT_NO_THROW(fill_host(job));
}

TEST(FillTest, Int8UsesItsRangeUnderEveryProfile) {
  std::vector<RowOwner> owners;
  for (int pos = 0; pos < 64; ++pos) owners.push_back({0, pos});
  owners.push_back({-1, 0});
  for (const Profile profile :
       {Profile::kNormal, Profile::kPeaked, Profile::kOutlier, Profile::kLarge, Profile::kHuge}) {
    for (const Tensor tensor : {Tensor::kQ, Tensor::kK, Tensor::kV}) {
      std::vector<int8_t> memory(owners.size() * 64);
      FillJob job{};
      job.base = memory.data();
      job.dtype = DType::kInt8;
      job.tensor = tensor;
      job.spec = {7, profile};
      job.num_rows = job.block_size = static_cast<int64_t>(owners.size());
      job.stride_token = job.head_dim = 64;
      job.num_heads = 1;
      job.owners = owners.data();
      fill_host(job);
      const float factor = int8_factor(profile, tensor);
      int largest = 0;
      for (int pos = 0; pos < 64; ++pos) {
        float values[64];
        value_row(job.spec, tensor, 0, static_cast<uint32_t>(pos), 0, 64, values);
        for (int c = 0; c < 64; ++c) {
          const float stored = memory[static_cast<std::size_t>(pos * 64 + c)];
          EXPECT_LE(std::abs(stored - values[c] * factor), 0.5f);
          largest = std::max(largest, static_cast<int>(std::abs(stored)));
        }
      }
      EXPECT_GE(largest, 90) << profile_name(profile);
      EXPECT_LE(largest, 120) << profile_name(profile);
      for (int c = 0; c < 64; ++c) EXPECT_EQ(memory[64 * 64 + static_cast<std::size_t>(c)], -128);
    }
  }
}

TEST(FillTest, E2m1UsesItsRangeUnderEveryProfileAndPutsTheFirstNumberLow) {
  std::vector<RowOwner> owners;
  for (int pos = 0; pos < 64; ++pos) owners.push_back({0, pos});
  owners.push_back({-1, 0});
  for (const Profile profile :
       {Profile::kNormal, Profile::kPeaked, Profile::kOutlier, Profile::kLarge, Profile::kHuge}) {
    for (const Tensor tensor : {Tensor::kK, Tensor::kV}) {
      std::vector<uint8_t> memory(owners.size() * 16);
      FillJob job{};
      job.base = memory.data();
      job.dtype = DType::kE2m1x2;
      job.tensor = tensor;
      job.spec = {7, profile};
      job.num_rows = job.block_size = static_cast<int64_t>(owners.size());
      job.stride_token = 16;
      job.head_dim = 32;
      job.num_heads = 1;
      job.owners = owners.data();
      fill_host(job);
      float largest = 0;
      for (int pos = 0; pos < 64; ++pos) {
        float values[32];
        value_row(job.spec, tensor, 0, static_cast<uint32_t>(pos), 0, 32, values);
        for (int c = 0; c < 32; ++c) {
          const auto byte = memory[static_cast<std::size_t>(16 * pos + c / 2)];
          const auto code = static_cast<uint8_t>(c % 2 == 0 ? byte & 15 : byte >> 4);
          EXPECT_EQ(code, float_to_e2m1(values[c] * e2m1_factor(profile, tensor)));
          largest = std::max(largest, std::fabs(e2m1_to_float(code)));
        }
      }
      EXPECT_GE(largest, 4) << profile_name(profile);
      for (int c = 0; c < 16; ++c) EXPECT_EQ(memory[64 * 16 + static_cast<std::size_t>(c)], 0xff);
    }
  }
}

TEST(FillTest, PartsOfARow) {
  const RowOwner owners[] = {{2, 9}, {-1, 0}};
  float whole[24], part[16];
  value_row({7, Profile::kOutlier}, Tensor::kK, 2, 9, 1, 24, whole);
  FillJob job{};
  job.base = part;
  job.dtype = DType::kFp32;
  job.tensor = Tensor::kK;
  job.spec = {7, Profile::kOutlier};
  job.num_rows = 1;
  job.block_size = 1;
  job.stride_head = 8;
  job.num_heads = 2;
  job.head_dim = 8;
  job.first_channel = 16;
  job.owners = owners;
  fill_host(job);
  for (int c = 0; c < 8; ++c) EXPECT_EQ(part[8 + c], whole[16 + c]);
  job.first_channel = 0;
  job.block_scales = true;
  fill_host(job);
  for (uint32_t c = 0; c < 8; ++c) EXPECT_EQ(part[8 + c], block_scale(job.spec, Tensor::kK, 2, 9, 1, c));
}

TEST(DigestTest, SumOfMixedWordsInAnyOrder) {
  std::vector<unsigned char> data(8 * 1000 + 3);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i * 31 + i / 256);
  std::vector<uint64_t> words(1001, 0);
  std::memcpy(words.data(), data.data(), data.size());  // the tail is padded with zeros
  uint64_t backwards = 0;
  for (std::size_t i = words.size(); i-- > 0;) backwards += digest_word(words[i], i);
  EXPECT_EQ(digest_host(data.data(), static_cast<int64_t>(data.size())), backwards);
}

TEST(DigestTest, SeesWhatItShould) {
  std::vector<unsigned char> data(100, 0);
  const auto digest = [&] { return digest_host(data.data(), static_cast<int64_t>(data.size())); };
  const uint64_t before = digest();
  for (const std::size_t at : {std::size_t{0}, std::size_t{55}, std::size_t{99}}) {
    data[at] ^= 1;
    EXPECT_NE(digest(), before) << at;
    data[at] ^= 1;
  }
  EXPECT_EQ(digest(), before);
  data[0] = 1;
  const uint64_t first = digest();
  data[0] = 0;
  data[8] = 1;  // the same word at another place
  EXPECT_NE(digest(), first);
  EXPECT_EQ(digest_host(nullptr, 0), 0u);
}

TEST(DigestTest, UnalignedStart) {
  std::vector<unsigned char> data(65);
  std::iota(data.begin(), data.end(), static_cast<unsigned char>(1));
  const std::vector<unsigned char> copy(data.begin() + 1, data.end());
  EXPECT_EQ(digest_host(data.data() + 1, 64), digest_host(copy.data(), 64));
}

}  // namespace
}  // namespace attnbench
