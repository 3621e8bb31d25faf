// A right kernel with few features, as an author's first one, passes the selftest. A fault that only shows in
// launches that the kernel refuses does not apply to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/selftest/selftest.h"
#include "kernels/common/checks.h"

namespace attnbench {
namespace {

const Kernel& whole() {
  return *select_kernels(builtin_kernels(), Op::kAttention, DeviceKind::kCpu, {}).front();
}

Kernel few;  // a global, because kernels are plain functions

KernelStatus supports(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  const KernelStatus s = check_features(few, *p, m);
  return s != KernelStatus::kOk ? s : whole().supports(p, c, m);
}

class FewFeatures : public testing::TestWithParam<uint64_t> {};

TEST_P(FewFeatures, NoFaultEscapesAndNoneIsFoundInTheRightKernel) {
  few = whole();
  few.features = GetParam();
  few.supports = supports;
  const Kernel* table[] = {&few};
  const auto device = open_device("cpu", 1);
  SelftestOptions options;
  options.seeds = 1;
  const SelftestResult result = run_selftest(table, *device, options);
  for (const FaultResult& f : result.faults) {
    EXPECT_NE(f.outcome, FaultResult::Outcome::kEscaped) << f.fault_class << "/" << f.name;
    EXPECT_NE(f.outcome, FaultResult::Outcome::kError) << f.fault_class << "/" << f.name << ": " << f.reason;
    if (f.outcome == FaultResult::Outcome::kNotApplicable) {
      EXPECT_THAT(f.reason,
                  testing::MatchesRegex(
                      "(the case needs more than the kernel has: "
                      "|cannot be tried: this fault is a launch with other parameters, which the kernel "
                      "refuses: |.* refuses the launches that would show this "
                      "|.* does not promise ).+"))
          << f.fault_class << "/" << f.name;
    }
  }
  EXPECT_TRUE(result.clean.failures.empty()) << result.clean.failures.front().reason;
  EXPECT_GT(result.count(FaultResult::Outcome::kCaught), 15);
}

/// Stops at the first sequence whose rows are none, or lie outside of the tensor.
KernelStatus careful(const OpParams* p, const LaunchContext* c, KernelMessage* m) {
  OpParams op = *p;
  AttentionParams& a = op.attention;
  for (int32_t b = 0; b < a.batch; ++b) {
    if (a.cu_seqlens_q[b + 1] >= a.cu_seqlens_q[b] && a.cu_seqlens_q[b + 1] <= a.total_q) continue;
    a.batch = b;
    break;
  }
  return whole().launch(&op, c, m);
}

TEST(SelftestNoEffect, AFaultThatChangesNoBitDidNotEscape) {
  few = whole();
  const auto outcome = [&](auto launch, const char* fault) {
    few.launch = launch;
    const Kernel* table[] = {&few};
    SelftestOptions options;
    options.chosen = [&](const std::string& name) { return name == fault; };
    return run_selftest(table, *open_device("cpu", 1), options).faults.at(0);
  };
  const FaultResult none = outcome(careful, "lengths/one_sequence_too_many");
  EXPECT_EQ(none.outcome, FaultResult::Outcome::kNotApplicable) << none.reason;
  EXPECT_THAT(none.reason,
              testing::StartsWith("no effect: the kernel gives the same bits with this mistake"));
  EXPECT_FALSE(none.allclose) << "there is nothing to judge";
  EXPECT_EQ(outcome(whole().launch, "lengths/one_sequence_too_many").outcome, FaultResult::Outcome::kCaught);
}

INSTANTIATE_TEST_SUITE_P(, FewFeatures,
                         testing::Values(kPackedKv | kPagedKv | kCausal | kBf16 | kFp16 | kFp32,
                                         kPackedKv | kCausal | kBf16 | kFp16 | kFp32,
                                         kPagedKv | kCausal | kBf16 | kFp16 | kFp32,
                                         kPagedKv | kHnd | kCausal | kBf16,
                                         kPackedKv | kCausal | kFp16 | kFp32,
                                         kPackedKv | kPagedKv | kCausal | kFp32));

}  // namespace
}  // namespace attnbench
