// The batch grammar: what it reads, what it writes, what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "harness/config/batch_spec.h"

namespace attnbench {
namespace {

using testing::HasSubstr;

std::vector<SeqLen> repeat(std::size_t n, SeqLen s) { return std::vector<SeqLen>(n, s); }

std::vector<SeqLen> concat(std::vector<SeqLen> a, const std::vector<SeqLen>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(BatchSpec, ReadsWhatVllmWrites) {
  EXPECT_EQ(parse_batch_spec("q2k"), repeat(1, {2048, 2048}));
  EXPECT_EQ(parse_batch_spec("q1s1k"), repeat(1, {1, 1024}));
  EXPECT_EQ(parse_batch_spec("8q1s1k"), repeat(8, {1, 1024}));
  EXPECT_EQ(parse_batch_spec("q4s1k"), repeat(1, {4, 1024}));
  EXPECT_EQ(parse_batch_spec("2q2k_32q1s1k"), concat(repeat(2, {2048, 2048}), repeat(32, {1, 1024})));
  EXPECT_EQ(parse_batch_spec("16q1s16k_8q1s4k"), concat(repeat(16, {1, 16384}), repeat(8, {1, 4096})));
  EXPECT_EQ(parse_batch_spec("4q1ks2k_64q1s4k"), concat(repeat(4, {1024, 2048}), repeat(64, {1, 4096})));
}

TEST(BatchSpec, ReadsZeroLengthsEmptyBatchesAndShortKeys) {
  EXPECT_EQ(parse_batch_spec("0q0"), repeat(0, {}));
  EXPECT_EQ(parse_batch_spec("0q5_q3"), repeat(1, {3, 3}));
  EXPECT_EQ(parse_batch_spec("q0s5"), repeat(1, {0, 5}));
  EXPECT_EQ(parse_batch_spec("q5s0"), repeat(1, {5, 0}));  // whether s < q makes sense depends on the mask
  EXPECT_EQ(parse_batch_spec("q1m"), repeat(1, {1 << 20, 1 << 20}));
}

TEST(BatchSpec, WritesTheShortestSpec) {
  EXPECT_EQ(format_batch_spec({}), "0q0");
  EXPECT_EQ(format_batch_spec(repeat(1, {2048, 2048})), "q2k");
  EXPECT_EQ(format_batch_spec(concat(repeat(8, {1, 1024}), repeat(1, {512, 512}))), "8q1s1k_q512");
  EXPECT_EQ(format_batch_spec(repeat(2, {0, 1 << 20})), "2q0s1m");
  EXPECT_EQ(format_batch_spec(repeat(1, {1023, 1025})), "q1023s1025");
}

TEST(BatchSpec, RoundTripsAnyLengths) {
  std::mt19937 random(7);
  const auto length = [&]() -> int32_t {
    const auto bits = random() % 18;
    const auto n = static_cast<int32_t>(random() & ((1u << bits) - 1u));
    return random() % 3 == 0 ? n / 64 * 1024 : n;
  };
  for (int round = 0; round < 500; ++round) {
    std::vector<SeqLen> seqs;
    const auto groups = random() % 8;
    for (unsigned g = 0; g < groups; ++g) {
      const SeqLen s = random() % 2 ? SeqLen{length(), length()} : SeqLen{1, length()};
      seqs = concat(std::move(seqs), repeat(random() % 5, s));
    }
    const std::string spec = format_batch_spec(seqs);
    ASSERT_EQ(parse_batch_spec(spec), seqs) << spec;
    ASSERT_EQ(format_batch_spec(parse_batch_spec(spec)), spec);
  }
}

TEST(BatchSpec, ReachesItsLimits) {
  EXPECT_EQ(parse_batch_spec("q1024m").at(0).q, kMaxSeqLen);
  EXPECT_EQ(parse_batch_spec("1048576q1").size(), static_cast<std::size_t>(kMaxBatch));
}

struct BadSpec {
  const char* spec;
  std::size_t offset;
  const char* message;
};

class BadSpecs : public testing::TestWithParam<BadSpec> {};

TEST_P(BadSpecs, AreRefusedAtTheRightCharacter) {
  try {
    parse_batch_spec(GetParam().spec);
    FAIL() << GetParam().spec << " was accepted";
  } catch (const BatchSpecError& e) {
    EXPECT_EQ(e.offset, GetParam().offset) << e.what();
    EXPECT_THAT(e.what(), HasSubstr(GetParam().message));
    EXPECT_THAT(e.what(), HasSubstr("allowed: segments [COUNT]qLEN[k|m][sTOTAL[k|m]]"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    BatchSpec, BadSpecs,
    testing::Values(
        BadSpec{"", 0, "is empty"}, BadSpec{"Q5", 0, "did you mean 'q'?"},
        BadSpec{"4Q5", 1, "did you mean 'q'?"}, BadSpec{"512", 3, "did you mean 'q512'?"},
        BadSpec{"q5_7", 4, "did you mean 'q7'?"}, BadSpec{"q5S7", 2, "did you mean 's'?"},
        BadSpec{"q5K", 2, "did you mean 'k' (1024)?"}, BadSpec{"q5s1M", 4, "did you mean 'm' (1024^2)?"},
        BadSpec{"4", 1, "needs 'q' at character 2, got the end"}, BadSpec{"4x512", 1, "got 'x'"},
        BadSpec{"s5", 0, "needs a count or 'q'"}, BadSpec{"q", 1, "a query length must follow"},
        BadSpec{"q5s", 3, "a key length must follow, got the end"}, BadSpec{"q5_", 3, "needs a count or 'q'"},
        BadSpec{"_q5", 0, "got '_'"}, BadSpec{"q5__q6", 3, "got '_'"},
        BadSpec{"q5,q6", 2, "did you mean '_'?"}, BadSpec{"q5 ", 2, "got ' '"}, BadSpec{" q5", 0, "got ' '"},
        BadSpec{"q-5", 1, "got '-'"}, BadSpec{"q1.5k", 2, "got '.'"}, BadSpec{"q5kk", 3, "got 'k'"},
        BadSpec{"q5g", 2, "got 'g' at character 3, behind a length"},
        BadSpec{"4q1s2x", 5, "a length is a number of tokens, alone or with k (1024) or m (1024^2)"},
        BadSpec{"8q1kv1k", 4, "key lengths are written with 's'"}, BadSpec{"q\xc3\xa9", 1, "got '\xc3\xa9'"},
        BadSpec{"q1073741825", 1, "the query length may be 1073741824 at most"},
        BadSpec{"q1s1025m", 3, "the key length may be 1073741824 at most"},
        BadSpec{"q99999999999999999999999999999", 1, "the query length may be"},
        BadSpec{"99999999999999999999q1", 0, "the count may be 1048576 at most"},
        BadSpec{"q1_1048576q1", 3, "the number of sequences may be 1048576 at most"},
        BadSpec{"2q1024m", 0, "the total of query lengths may be 2147483647 at most"},
        BadSpec{"q5_4096q0s1m", 3, "the total of key lengths may be 2147483647 at most"}));

}  // namespace
}  // namespace attnbench
