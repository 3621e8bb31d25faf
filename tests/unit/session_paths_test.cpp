// Paths of several launches: the cpu kernel passes, and each path fails if a part of it is ignored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "harness/launch/launcher.h"
#include "harness/session/session.h"

namespace attnbench {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

const Kernel& built_in_attention() {
  for (const Kernel* k : builtin_kernels()) {
    if (k->op == Op::kAttention && k->device == DeviceKind::kCpu) return *k;
  }
  throw std::logic_error("the cpu kernels are always built");
}

std::function<void(AttentionParams&)> bend_path_next;  ///< applied to the wrapper's next launches

Kernel bent_kernel(std::function<void(AttentionParams&)> bend) {
  bend_path_next = std::move(bend);
  Kernel kernel = built_in_attention();
  kernel.launch = [](const OpParams* p, const LaunchContext* c, KernelMessage* m) {
    OpParams bent = *p;
    bend_path_next(bent.attention);
    return built_in_attention().launch(&bent, c, m);
  };
  return kernel;
}

Record run_with(const Kernel& kernel, const std::string& mapping, bool invariants = false,
                KernelTable table = builtin_kernels()) {
  const std::vector<Case> cases = expand(parse_inline_case(mapping)).cases;
  if (cases.size() != 1) throw std::logic_error("one case wanted: " + mapping);
  const auto device = open_device("cpu", 2);
  SessionOptions options;
  options.table = table;
  options.time = false;
  options.invariants = invariants;
  bool lost = false;
  return run_item({&cases[0], &kernel}, *device, options, lost);
}

struct PathFault {
  std::string name;
  std::string mapping;
  std::function<void(AttentionParams&)> bend;
};
void PrintTo(const PathFault& fault, std::ostream* out) { *out << fault.name; }

class Paths : public ::testing::TestWithParam<PathFault> {};

TEST_P(Paths, AreJudgedRight) {
  const Record right = run_with(bent_kernel([](AttentionParams&) {}), GetParam().mapping, true);
  EXPECT_EQ(right.status, Status::kPass) << right.reason;
  const Record wrong = run_with(bent_kernel(GetParam().bend), GetParam().mapping);
  EXPECT_EQ(wrong.status, Status::kFail);
}

const std::string kSmall = ", heads: 4/2, head_dim: 16, ";
const std::string kShared = "{kv: paged, page_layout: shared_prefix, shared_prefix: 32" + kSmall;
const std::string kCascade =
    kShared + "path: cascade, mask: causal, sinks: true, softcap: 20, batch: 3q1s40_q0s32_q5s70_q8s40}";
const std::string kSplit = "{path: split_decode" + kSmall + "mask: causal, alibi: per_sequence, ";
const std::string kDcp = "{kv: paged, path: dcp, dcp_ranks: 3, dcp_interleave: 4" + kSmall;

void drop_prefix(AttentionParams& a) {
  if (a.batch == 1 && a.causal == 0) a.softmax_scale = 0;
}
void shorten_prefix(AttentionParams& a) {
  static const int32_t short_by_one = 31;
  if (a.batch == 1 && a.causal == 0) a.seqused_k = &short_by_one;
}

INSTANTIATE_TEST_SUITE_P(
    All, Paths,
    ::testing::Values(
        PathFault{"SharedPrefixInOneCall", kShared + "batch: 3q1s40_q5s70}",
                  [](AttentionParams& a) { a.batch -= 1; }},
        PathFault{"SharedPrefixInE4m3", kShared + "kv_dtype: e4m3, batch: 3q1s40_q5s70}",
                  [](AttentionParams& a) { a.k_descale_stride_head = 0; }},
        PathFault{"CascadeWithoutItsPrefix", kCascade, drop_prefix},
        PathFault{"CascadeOfAShorterPrefix", kCascade, shorten_prefix},
        PathFault{"CascadeWithTwoSinks", kCascade,
                  [](AttentionParams& a) {
                    static const float sinks[4] = {4, 4, 4, 4};
                    if (a.sinks) return;
                    a.sinks = sinks;
                    a.features |= kSinks;
                  }},
        PathFault{"CascadeWithAMaskedPrefix", kCascade,
                  [](AttentionParams& a) {
                    a.causal = 1;
                    a.features |= kCausal;
                  }},
        PathFault{"CascadeInFp32", kShared + "dtype: fp32, path: cascade, mask: causal, batch: 3q1s40_q5s70}",
                  drop_prefix},
        PathFault{"SplitPacked", kSplit + "allow_short_kv: true, batch: 3q1s40_q1s0_q9s12_q30s70}",
                  [](AttentionParams& a) {
                    if (a.max_seqlen_q > 1) a.cu_seqlens_k -= 1;
                  }},
        PathFault{"SplitPagedByThreshold",
                  kSplit + "kv: paged, decode_threshold: 4, batch: 2q1s40_3q4s50_q5s9}",
                  [](AttentionParams& a) {
                    if (a.max_seqlen_q > 4) a.block_table -= a.block_table_stride;
                  }},
        PathFault{"SplitContiguous", kSplit + "kv: contiguous, leftpad: 5, batch: 2q1s40_q5s9}",
                  [](AttentionParams& a) {
                    if (a.max_seqlen_q > 1) a.cache_leftpad -= 1;
                  }},
        PathFault{"SplitContiguousInOrder",
                  kSplit + "kv: contiguous, cache_batch_idx: identity, batch: 2q1s40_q5s9}",
                  [](AttentionParams& a) {  // uses the rows at the front of the batch
                    const int64_t bytes = 2 * a.k_stride_block * static_cast<int64_t>(dtype_size(a.dtype_k));
                    if (a.max_seqlen_q > 1) a.k = static_cast<const char*>(a.k) - bytes;
                  }},
        PathFault{"SplitContiguousInt8InOrder",
                  kSplit + "kv: contiguous, cache_batch_idx: identity, kv_dtype: int8, batch: 2q1s40_q5s9}",
                  [](AttentionParams& a) {
                    if (a.max_seqlen_q > 1) a.k_descale -= 2 * a.k_descale_stride_block;
                  }},
        PathFault{"SplitOfDecodesAlone", kSplit + "batch: 3q1s40}", [](AttentionParams& a) { a.batch -= 1; }},
        PathFault{"DcpLocalLengths", kDcp + "mask: causal, sinks: true, batch: q1s3_q1s40_q0s9_q1s100}",
                  [](AttentionParams& a) {  // rank 0 gets rank 2's
                    if (a.features & kSinks) a.seqused_k += 2 * a.batch;
                  }},
        PathFault{"DcpInterleaveIgnored", kDcp + "mask: causal, batch: q1s30_q1s40_q1s100}",
                  [](AttentionParams& a) {  // token by token: rank 0 has 34 of 100 keys instead of 36
                    static std::vector<int32_t> lengths;
                    lengths.assign(a.seqused_k, a.seqused_k + a.batch);
                    std::replace(lengths.begin(), lengths.end(), 36, 34);
                    a.seqused_k = lengths.data();
                  }},
        PathFault{"DcpOneCacheForAll", kDcp + "dtype: fp32, batch: q3s40_q7s100}",
                  [](AttentionParams& a) {
                    static const void* first = nullptr;
                    if (a.max_seqlen_k == 36) first = a.k;  // rank 0's keys of 100
                    a.k = first;
                  }}),
    [](const auto& p) { return p.param.name; });

TEST(PathRefusal, NamesThePartThatAKernelDoesNotTake) {
  Kernel kernel = bent_kernel([](AttentionParams&) {});
  kernel.features &= ~uint64_t{kCausal};
  const Record r = run_with(kernel, kCascade);
  EXPECT_EQ(r.status, Status::kSkip);
  EXPECT_THAT(r.reason, HasSubstr("causal is not supported (suffix of path cascade)"));
}

int merges = 0;  ///< launches of the table's own merge_states kernel

/// A merge_states kernel for a table, as a plug-in provides one.
Kernel counting_merger(const char* name) {
  Kernel kernel = *select_kernels(builtin_kernels(), Op::kMergeStates, DeviceKind::kCpu, {}).at(0);
  kernel.name = name;
  kernel.launch = [](const OpParams* p, const LaunchContext* c, KernelMessage* m) {
    ++merges;
    return select_kernels(builtin_kernels(), Op::kMergeStates, DeviceKind::kCpu, {}).at(0)->launch(p, c, m);
  };
  return kernel;
}

/// The cascade with the attention kernel `mine`; `more` kernels follow the built-in ones.
Record cascade_of_mine(const std::vector<const Kernel*>& more) {
  Kernel attention = built_in_attention();
  attention.name = "mine";
  std::vector<const Kernel*> table(builtin_kernels().begin(), builtin_kernels().end());
  table.insert(table.end(), more.begin(), more.end());
  merges = 0;
  return run_with(attention, kCascade, false, table);
}

TEST(PathMerger, OfTheKernelsOwnNameComesFirst) {
  const Kernel merger = counting_merger("mine");
  EXPECT_EQ(cascade_of_mine({&merger}).status, Status::kPass);
  EXPECT_EQ(merges, 1);
}

TEST(PathMerger, OfAnotherNameStandsBehindTheProgramsOwn) {
  const Kernel merger = counting_merger("other");
  EXPECT_EQ(cascade_of_mine({&merger}).status, Status::kPass);
  EXPECT_EQ(merges, 0);
}

TEST(PathMerger, ThatRefusesIsPassedOver) {
  Kernel merger = counting_merger("mine");
  merger.supports = [](const OpParams*, const LaunchContext*, KernelMessage* m) {
    return refuse(m, KernelStatus::kUnsupported, "mine: no");
  };
  EXPECT_EQ(cascade_of_mine({&merger}).status, Status::kPass);
  EXPECT_EQ(merges, 0);
}

TEST(PathMerger, IsNoneWithoutATable) {
  const Record r = run_with(built_in_attention(), kCascade, false, {});
  EXPECT_EQ(r.status, Status::kSkip);
  EXPECT_EQ(r.reason, "path cascade: no merge_states kernel of cpu takes its 2 states");
}

TEST(Replay, ReadsLengthsAndTablesFromMemory) {
  for (const char* mapping :
       {"{kv: paged, heads: 4/2, head_dim: 16, mask: causal, batch: q9s70_q1s40_q4s9}",
        "{kv: packed, heads: 4/2, head_dim: 16, batch: q9s70_q1s40_q4s9}",
        "{kv: contiguous, leftpad: 3, heads: 4/2, head_dim: 16, kv_dtype: e4m3, batch: q9s70_q1s40_q4s9}"}) {
    const Record r = run_with(built_in_attention(), mapping, true);
    EXPECT_EQ(r.status, Status::kPass) << r.reason;
    const auto& tried = r.check->invariants;
    const auto replay =
        std::find_if(tried.begin(), tried.end(), [](const auto& i) { return i.name == "replay"; });
    ASSERT_NE(replay, tried.end());
    EXPECT_EQ(replay->outcome, InvariantResult::Outcome::kHeld) << replay->note;
  }
}

TEST(SharedPrefix, IsToldInOneCallAndNotToParts) {
  std::vector<int32_t> told;
  const auto kernel = bent_kernel([&](AttentionParams& a) { told.push_back(a.shared_prefix); });
  const std::string batch = "batch: 3q1s40_q5s70}";
  EXPECT_EQ(run_with(kernel, kShared + batch).status, Status::kPass);
  EXPECT_THAT(told, ::testing::AllOf(::testing::Not(::testing::IsEmpty()), ::testing::Each(32)));
  told.clear();
  EXPECT_EQ(run_with(kernel, kShared + "path: cascade, " + batch).status, Status::kPass);
  EXPECT_THAT(told, ::testing::AllOf(::testing::Not(::testing::IsEmpty()), ::testing::Each(0)));
}

TEST(SharedPrefix, OfPartsOfBlocksIsRefused) {
  Kernel kernel = built_in_attention();
  kernel.supports = [](const OpParams* p, const LaunchContext* c, KernelMessage* m) {
    OpParams bent = *p;
    bent.attention.shared_prefix = 33;
    return built_in_attention().supports(&bent, c, m);
  };
  const Record r = run_with(kernel, kShared + "batch: 3q1s40_q5s70}");
  EXPECT_EQ(r.status, Status::kSkip);
  EXPECT_THAT(r.reason, HasSubstr("shared_prefix: paged KV and a multiple of block_size required, given 33"));
}

std::vector<int32_t> kept_lengths;

TEST(Replay, FindsAKernelThatKeepsTheLengthsOfItsFirstLaunch) {
  Kernel kernel = built_in_attention();
  kernel.plan = [](const OpParams* p, const LaunchContext*, KernelMessage*) {
    kept_lengths.clear();
    if (!p->attention.seqused_k) return KernelStatus::kOk;  // packed: in another invariant
    kept_lengths.assign(p->attention.seqused_k, p->attention.seqused_k + p->attention.batch);
    return KernelStatus::kOk;
  };
  kernel.launch = [](const OpParams* p, const LaunchContext* c, KernelMessage* m) {
    OpParams kept = *p;
    if (p->attention.seqused_k && p->attention.batch == static_cast<int32_t>(kept_lengths.size()))
      kept.attention.seqused_k = kept_lengths.data();
    return built_in_attention().launch(&kept, c, m);
  };
  const Record r = run_with(
      kernel, "{kv: packed, gap_tokens: 3, heads: 4/2, head_dim: 16, batch: q9s70_q1s40_q4s9}", true);
  EXPECT_EQ(r.status, Status::kFail);
  EXPECT_THAT(r.check->failed_by, Contains("invariant:replay"));
}

TEST(Replay, FindsAKernelThatWritesPadding) {
  Kernel kernel = built_in_attention();
  kernel.launch = [](const OpParams* p, const LaunchContext* c, KernelMessage* m) {
    const AttentionParams& a = p->attention;
    const int32_t end = a.cu_seqlens_q[a.batch];
    if (end < a.total_q) a.lse[end] = 0;
    return built_in_attention().launch(p, c, m);
  };
  const Record r = run_with(kernel, "{heads: 4/2, head_dim: 16, batch: q9s70_q1s40_q4s9}", true);
  EXPECT_EQ(r.status, Status::kFail);
  EXPECT_THAT(r.reason, HasSubstr("LSE of padding token"));
}

}  // namespace
}  // namespace attnbench
