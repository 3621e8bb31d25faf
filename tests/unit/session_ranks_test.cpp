// Path dcp with each rank on a device of its own: devices of the CPU, between which a library for tests stands
// for NCCL (tests/unit/fake_nccl).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "harness/cases/paths.h"
#include "harness/device/cpu_rank_stream.h"
#include "harness/launch/launcher.h"
#include "harness/launch/link_times.h"
#include "harness/session/session.h"
#include "tests/unit/fake_nccl/present.h"

namespace attnbench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

const Kernel& rank_attention() {
  return *select_kernels(builtin_kernels(), Op::kAttention, DeviceKind::kCpu, {"cpu"}).at(0);
}

int ranks_launched = 0;  ///< launches of bent kernels so far
/// Changes a launch before, or its outputs after it.
std::function<void(int rank, AttentionParams&)> bend_before, bend_after;

/// The cpu kernel with these changes. Launches of ranks follow each other: launch n is of rank n % 2.
Kernel bent_rank(
    std::function<void(int, AttentionParams&)> before,
    std::function<void(int, AttentionParams&)> after = [](int, AttentionParams&) {}) {
  ranks_launched = 0;
  bend_before = std::move(before);
  bend_after = std::move(after);
  Kernel kernel = rank_attention();
  kernel.launch = [](const OpParams* p, const LaunchContext* c, KernelMessage* m) {
    OpParams mine = *p;
    const int rank = ranks_launched++ % 2;
    bend_before(rank, mine.attention);
    const KernelStatus status = rank_attention().launch(&mine, c, m);
    bend_after(rank, mine.attention);
    return status;
  };
  return kernel;
}

struct RankRun {
  int ranks = 2;
  bool time = false;
  std::function<void(RankTeam&)> change = [](RankTeam&) {};
};

Record run_ranks(const Kernel& kernel, const std::string& mapping, const RankRun& run = {}) {
  const std::vector<Case> cases = expand(parse_inline_case(mapping)).cases;
  if (cases.size() != 1) throw std::logic_error("one case wanted: " + mapping);
  const auto device = open_cpu_ranks(2, run.ranks, ATTNBENCH_FAKE_NCCL);
  std::string why_not;
  if (RankTeam* team = device->rank_team(run.ranks, why_not)) run.change(*team);
  SessionOptions options;
  options.table = builtin_kernels();
  options.time = run.time;
  options.invariants = !run.time;
  options.timing.min_samples = options.timing.max_samples = 5;
  options.timing.ceilings = false;
  bool lost = false;
  return run_item({&cases[0], &kernel}, *device, options, lost);
}

std::string ranks_case(const std::string& combine, int ranks = 2, const std::string& more = "") {
  return fmt::format(
      "{{kv: paged, path: dcp, dcp_ranks: {}, dcp_interleave: 4, dcp_combine: {}, heads: 12/3, "
      "head_dim: 16, {}batch: q1s3_q1s40_q0s9_q1s100}}",
      ranks, combine, more);
}

class Ranks : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string why = std::string(GetParam()) == "fused" ? "" : test::no_fake_nccl();
    if (!why.empty()) GTEST_SKIP() << why;
  }
};
INSTANTIATE_TEST_SUITE_P(All, Ranks, ::testing::Values("all_gather", "all_to_all", "fused"),
                         [](const auto& p) { return std::string(p.param); });

TEST_P(Ranks, AreRightWithAllInvariants) {
  for (const char* more :
       {"mask: causal, sinks: true, ", "dtype: fp32, page_layout: lifo_aged, ",
        "dtype: fp16, head_dim_v: 24, softcap: 20, ", "kv_dtype: e4m3, kv_layout: hnd, "}) {
    for (const int ranks : {2, 3, 4}) {
      const Record r = run_ranks(rank_attention(), ranks_case(GetParam(), ranks, more), {.ranks = ranks});
      EXPECT_EQ(r.status, Status::kPass) << more << r.reason;
      ASSERT_TRUE(r.check);
      EXPECT_GE(r.check->invariants.size(), 8u);
    }
  }
}

TEST_P(Ranks, OfQueriesWithoutAMaskAreRight) {
  const Record r =
      run_ranks(rank_attention(), fmt::format("{{kv: paged, path: dcp, dcp_combine: {}, heads: 4/2, "
                                              "head_dim: 16, batch: q3s40_q7s100}}",
                                              GetParam()));
  EXPECT_EQ(r.status, Status::kPass) << r.reason;
}

