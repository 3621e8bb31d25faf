// The worked examples of common introductions to variable-length attention, on the cpu kernel.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "harness/tensors/plan.h"
#include "kernels/registry.h"

namespace attnbench {
namespace {

constexpr int kHeads = 2;
constexpr int kDim = 2;

const Kernel& cpu_attention() {
  for (const Kernel* k : builtin_kernels()) {
    if (k->op == Op::kAttention && k->device == DeviceKind::kCpu) return *k;
  }
  throw std::runtime_error("no cpu attention kernel");
}

struct Result {
  std::vector<float> out;  ///< (total_q, kHeads, kDim)
  std::vector<float> lse;  ///< (kHeads, total_q)
};

/// Element i of tensor t: small and different everywhere.
float value(int t, int64_t i) { return static_cast<float>(std::sin(0.7 * static_cast<double>(i) + t)); }

/// Rows [begin, end) of tensor t, (rows, kHeads, kDim).
std::vector<float> rows(int t, int64_t begin, int64_t end) {
  std::vector<float> v;
  for (int64_t i = begin * kHeads * kDim; i < end * kHeads * kDim; ++i) v.push_back(value(t, i));
  return v;
}

Result attend(const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v,
              const std::vector<int32_t>& cu_seqlens_q, const std::vector<int32_t>& cu_seqlens_k,
              const std::vector<int32_t>& seqused_k, bool causal) {
  OpParams op{};
  op.op = Op::kAttention;
  AttentionParams& a = op.attention = AttentionParams{};
  a.features =
      kPackedKv | kFp32 | (causal ? uint64_t{kCausal} : 0u) | (seqused_k.empty() ? 0u : uint64_t{kPartialKv});
  a.batch = static_cast<int32_t>(cu_seqlens_q.size()) - 1;
  a.num_heads_q = a.num_heads_kv = kHeads;
  a.head_dim = a.head_dim_v = kDim;
  a.total_q = cu_seqlens_q.back();
  for (int b = 0; b < a.batch; ++b) {
    const auto i = static_cast<std::size_t>(b);
    a.max_seqlen_q = std::max(a.max_seqlen_q, cu_seqlens_q[i + 1] - cu_seqlens_q[i]);
    a.max_seqlen_k =
        std::max(a.max_seqlen_k, seqused_k.empty() ? cu_seqlens_k[i + 1] - cu_seqlens_k[i] : seqused_k[i]);
  }
  a.dtype_q = a.dtype_k = a.dtype_v = a.dtype_out = DType::kFp32;
  a.q = q.data();
  a.k = k.data();
  a.v = v.data();
  a.q_stride_token = a.k_stride_token = a.v_stride_token = a.out_stride_token = kHeads * kDim;
  a.q_stride_head = a.k_stride_head = a.v_stride_head = a.out_stride_head = kDim;
  a.cu_seqlens_q = cu_seqlens_q.data();
  a.cu_seqlens_k = cu_seqlens_k.data();
  a.seqused_k = seqused_k.empty() ? nullptr : seqused_k.data();
  a.causal = causal;
  a.window_left = a.window_right = -1;
  a.softmax_scale = 1.0f / std::sqrt(static_cast<float>(kDim));
  Result r;
  r.out.assign(static_cast<std::size_t>(a.total_q * kHeads * kDim), NAN);
  r.lse.assign(static_cast<std::size_t>(a.total_q * kHeads), NAN);
  a.out = r.out.data();
  a.lse = r.lse.data();
  a.lse_stride_head = a.total_q;

  const Kernel& kernel = cpu_attention();
  LaunchContext context{};
  context.num_threads = 2;
  std::vector<char> workspace(kernel.workspace_bytes ? kernel.workspace_bytes(&op, &context) : 0);
  context.workspace = workspace.data();
  context.workspace_bytes = workspace.size();
  KernelMessage message{};
  EXPECT_EQ(kernel.supports(&op, &context, &message), KernelStatus::kOk) << message.text;
  if (kernel.plan) {
    EXPECT_EQ(kernel.plan(&op, &context, &message), KernelStatus::kOk) << message.text;
  }
  EXPECT_EQ(kernel.launch(&op, &context, &message), KernelStatus::kOk) << message.text;
  return r;
}

/// softmax(q k^T / sqrt(2)) v of one row, in double, over keys [begin, end).
std::vector<double> expected_row(const std::vector<float>& q, const std::vector<float>& k,
                                 const std::vector<float>& v, int64_t row, int head, int64_t begin,
                                 int64_t end) {
  const auto at = [&](const std::vector<float>& t, int64_t r, int c) {
    return static_cast<double>(t[static_cast<std::size_t>((r * kHeads + head) * kDim + c)]);
  };
  double sum = 0;
  std::vector<double> o(kDim, 0.0);
  for (int64_t j = begin; j < end; ++j) {
    const double p = std::exp((at(q, row, 0) * at(k, j, 0) + at(q, row, 1) * at(k, j, 1)) / std::sqrt(2.0));
    sum += p;
    for (int c = 0; c < kDim; ++c) o[static_cast<std::size_t>(c)] += p * at(v, j, c);
  }
  for (double& x : o) x /= sum;
  return o;
}

class Golden : public ::testing::TestWithParam<bool> {};

// Sequences of 1, 2, 3 and 4 tokens, two heads of dimension 2. Packing changes where rows are, and no bit of
// them.
TEST_P(Golden, FourSequencesPackedEqualFourSeparate) {
  const bool causal = GetParam();
  const std::vector<int32_t> cu = {0, 1, 3, 6, 10};
  const auto q = rows(0, 0, 10), k = rows(1, 0, 10), v = rows(2, 0, 10);
  const Result packed = attend(q, k, v, cu, cu, {}, causal);
  for (std::size_t b = 0; b < 4; ++b) {
    const int64_t begin = cu[b], end = cu[b + 1];
    const std::vector<int32_t> alone = {0, static_cast<int32_t>(end - begin)};
    const Result one =
        attend(rows(0, begin, end), rows(1, begin, end), rows(2, begin, end), alone, alone, {}, causal);
    for (int64_t t = begin; t < end; ++t) {
      for (int h = 0; h < kHeads; ++h) {
        EXPECT_EQ(packed.lse[static_cast<std::size_t>(h * 10 + t)],
                  one.lse[static_cast<std::size_t>(h * (end - begin) + t - begin)]);
        const auto expected = expected_row(q, k, v, t, h, begin, causal ? t + 1 : end);
        for (int c = 0; c < kDim; ++c) {
          const float got = packed.out[static_cast<std::size_t>((t * kHeads + h) * kDim + c)];
          EXPECT_EQ(got, one.out[static_cast<std::size_t>(((t - begin) * kHeads + h) * kDim + c)])
              << "seq " << b << " token " << t - begin << " head " << h;
          EXPECT_NEAR(got, expected[static_cast<std::size_t>(c)], 1e-6);
        }
      }
    }
  }
}

// cu_seqlens [0, 4, 7, 9] and seqused_k [4, 3, 2] give the same lengths. A shorter seqused_k ends sequences
// early.
TEST_P(Golden, SequsedKOfAllKeysChangesNothing) {
  const bool causal = GetParam();
  const std::vector<int32_t> cu = {0, 4, 7, 9};
  const auto q = rows(0, 0, 9), k = rows(1, 0, 9), v = rows(2, 0, 9);
  const Result without = attend(q, k, v, cu, cu, {}, causal);
  const Result with = attend(q, k, v, cu, cu, {4, 3, 2}, causal);
  EXPECT_EQ(with.out, without.out);
  EXPECT_EQ(with.lse, without.lse);
}

TEST_P(Golden, SequsedKEndsASequenceEarly) {
  const bool causal = GetParam();
  const std::vector<int32_t> cu = {0, 4, 7, 9};
  const std::vector<int32_t> used = {3, 3, 1};
  const auto q = rows(0, 0, 9);
  auto k = rows(1, 0, 9), v = rows(2, 0, 9);
  for (const int unread : {3, 8}) {  // tokens past seqused_k
    for (int i = 0; i < kHeads * kDim; ++i) {
      k[static_cast<std::size_t>(unread * kHeads * kDim + i)] = NAN;
      v[static_cast<std::size_t>(unread * kHeads * kDim + i)] = NAN;
    }
  }
  const Result r = attend(q, k, v, cu, cu, used, causal);
  for (std::size_t b = 0; b < 3; ++b) {
    for (int64_t t = cu[b]; t < cu[b + 1]; ++t) {
      // Bottom-right: the last query sees the last used key. With one key fewer, the first query sees none.
      const int64_t visible = causal ? (t - cu[b]) + used[b] - (cu[b + 1] - cu[b]) + 1 : used[b];
      for (int h = 0; h < kHeads; ++h) {
        if (visible <= 0) {
          EXPECT_EQ(r.lse[static_cast<std::size_t>(h * 9 + t)], -INFINITY);
        }
        const auto expected = expected_row(q, k, v, t, h, cu[b], cu[b] + visible);
        for (int c = 0; c < kDim; ++c) {
          EXPECT_NEAR(r.out[static_cast<std::size_t>((t * kHeads + h) * kDim + c)],
                      visible <= 0 ? 0.0 : expected[static_cast<std::size_t>(c)], 1e-6);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Golden, ::testing::Bool(),
                         [](const auto& p) { return p.param ? "Causal" : "Full"; });

TEST(GoldenPlan, CuSeqlensOfFourSequences) {
  Case c;
  c.params.seqs = {{1, 1}, {2, 2}, {3, 3}, {4, 4}};
  const WorkloadPlan plan = plan_workload(c);
  const std::vector<int32_t> expected = {0, 1, 3, 6, 10};
  EXPECT_EQ(plan.cu_seqlens_q, expected);
  EXPECT_EQ(plan.cu_seqlens_k, expected);
  EXPECT_EQ(plan.max_seqlen_q, 4);
}

TEST(GoldenPlan, PagedHasSequsedK) {
  Case c;
  c.params.kv = KvSource::kPaged;
  c.params.seqs = {{4, 4}, {3, 3}, {2, 2}};
  const WorkloadPlan plan = plan_workload(c);
  EXPECT_EQ(plan.cu_seqlens_q, (std::vector<int32_t>{0, 4, 7, 9}));
  EXPECT_EQ(plan.seqused_k, (std::vector<int32_t>{4, 3, 2}));
}

}  // namespace
}  // namespace attnbench
