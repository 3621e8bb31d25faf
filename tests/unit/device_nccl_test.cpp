// Uses a library with NCCL's names (tests/unit/fake_nccl) for ranks in this process's memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "harness/device/nccl.h"
#include "tests/unit/fake_nccl/present.h"

namespace attnbench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class NcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = test::no_fake_nccl(); !why.empty()) GTEST_SKIP() << why;
  }
};

const std::vector<Nccl::Rank> kTwo = {{0, nullptr}, {1, nullptr}};

TEST_F(NcclTest, AbsentIsAReasonAndNoMore) {
  std::string why;
  EXPECT_EQ(Nccl::open(kTwo, {"libnccl-that-nobody-has.so"}, why), nullptr);
  EXPECT_THAT(why, HasSubstr("NCCL was not found (libnccl-that-nobody-has.so): install it"));
  EXPECT_EQ(Nccl::open(kTwo, {"libm.so.6"}, why), nullptr) << "a library, but another";
  EXPECT_THAT(why, HasSubstr("lacks ncclGetVersion"));
  EXPECT_EQ(Nccl::open({}, {ATTNBENCH_FAKE_NCCL}, why), nullptr) << "no rank";
  EXPECT_THAT(why, HasSubstr("ncclCommInitAll failed: invalid argument"));
}

TEST_F(NcclTest, LeavesMulticastOffUnlessItIsAskedFor) {
  std::string why;
  unsetenv("NCCL_NVLS_ENABLE");
  ASSERT_NE(Nccl::open(kTwo, {ATTNBENCH_FAKE_NCCL}, why), nullptr) << why;
  EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "0");
  setenv("NCCL_NVLS_ENABLE", "1", 1);
  ASSERT_NE(Nccl::open(kTwo, {ATTNBENCH_FAKE_NCCL}, why), nullptr) << why;
  EXPECT_STREQ(std::getenv("NCCL_NVLS_ENABLE"), "1");
  unsetenv("NCCL_NVLS_ENABLE");
}

TEST_F(NcclTest, DoesItsCollectives) {
  std::string why;
  const auto nccl = Nccl::open(kTwo, {ATTNBENCH_FAKE_NCCL}, why);
  ASSERT_NE(nccl, nullptr) << why;
  EXPECT_EQ(nccl->version(), "2.28.9");
  float a[] = {1, 2, 3, 4}, b[] = {10, 20, 30, 40}, c[8] = {}, d[8] = {};
  const std::vector<const void*> send = {a, b};
  const std::vector<void*> receive = {c, d};
  nccl->all_gather({send, receive}, sizeof a);
  EXPECT_THAT(c, ElementsAre(1, 2, 3, 4, 10, 20, 30, 40));
  EXPECT_THAT(d, ElementsAre(1, 2, 3, 4, 10, 20, 30, 40));
  nccl->reduce_scatter({send, receive}, 2, DType::kFp32);
  EXPECT_THAT(std::vector<float>(c, c + 2), ElementsAre(11, 22));
  EXPECT_THAT(std::vector<float>(d, d + 2), ElementsAre(33, 44));
  const Nccl::Buffers buffers[] = {{send, receive}};
  const int64_t bytes[] = {8};
  nccl->all_to_all(buffers, bytes);
  EXPECT_THAT(std::vector<float>(c, c + 4), ElementsAre(1, 2, 10, 20));
  EXPECT_THAT(std::vector<float>(d, d + 4), ElementsAre(3, 4, 30, 40));
}

}  // namespace
}  // namespace attnbench
