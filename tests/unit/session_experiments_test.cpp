// Clues that further launches prove: kernels that make NaN in one way each, and one that keeps what an address held.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "harness/session/experiments.h"
#include "harness/session/session.h"
#include "kernels/common/addressing.h"
#include "kernels/common/mask.h"

namespace attnbench {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// Attention in plain loops, without one thing or with one too many.
struct Loops {
  std::function<float(float dot)> dot = [](float x) { return x; };
  std::function<float(float score, float softcap)> cap = [](float x, float softcap) {
    return softcap > 0 ? softcap * std::tanh(x / softcap) : x;
  };
  bool subtracts_greatest = true;
  int keys_behind = 0;  ///< read with the weight 0
  std::function<float(float o)> stored = [](float x) { return x; };
  int skipped = -1;              ///< the query whose rows are not written
  bool reads_workspace = false;  ///< adds its first number
  /// What is added to a score.
  std::function<float(int key, int k_len)> term = [](int, int) { return 0.0f; };
};
Loops g_loops;

KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage*) {
  const AttentionParams& p = op->attention;
  const float extra = g_loops.reads_workspace ? *static_cast<const float*>(context->workspace) : 0.0f;
  for (int32_t b = 0; b < p.batch; ++b) {
    const SeqRange seq = seq_range(p, b);
    for (int32_t row = 0; row < seq.q_len * p.num_heads_q; ++row) {
      const int32_t i = row / p.num_heads_q, head = row % p.num_heads_q;
      if (i == g_loops.skipped) continue;
      const int32_t kv_head = head / (p.num_heads_q / p.num_heads_kv);
      const KeyBounds keys = visible_keys(p, i, seq.q_len, seq.k_len);
      std::vector<float> scores;
      float top = g_loops.subtracts_greatest ? -INFINITY : 0, sum = 0;
      for (int32_t j = keys.begin; j < keys.end; ++j) {
        float dot = 0;
        for (int32_t c = 0; c < p.head_dim; ++c) {
          dot += load_float(p.dtype_q, p.q, q_offset(p, seq.q_begin + i, head) + c) *
                 load_float(p.dtype_k, p.k, k_row_offset(p, b, j) + kv_head * p.k_stride_head + c);
        }
        scores.push_back(g_loops.cap(g_loops.dot(dot) * p.softmax_scale, p.softcap) +
                         g_loops.term(j, seq.k_len));
        if (g_loops.subtracts_greatest) top = std::max(top, scores.back());
      }
      std::vector<float> out(static_cast<std::size_t>(p.head_dim_v), 0.0f);
      const int32_t behind = keys.end == seq.k_len ? g_loops.keys_behind : 0;
      for (int32_t j = keys.begin; j < keys.end + behind; ++j) {
        const float weight =
            j < keys.end ? std::exp(scores[static_cast<std::size_t>(j - keys.begin)] - top) : 0;
        sum += weight;
        for (int32_t c = 0; c < p.head_dim_v; ++c) {
          out[static_cast<std::size_t>(c)] +=
              weight * load_float(p.dtype_v, p.v, v_row_offset(p, b, j) + kv_head * p.v_stride_head + c);
        }
      }
      for (int32_t c = 0; c < p.head_dim_v; ++c) {
        store_float(p.dtype_out, p.out, out_offset(p, seq.q_begin + i, head) + c,
                    g_loops.stored(out[static_cast<std::size_t>(c)] * (1 / sum) + extra));
      }
      p.lse[lse_offset(p, seq.q_begin + i, head)] = top + std::log(sum) + extra;
    }
  }
  return KernelStatus::kOk;
}

