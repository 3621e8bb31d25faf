// Shared prefixes and paths: what is refused, what a cascade saves, which rank holds which key, what it
// costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/cases/case.h"
#include "harness/cases/cost.h"
#include "harness/cases/paths.h"

namespace attnbench {
namespace {

using ::testing::HasSubstr;

Case one(const std::string& mapping) {
  const std::vector<Case> cases = expand(parse_inline_case(mapping)).cases;
  if (cases.size() != 1) throw std::logic_error("one case wanted: " + mapping);
  return cases[0];
}

const std::string kShared = "kv: paged, page_layout: shared_prefix, shared_prefix: 32";

TEST(Paths, EachCaseComesBackFromItsYaml) {
  for (const std::string& mapping :
       {"{" + kShared + ", batch: 3q1s64}", "{" + kShared + ", path: cascade, batch: 3q1s64}",
        std::string("{kv: paged, path: dcp, dcp_ranks: 3, dcp_interleave: 4, batch: 3q1s64}"),
        std::string("{path: split_decode, decode_threshold: 2, batch: 3q2s64_q9}")}) {
    const Case c = one(mapping);
    const Case again = one(case_yaml(c.params));
    EXPECT_EQ(again.params, c.params) << mapping;
    EXPECT_EQ(again.id, c.id);
  }
  EXPECT_THAT(one("{" + kShared + ", path: cascade, batch: q1s64}").id, HasSubstr("-shared32/"));
  EXPECT_THAT(one("{" + kShared + ", path: cascade, batch: q1s64}").id, HasSubstr("/cascade/"));
  EXPECT_EQ(one("{path: one_call, shared_prefix: 32, dcp_ranks: 5, batch: q1s64}").id,
            one("{batch: q1s64}").id)
      << "keys of other paths and layouts do not make another case";
}

struct Refusal {
  const char* mapping;
  const char* why;
};
class IllegalPath : public ::testing::TestWithParam<Refusal> {};
TEST_P(IllegalPath, IsRefusedWithTheReason) {
  try {
    one(GetParam().mapping);
    FAIL() << GetParam().mapping;
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), HasSubstr(GetParam().why));
  }
}
INSTANTIATE_TEST_SUITE_P(
    All, IllegalPath,
    ::testing::Values(
        Refusal{"{page_layout: shared_prefix, shared_prefix: 32, batch: q1s64}", "only paged KV has"},
        Refusal{"{kv: paged, page_layout: shared_prefix, batch: q1s64}", "whole pages"},
        Refusal{"{kv: paged, page_layout: shared_prefix, shared_prefix: 33, batch: q1s64}", "whole pages"},
        Refusal{"{kv: paged, page_layout: shared_prefix, shared_prefix: 64, batch: q1s62_q1s63}",
                "sequence 0 has 62"},
        Refusal{
            "{kv: paged, page_layout: shared_prefix, shared_prefix: 64, path: cascade, mask: none, batch: "
            "q1s64_q1s63}",
            "sequence 1 has 63"},
        Refusal{"{op: kv_append, page_layout: shared_prefix, shared_prefix: 32, batch: q1s64}",
                "must not be"},
        Refusal{"{kv: paged, path: cascade, batch: q1s64}", "page_layout: shared_prefix"},
        Refusal{
            "{kv: paged, page_layout: shared_prefix, shared_prefix: 32, path: cascade, mask: causal, batch: "
            "q8s39}",
            "stands at 31"},
        Refusal{"{kv: paged, page_layout: shared_prefix, shared_prefix: 32, path: cascade, window: \"9,0\", "
                "batch: q1s64}",
                "a window counts"},
        Refusal{"{kv: paged, page_layout: shared_prefix, shared_prefix: 32, path: cascade, alibi: per_head, "
                "batch: q1s64}",
                "ALiBi counts"},
        Refusal{"{path: split_decode, batch: q9_q1s64}", "sequence 1 with 1 queries stands behind"},
        Refusal{"{path: dcp, batch: q1s64}", "a paged cache of its own"},
        Refusal{"{kv: paged, path: dcp, mask: causal, batch: q2s64}", "no launch of path: dcp can say"},
        Refusal{"{kv: paged, path: dcp, window: \"9,0\", batch: q1s64}", "a window counts"},
        Refusal{"{kv: paged, path: dcp, alibi: per_head, batch: q1s64}", "ALiBi counts"},
        Refusal{"{kv: paged, path: split_decode, append: in_call, batch: q1s64}", "written by one call"}));

TEST(Dcp, EveryKeyLiesOnTheRankThatCountsIt) {
  for (const int32_t ranks : {2, 3, 8}) {
    for (const int32_t interleave : {1, 4, 16}) {
      for (const int32_t len : {0, 1, 5, 16, 47, 48, 49, 200}) {
        std::vector<int32_t> held(static_cast<std::size_t>(ranks), 0);
        for (int32_t j = 0; j < len; ++j) {
          const int32_t rank = j / interleave % ranks;
          const int32_t local = held[static_cast<std::size_t>(rank)]++;
          EXPECT_EQ(dcp_global_pos(local, ranks, interleave, rank), j);
        }
        for (int32_t rank = 0; rank < ranks; ++rank) {
          EXPECT_EQ(dcp_local_len(len, ranks, interleave, rank), held[static_cast<std::size_t>(rank)])
              << len << " keys, rank " << rank << " of " << ranks << " by " << interleave;
        }
      }
    }
  }
}

TEST(PathCost, SharedKeysAreReadAndHeldOnce) {
  const std::string batch = "heads: 4/2, head_dim: 8, batch: 3q1s40}";
  const CaseCost apart = cost_of(one("{kv: paged, " + batch).params);
  const CaseCost shared = cost_of(one("{" + kShared + ", " + batch).params);
  const double row = 2 * 2 * 2 * 8;  // K and V of one token: 2 heads of 8 channels in bf16
  EXPECT_EQ(shared.flop, apart.flop);
  EXPECT_EQ(apart.bytes - shared.bytes, row * 2 * 32);
  EXPECT_EQ(apart.device_bytes - shared.device_bytes, row * 2 * 32);
  const CaseCost cascade = cost_of(one("{" + kShared + ", path: cascade, " + batch).params);
  EXPECT_EQ(cascade.bytes, shared.bytes) << "the least traffic is that of the problem, not of the path";
  EXPECT_EQ(cascade.device_bytes - shared.device_bytes, 2.0 * 3 * 4 * (2 * 8 + 4));
}

TEST(PathCost, AWindowPastTheSharedPrefixReadsNoneOfIt) {
  const std::string keys = "heads: 4/2, head_dim: 8, mask: causal, window: \"7,0\", batch: 3q1s40}";
  EXPECT_EQ(cost_of(one("{" + kShared + ", " + keys).params).bytes,
            cost_of(one("{kv: paged, " + keys).params).bytes);
}

TEST(PathCost, RanksHoldWholeBlocksOfTheirOwn) {
  const std::string batch = "heads: 4/2, head_dim: 8, batch: q1s40}";
  const CaseCost one_rank = cost_of(one("{kv: paged, " + batch).params);  // 3 blocks of 16
  const CaseCost dcp = cost_of(one("{kv: paged, path: dcp, dcp_ranks: 4, " + batch).params);  // 4 of 10 keys
  const double row = 2 * 2 * 2 * 8;
  EXPECT_EQ(dcp.bytes - one_rank.bytes, 4.0);  // one more entry of a block table
  EXPECT_EQ(dcp.device_bytes - one_rank.device_bytes, row * 16 + 4.0 * 4 * (2 * 8 + 4));
}

}  // namespace
}  // namespace attnbench