TEST_P(Ranks, AreTimedWithNewSignsAndPoison) {
  const Record r = run_ranks(rank_attention(), ranks_case(GetParam()), {.time = true});
  ASSERT_EQ(r.status, Status::kPass) << r.reason;
  ASSERT_THAT(r.time->ranks, SizeIs(2));
  EXPECT_GT(r.time->watch.launches, 5);
  for (const RankTimes& t : r.time->ranks) {
    EXPECT_GT(t.attention_us, 0);
    EXPECT_GT(t.communication_us, 0);
    EXPECT_GT(t.correction_us, 0);
    EXPECT_LE(t.attention_us, t.total_us);
    EXPECT_LE(t.total_us, 1.5 * r.time->hi_us);
  }
}

/// What is said of the ranks.
std::string first_clue(const Record& r) {
  return r.check && !r.check->clues.empty() ? r.check->clues.front() : "no clue";
}

TEST_P(Ranks, WithTheLengthsOfAnotherInterleaveAreNamed) {
  const Record r =
      run_ranks(bent_rank([](int rank, AttentionParams& a) {
                  static std::vector<int32_t> lengths;
                  if (rank != 0) return;
                  lengths.clear();
                  for (const int32_t k : {30, 41, 98}) lengths.push_back(dcp_local_len(k, 2, 1, 0));
                  a.seqused_k = lengths.data();
                }),
                fmt::format("{{kv: paged, path: dcp, dcp_interleave: 4, dcp_combine: {}, heads: 4/2, "
                            "head_dim: 16, batch: q1s30_q1s41_q1s98}}",
                            GetParam()));
  EXPECT_EQ(r.status, Status::kFail);
  EXPECT_THAT(first_clue(r), HasSubstr("rank 0: "));
  EXPECT_THAT(first_clue(r), HasSubstr("its lengths are those of dcp_interleave 1, not 4"));
  EXPECT_THAT(first_clue(r), HasSubstr("the other ranks' states are right"));
}

TEST_P(Ranks, WithWrongLocalLengthsFail) {
  const Record r = run_ranks(bent_rank([](int rank, AttentionParams& a) {
                               static std::vector<int32_t> lengths;
                               if (rank != 1) return;
                               lengths.assign(a.seqused_k, a.seqused_k + a.batch);
                               lengths.back() -= 1;
                               a.seqused_k = lengths.data();
                             }),
                             ranks_case(GetParam()));
  EXPECT_EQ(r.status, Status::kFail);
}

TEST_P(Ranks, WithAnLseInTheWrongBaseFail) {
  const Record r = run_ranks(bent_rank([](int, AttentionParams&) {},
                                       [](int rank, AttentionParams& a) {
                                         if (rank != 1) return;
                                         for (int64_t i = 0; i < a.num_heads_q * a.lse_stride_head; ++i)
                                           a.lse[i] *= 1.44269504f;
                                       }),
                             ranks_case(GetParam()));
  EXPECT_EQ(r.status, Status::kFail);
  EXPECT_THAT(first_clue(r), AllOf(HasSubstr("rank 1: "), HasSubstr("its LSE is in base 2"),
                                   HasSubstr("the other ranks' states are right")));
}

TEST_P(Ranks, OfWhichOneWritesNothingFail) {
  const Record r = run_ranks(bent_rank([](int rank, AttentionParams& a) {
                               if (rank == 1) a.batch = 0;
                             }),
                             ranks_case(GetParam()));
  EXPECT_EQ(r.status, Status::kFail);
  EXPECT_THAT(first_clue(r), AllOf(HasSubstr("rank 1: "), HasSubstr("it wrote nothing")));
}

/// A rank that leaves out the last state.
class ForgetfulStream : public CpuRankStream {
 public:
  void merge(const Merging& m, const Meeting*) override {
    Merging less = m;
    less.states -= 1;
    merge_host(less);
  }
  void correct(const Correcting& c) override {
    Correcting less = c;
    less.ranks -= 1;
    correct_host(less);
  }
};