Record run_loops(const Loops& loops, const std::string& keys, uint32_t flags = 0,
                 const std::function<void(WorkItem&)>& change = {}) {
  g_loops = loops;
  Kernel k{};
  k.abi_version = kKernelAbiVersion;
  k.name = "loops";
  k.summary = k.shapes = "";
  k.flags = flags;
  k.features = ~0ull;
  k.supports = [](const OpParams*, const LaunchContext*, KernelMessage*) { return KernelStatus::kOk; };
  k.numerics = [](const OpParams*) { return Numerics{DType::kFp32, DType::kFp32, 0x1p-22}; };
  k.workspace_bytes = [](const OpParams*, const LaunchContext*) { return sizeof(float); };
  k.launch = launch;
  const std::vector<Case> cases =
      expand(parse_inline_case("{heads: 4/2, head_dim: 32, batch: q9s41_q3s20, kv: paged, " + keys + "}"))
          .cases;
  const auto device = open_device("cpu", 2);
  SessionOptions options;
  options.time = false;
  bool lost = false;
  WorkItem work{&cases.at(0), &k};
  if (change) change(work);
  return run_item(work, *device, options, lost);
}

std::vector<std::string> clues(const Loops& loops, const std::string& keys = "mask: causal",
                               uint32_t flags = 0) {
  const Record r = run_loops(loops, keys, flags);
  EXPECT_EQ(r.status, Status::kFail) << r.reason;
  return r.check ? r.check->clues : std::vector<std::string>{};
}

constexpr const char* kRead = "must not be read";

TEST(Experiments, TheLoopsAreRight) {
  for (const char* keys : {"mask: causal", "softcap: 20", "dtype: fp16"})
    EXPECT_EQ(run_loops({}, keys).status, Status::kPass) << keys;
}

TEST(Experiments, NaNThatWasRead) {
  const auto found = clues({.keys_behind = 1});
  EXPECT_THAT(found,
              Contains(AllOf(StartsWith("NaN comes from memory that must not be read"),
                             HasSubstr("; from V, as no LSE has it: it is gone without poison (checked by "
                                       "running again without poison)"))));
}

TEST(Experiments, NaNOfASoftcap) {
  const auto by_exp = [](float x, float softcap) {
    const float e = std::exp(2 * x / softcap);
    return softcap * ((e - 1) / (e + 1));
  };
  const auto found = clues({.cap = by_exp}, "softcap: 0.02");
  EXPECT_THAT(found, Contains(StartsWith("NaN is computed in the softcap")));
  EXPECT_THAT(found, Each(Not(HasSubstr(kRead))));
}

TEST(Experiments, ScoresBeyondTheirType) {
  const auto in_fp16 = [](float x) { return fp16_to_float(float_to_fp16(x * 0x1p13f)) * 0x1p-13f; };
  const auto found = clues({.dot = in_fp16});
  EXPECT_THAT(found,
              Contains(StartsWith(
                  "NaN is computed where scores, or exponentials of them, leave the range of a type")));
  EXPECT_THAT(found, Each(Not(HasSubstr(kRead))));
}

TEST(Experiments, SumsThatUnderflow) {
  const auto low = [](float dot) { return -95 * std::sqrt(32.0f) * std::tanh(50 * std::abs(dot)); };
  const auto found = clues({.dot = low, .subtracts_greatest = false});
  EXPECT_THAT(found, Contains(HasSubstr(": sums of exp underflow, as LSEs of these rows are below -87")));
  EXPECT_THAT(found, Each(Not(HasSubstr(kRead))));
}

TEST(Experiments, ValuesBeyondTheirType) {
  const auto cut = [](float o) { return std::abs(o) > 0.25f ? INFINITY : o; };
  const auto found = clues({.stored = cut});
  EXPECT_THAT(found.at(0), AllOf(HasSubstr(" infinite"), Not(HasSubstr("NaN"))));
  EXPECT_THAT(found,
              Contains(StartsWith("inf is computed where sums of P V, or O, leave the range of a type")));
  EXPECT_THAT(found, Each(Not(HasSubstr(kRead))));
}

TEST(Experiments, NaNOfTheKernelsOwn) {
  const auto nan = [](float o) { return o * NAN; };
  for (const uint32_t flags : {0u, static_cast<uint32_t>(kFinitePadding)}) {
    const auto found = clues({.stored = nan}, "mask: causal", flags);
    EXPECT_THAT(found, Contains(HasSubstr("NaN is computed, whatever is read")));
    EXPECT_THAT(found, Each(Not(HasSubstr(kRead))));
  }
}

