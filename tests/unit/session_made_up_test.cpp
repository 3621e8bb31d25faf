// No kernel that writes zeros or means passes a case, whatever arithmetic it declares.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "harness/launch/launcher.h"
#include "harness/session/session.h"
#include "kernels/registry.h"

namespace attnbench {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A kernel is plain functions, so what it declares and writes is kept here.
Numerics g_declared, g_later;
int g_asked;
const Kernel* g_right;

Numerics declare(const OpParams*) { return g_asked++ == 0 ? g_declared : g_later; }

/// Elements of a tensor (rows, heads, channels) with these strides.
struct Tensor3 {
  void* data;
  DType dtype;
  int64_t rows, stride_row;
  int32_t heads;
  int64_t stride_head;
  int32_t channels;
};

void set_zero(const Tensor3& t) {
  for (int64_t r = 0; r < t.rows; ++r) {
    for (int32_t h = 0; h < t.heads; ++h) {
      const int64_t at = r * t.stride_row + h * t.stride_head;
      const auto size = static_cast<int64_t>(dtype_size(t.dtype));
      std::memset(static_cast<char*>(t.data) + at * size, 0, static_cast<std::size_t>(t.channels * size));
    }
  }
}

Tensor3 out_of(const OpParams& op) {
  if (op.op == Op::kMergeStates) {
    const MergeStatesParams& p = op.merge_states;
    return {p.out, p.dtype_out, p.num_rows, p.out_stride_token, p.num_heads, p.out_stride_head, p.head_dim};
  }
  const AttentionParams& p = op.attention;
  return {p.out, p.dtype_out, p.total_q, p.out_stride_token, p.num_heads_q, p.out_stride_head, p.head_dim_v};
}

/// All that is right but O, or the gradients, which are 0.
KernelStatus zeros(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  const KernelStatus s = g_right->launch(op, context, message);
  if (op->op != Op::kAttentionBackward) {
    set_zero(out_of(*op));
    return s;
  }
  const AttentionBackwardParams& p = op->attention_backward;
  set_zero({p.dq, p.dtype, p.total_q, p.dq_stride_token, p.num_heads_q, p.dq_stride_head, p.head_dim});
  set_zero({p.dk, p.dtype, p.total_k, p.dk_stride_token, p.num_heads_kv, p.dk_stride_head, p.head_dim});
  set_zero({p.dv, p.dtype, p.total_k, p.dv_stride_token, p.num_heads_kv, p.dv_stride_head, p.head_dim_v});
  if (p.dsinks != nullptr) std::fill_n(p.dsinks, p.num_heads_q, 0.0f);
  return s;
}

/// O is the mean of the visible values: what a right kernel computes where all scores are 0. The rest is right.
KernelStatus means(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  OpParams uniform = *op, rest = *op;
  std::vector<float> lse;
  if (op->op == Op::kMergeStates) {
    const MergeStatesParams& p = op->merge_states;
    const int64_t states = p.state_indptr != nullptr ? p.total_states : p.num_states;
    lse.assign(p.partial_lse, p.partial_lse + states * p.lse_stride_state);
    for (float& x : lse) x = std::isfinite(x) ? 0 : x;  // a state without keys stays one
    uniform.merge_states.partial_lse = lse.data();
  } else {
    uniform.attention.softmax_scale = 0;
    uniform.attention.sinks = nullptr;
    uniform.attention.features &= ~uint64_t{kSinks};
  }
  if (const KernelStatus s = g_right->launch(&uniform, context, message); s != KernelStatus::kOk) return s;
  const Tensor3 t = out_of(*op);
  std::vector<char> scratch(
      static_cast<std::size_t>(t.rows * std::max(t.stride_row, t.heads * t.stride_head)) *
      dtype_size(t.dtype));
  (op->op == Op::kMergeStates ? rest.merge_states.out : rest.attention.out) = scratch.data();
  return g_right->launch(&rest, context, message);
}

const Case& case_given(const std::string& mapping) {
  static std::vector<std::unique_ptr<Case>> cases;
  return *cases.emplace_back(std::make_unique<Case>(expand(parse_inline_case(mapping)).cases.at(0)));
}

Record run(const Case& c, decltype(Kernel::launch) launch, const Numerics& first, const Numerics& later,
           SessionOptions options = {}) {
  static const auto device = open_device("cpu", 2);
  g_right = select_kernels(builtin_kernels(), c.params.op, DeviceKind::kCpu, {"cpu"}).at(0);
  g_declared = first;
  g_later = later;
  g_asked = 0;
  Kernel kernel = *g_right;
  kernel.numerics = declare;
  if (launch != nullptr) kernel.launch = launch;
  options.table = builtin_kernels();
  bool lost = false;
  return run_item({&c, &kernel}, *device, options, lost);
}

SessionOptions untimed() {
  SessionOptions options;
  options.time = false;
  options.all_detectors = true;  // no clues, which take long
  return options;
}

constexpr const char* kCases[] = {
    "{batch: 2q20s70, heads: 4/2, head_dim: 32}",
    "{batch: q40_q3s100_q9, heads: 4/2, head_dim: 64, mask: causal, dtype: fp16}",
    "{batch: 2q8s300, heads: 2, head_dim: 16, dtype: fp32}",
    "{batch: 2q1s700, heads: 4/1, head_dim: 64}",
    "{batch: q1s2k, heads: 2/1, head_dim: 32, dtype: fp16, data: large}",
    "{batch: 2q9s90, heads: 2, head_dim: 32, data: peaked}",
    "{batch: 2q9s90, heads: 2, head_dim: 128, data: huge}",
    "{batch: q2s900, heads: 2, head_dim: 128, data: huge, dtype: fp32}",
    "{batch: q2s900, heads: 2, head_dim: 128, data: outlier, softcap: 20}",
    "{batch: q5s80, heads: 4/2, head_dim: 32, softcap: 0.5, sinks: true}",
    "{batch: q5s300, heads: 2, head_dim: 64, dropout: 0.5}",
    "{batch: q5s300, heads: 2, head_dim: 64, probs: true}",
    "{batch: q9s80, heads: 2, head_dim: 32, window: '7,0', alibi: per_head}",
    "{batch: q1s700, heads: 2, head_dim: 64, kv: paged, block_size: 16, kv_dtype: e4m3}",
    "{batch: q3s200, heads: 2, head_dim: 64, kv: paged, block_size: 16, kv_dtype: int8}",
    "{batch: q3s700, heads: 2, head_dim: 64, kv_dtype: e4m3, q_dtype: e4m3, out_dtype: e4m3}",
    "{batch: q3s700, heads: 2, head_dim: 64, kv_dtype: e4m3, q_dtype: e4m3, data: huge}",
    "{batch: q2s300, heads: 4/1, head_dim: 96, head_dim_v: 32, rotary: neox, rotary_cached: true, data: huge}",
    "{batch: q3s400, heads: 4/2, head_dim: 32, kv: paged, block_size: 16, path: split_decode}",
    "{op: merge_states, states: 4, batch: q20, heads: 2, head_dim: 32}",
    "{op: merge_states, states: 3, batch: q20, heads: 2, head_dim: 32, out_dtype: e4m3}",
    "{op: attention_backward, batch: 2q20, heads: 4/2, head_dim: 32, mask: causal}",
    "{op: attention_backward, batch: q30s200, heads: 2, head_dim: 64, data: huge}",
    "{op: attention_backward, batch: q30s90, heads: 4/1, head_dim: 32, sinks: true, dtype: fp32}",
};

/// Corners of what a kernel may declare.
constexpr Numerics corner(DType p, DType acc) { return {p, acc, 0x1p-7, 0x1p-10, 1, DType::kBf16}; }
constexpr Numerics kDeclarations[] = {{DType::kFp32, DType::kFp32, 0},    corner(DType::kFp32, DType::kFp32),
                                      corner(DType::kFp16, DType::kFp16), corner(DType::kBf16, DType::kBf16),
                                      corner(DType::kE4m3, DType::kBf16), corner(DType::kE5m2, DType::kBf16),
                                      corner(DType::kInt8, DType::kBf16)};

TEST(MadeUpAnswers, NeverPassWhateverIsDeclared) {
  int undecided = 0, by_the_case = 0;
  for (const char* mapping : kCases) {
    const Case& c = case_given(mapping);
    const bool case_tells_nothing =
        run(c, zeros, kDeclarations[0], kDeclarations[0], untimed()).status == Status::kUndecided;
    by_the_case += case_tells_nothing;
    for (const Numerics& n : kDeclarations) {
      const std::string what = std::string(mapping) + " " + types_text({n});
      const Record zero = run(c, zeros, n, n, untimed());
      EXPECT_TRUE(zero.status == Status::kFail || zero.status == Status::kUndecided)
          << what << ": zeros " << status_name(zero.status) << " " << zero.reason;
      undecided += zero.status == Status::kUndecided;
      EXPECT_EQ(zero.check->tells_nothing, zero.status == Status::kUndecided && case_tells_nothing) << what;
      const bool has_mean = c.params.op != Op::kAttentionBackward && c.params.dropout == 0;
      if (!has_mean || c.params.alibi != Alibi::kNone) continue;
      const Record mean = run(c, means, n, n, untimed());
      EXPECT_TRUE(mean.status == Status::kFail || mean.status == Status::kUndecided)
          << what << ": means " << status_name(mean.status) << " " << mean.reason;
    }
  }
  EXPECT_GT(by_the_case, 0);
  EXPECT_GT(undecided, by_the_case) << "without the status these would have passed";
}

TEST(MadeUpAnswers, AreNoneWhereTheyAreRight) {
  const Numerics n{DType::kFp32, DType::kFp32, 0x1p-22};
  for (const char* mapping : {"{batch: 3q1s1, heads: 2, head_dim: 32}",
                              "{batch: 'q4s0', heads: 2, head_dim: 32, allow_short_kv: true}",
                              "{batch: 2q5s9, heads: 2, head_dim: 32, softmax_scale: 1.0e-30}",
                              "{op: attention_backward, batch: 2q1, heads: 2, head_dim: 32}"}) {
    const Record r = run(case_given(mapping), nullptr, n, n, untimed());
    EXPECT_EQ(r.status, Status::kPass) << mapping << r.reason;
  }
}

TEST(MadeUpAnswers, TheReasonNamesTheCause) {
  const Case& c = case_given("{batch: q2s900, heads: 2, head_dim: 128, data: huge, dtype: fp32}");
  const Record r = run(c, nullptr, {DType::kFp32, DType::kFp32, 0, 0x1p-10}, g_later, untimed());
  EXPECT_EQ(r.status, Status::kUndecided);
  EXPECT_THAT(r.reason,
              AllOf(HasSubstr("zeros"), HasSubstr("mma_roundoff 2^-10) is too coarse for this case")));
  EXPECT_LT(r.reason.size(), 500u);
}

TEST(DeclaredNumerics, OutOfBoundsAreAnError) {
  struct Row {
    Numerics n;
    const char* reason;
  };
  const DType f = DType::kFp32;
  const Row rows[] = {
      {{f, f, 10}, "exp_rel_err is 10, and 0 to 2^-7 is allowed"},
      {{f, f, -1e-9}, "exp_rel_err"},
      {{f, f, NAN}, "exp_rel_err is nan"},
      {{f, f, 0, 1.0}, "mma_roundoff is 1, and 0 to 2^-10 is allowed"},
      {{f, f, 0, INFINITY}, "mma_roundoff"},
      {{f, f, 0, 0, 0}, "p_scale is 0, and 1 or a larger finite number is allowed"},
      {{f, f, 0, 0, INFINITY}, "p_scale"},
      {{DType::kE2m1x2, f, 0}, "p_type is e2m1x2, and fp32, fp16, bf16, e4m3, e5m2, int8 are allowed"},
      {{f, DType::kInt8, 0}, "acc_type is int8, and fp32, fp16, bf16 are allowed"},
      {{f, DType{77}, 0}, "acc_type is ?"},
      {{f, f, 0, 0, 1, DType::kE4m3}, "head_grad_type is e4m3"},
      {{f, f, 0, 0, 1, f, 0.5}, "input_roundoff is 0.5, and 0 to 2^-10 is allowed"}};
  for (const char* mapping : {"{batch: 2q20, heads: 2, head_dim: 32}",
                              "{op: attention_backward, batch: 2q20, heads: 2, head_dim: 32}",
                              "{op: merge_states, states: 2, batch: q20, heads: 2, head_dim: 32}"}) {
    for (const Row& row : rows) {
      const Record r = run(case_given(mapping), zeros, row.n, row.n, untimed());
      EXPECT_EQ(r.status, Status::kError) << mapping << row.reason;
      EXPECT_THAT(r.reason, AllOf(HasSubstr("cpu: what it declares"), HasSubstr(row.reason)));
    }
  }
}

TEST(DeclaredNumerics, OnlyOperandsInFp32LoseDigits) {
  const Numerics tf32{DType::kFp32, DType::kFp32, 0x1p-22, 0, 1, DType::kFp32, 0x1p-10};
  const Record r = run(case_given("{batch: 2q20, heads: 2, head_dim: 32}"), nullptr, tf32, tf32, untimed());
  EXPECT_EQ(r.status, Status::kError);
  EXPECT_THAT(r.reason, HasSubstr("which is for attention in fp32 only: 0 required in other launches"));
  const Case& fp32 = case_given("{batch: 2q20, heads: 2, head_dim: 32, dtype: fp32}");
  EXPECT_EQ(run(fp32, nullptr, tf32, tf32, untimed()).status, Status::kPass);
}

TEST(DeclaredNumerics, AreAskedForOnce) {
  const Case& c = case_given("{batch: 2q20, heads: 2, head_dim: 32, mask: causal}");
  const Numerics fine{DType::kBf16, DType::kFp32, 0x1p-22, 0x1p-13, 4},
      coarse{DType::kE5m2, DType::kBf16, 0x1p-7, 0x1p-10};
  SessionOptions options;
  options.invariants = true;
  options.timing.ceilings = false;
  options.timing.max_samples = 10;
  const Record r = run(c, nullptr, fine, coarse, options);
  EXPECT_EQ(r.status, Status::kPass) << r.reason;
  EXPECT_EQ(g_asked, 1);
  ASSERT_TRUE(r.check && r.check->declared);
  EXPECT_EQ(types_text(*r.check->declared),
            "acc fp32, p bf16, exp_rel_err 2^-22, mma_roundoff 2^-13, p_scale 4");
  const Record cheat = run(c, zeros, fine, coarse, options);
  EXPECT_EQ(cheat.status, Status::kFail) << "it is judged by what it declared";
}

}  // namespace
}  // namespace attnbench