TEST_P(Ranks, WithRightStatesAndAWrongMergeAreToldFromOthers) {
  CpuRankStream right;
  ForgetfulStream wrong;
  const Record r = run_ranks(rank_attention(), ranks_case(GetParam()), {.change = [&](RankTeam& team) {
                               team.streams = {&right, &wrong};
                             }});
  EXPECT_EQ(r.status, Status::kFail);
  EXPECT_THAT(first_clue(r), HasSubstr("the partial states of all ranks are right"));
}

/// A rank whose stream stops at a mark.
class StuckStream : public CpuRankStream {
 public:
  explicit StuckStream(int last) : last_(last) {}
  bool reached(int at) override { return at <= last_ && CpuRankStream::reached(at); }

 private:
  int last_;
};

TEST_P(Ranks, ThatHangAreNamed) {
  StuckStream in_attention(1), waiting(2);
  const Record r = run_ranks(rank_attention(), ranks_case(GetParam()), {.change = [&](RankTeam& team) {
                               team.hang_s = 0.05;
                               team.streams = {&waiting, &in_attention};
                             }});
  EXPECT_EQ(r.status, Status::kError);
  EXPECT_THAT(r.reason, HasSubstr("rank 1 (cpu, rank 1) has not ended its attention after 0.05 s"));
  const Record all = run_ranks(rank_attention(), ranks_case(GetParam()), {.change = [&](RankTeam& team) {
                                 team.hang_s = 0.05;
                                 team.streams = {&in_attention, &in_attention};
                               }});
  EXPECT_THAT(all.reason, HasSubstr("no rank has ended its attention"));
}

TEST_P(Ranks, AreSkippedWithoutDevices) {
  const Record r = run_ranks(rank_attention(), ranks_case(GetParam(), 4), {.ranks = 2});
  EXPECT_EQ(r.status, Status::kSkip);
  EXPECT_EQ(r.reason,
            fmt::format("dcp_combine {}: 4 ranks apart need 4 GPUs, and cpu is one device", GetParam()));
}

TEST(RanksWithoutNccl, AreSkippedUnlessTheyNeedNone) {
  const auto no_nccl = [](RankTeam& team) { team.nccl_library = "libnccl-that-nobody-has.so"; };
  const Record r = run_ranks(rank_attention(), ranks_case("all_gather"), {.change = no_nccl});
  EXPECT_EQ(r.status, Status::kSkip);
  EXPECT_THAT(r.reason, HasSubstr("dcp_combine all_gather: NCCL was not found"));
  EXPECT_EQ(run_ranks(rank_attention(), ranks_case("fused"), {.change = no_nccl}).status, Status::kPass);
}

TEST(LinkTimes, AreOfAllKindsAndSizes) {
  if (const std::string why = test::no_fake_nccl(); !why.empty()) GTEST_SKIP() << why;
  const auto device = open_cpu_ranks(1, 3, ATTNBENCH_FAKE_NCCL);
  std::string why_not;
  RankTeam* team = device->rank_team(3, why_not);
  ASSERT_NE(team, nullptr) << why_not;
  const std::vector<int64_t> sizes = {4800, 96000};
  const std::vector<Ceilings::Link> links = link_times(*team, sizes);
  EXPECT_THAT(links, SizeIs(8));
  for (const char* what : {kAllGatherLink, kReduceScatterLink, kAllToAllLink, kPeerReadLink}) {
    for (const int64_t bytes : sizes)
      EXPECT_GT(link_us(links, what, 3, bytes).value_or(0), 0) << what << bytes;
    EXPECT_FALSE(link_us(links, what, 2, 4800)) << "of as many ranks";
  }
  team->nccl = nullptr;
  team->nccl_library = "libnccl-that-nobody-has.so";
  EXPECT_THAT(link_times(*team, sizes), SizeIs(2)) << "peer_read alone";
}

TEST(LinkTimes, LieBetweenThoseOfTheNextSizes) {
  const std::vector<Ceilings::Link> links = {{"a", 2, 100, 10}, {"a", 2, 300, 20}, {"b", 2, 200, 99}};
  EXPECT_EQ(link_us(links, "a", 2, 10), 10) << "latency";
  EXPECT_EQ(link_us(links, "a", 2, 100), 10);
  EXPECT_EQ(link_us(links, "a", 2, 200), 15);
  EXPECT_EQ(link_us(links, "a", 2, 600), 40) << "bandwidth";
  EXPECT_FALSE(link_us(links, "c", 2, 200));
}

}  // namespace
}  // namespace attnbench