TEST(Experiments, WhatIsNotWrittenIsSaidFirstAndOnce) {
  const auto found = clues({.skipped = 2});
  EXPECT_THAT(
      found.at(0),
      StartsWith(
          "256 elements of O were not written when the launch ended (never, or later: by a thread that is "
          "not joined, or on a stream that is not waited for): they are 0 in a launch whose outputs held 0"));
  EXPECT_THAT(std::vector(found.begin() + 1, found.end()), Each(Not(HasSubstr("not written"))));
}

TEST(Experiments, AWorkspaceIsReadBeforeItIsWritten) {
  EXPECT_THAT(clues({.reads_workspace = true}),
              AllOf(Contains(StartsWith("NaN comes from the workspace, which is read before it is written")),
                    Each(Not(HasSubstr("not written when the launch ended")))));
}

TEST(Experiments, LaterCasesOfARunSayThatTheyHadNone) {
  const Record r =
      run_loops({.keys_behind = 1}, "mask: causal", 0, [](WorkItem& w) { w.experiments = false; });
  EXPECT_THAT(r.check->clues, AllOf(Contains(StartsWith("no experiments looked for the cause")),
                                    Each(Not(HasSubstr(kRead)))));
}

TEST(Experiments, ACrashOfAnOpWithoutATableDoesNotNameIt) {
  CaseParams p;
  p.kv = KvSource::kPaged;
  EXPECT_THAT(crash_advice(p, {Phase::kLaunch}), HasSubstr("block_table"));
  EXPECT_EQ(crash_advice(p, {.phase = Phase::kInvariant, .invariant = "packed_paged"}), "") << "packed there";
  p.op = Op::kKvAppend;
  EXPECT_EQ(crash_advice(p, {Phase::kLaunch}), "");
}

TEST(Experiments, WeightsOfKeysAreMeasured) {
  const auto found = clues({.term = [](int key, int) { return key % 8 == 3 ? -1.0f : 0.0f; }});
  EXPECT_THAT(found, Contains(AllOf(StartsWith("few keys of a row have wrong weights"),
                                    HasSubstr("those at 3 of each block of 8 keys"),
                                    HasSubstr("launches whose V tell keys apart)"))));
  EXPECT_THAT(clues({.stored = [](float o) { return 0.75f * o; }}),
              Contains(HasSubstr("as if O is divided by another sum, while the LSE is right")));
}

/// A clue of the number of keys from which on a sequence is wrong.
constexpr const char* kAlone = "a sequence alone is right";

TEST(Experiments, TheFirstWrongLengthIsNamed) {
  const auto from = [](int first) {
    return clues({.term = [first](int key, int) { return key >= first ? 0.5f : 0.0f; }}, "mask: none");
  };
  EXPECT_THAT(from(16),
              Contains(AllOf(StartsWith("a sequence alone is right with up to 16 keys and wrong with more"),
                             HasSubstr("what follows the first 16 keys"))));
  EXPECT_THAT(from(31), Contains(AllOf(StartsWith("a sequence alone is right with up to 31 keys"),
                                       HasSubstr("part of 32 keys once it is full"))));
}

TEST(Experiments, NoLengthIsNamedByChance) {
  const auto of_lengths = [](const std::function<bool(int)>& wrong) {
    return clues({.term = [wrong](int key, int k_len) { return wrong(k_len) && key % 2 ? 0.5f : 0.0f; }},
                 "mask: none");
  };
  // 41 is the first length that a search by halves finds, of those that are wrong.
  EXPECT_THAT(of_lengths([](int k_len) { return k_len % 16 == 9; }), Each(Not(HasSubstr(kAlone))));
  EXPECT_THAT(of_lengths([](int k_len) { return k_len == 41 || k_len * 2654435761u >> 16 & 1; }),
              Each(Not(HasSubstr(kAlone))));
  EXPECT_THAT(clues({.term = [](int key, int) { return key >= 19 ? 0.5f : 0.0f; }}, "mask: none"),
              Each(Not(HasSubstr(kAlone))));
}

}  // namespace
}  // namespace attnbench
