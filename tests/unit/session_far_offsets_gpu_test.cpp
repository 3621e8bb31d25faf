// Pools of more than 2^31 elements that are really allocated.
#include <gtest/gtest.h>

#include "harness/launch/launcher.h"
#include "harness/session/session.h"

namespace attnbench {
namespace {

/// Keys of 4200 sequences without queries fill the pool. The pages of sequences with queries are anywhere in
/// it.
TEST(GpuFarOffsets, EveryKernelFindsPagesPast2To31Elements) {
  if (probe_devices().cuda_devices == 0) GTEST_SKIP() << probe_devices().cuda_reason;
  const auto device = open_device("cuda");
  const std::vector<Case> cases =
      expand(parse_inline_case("{kv: paged, heads: 32/8, head_dim: 128, batch: 4200q0s512_4q1s512}")).cases;
  ASSERT_EQ(cases.size(), 1u);
  int ran = 0;
  std::string why = "no kernel takes the case";
  for (const Kernel* kernel : select_kernels(builtin_kernels(), Op::kAttention, DeviceKind::kCuda, {})) {
    SessionOptions options;
    options.time = false;
    bool lost = false;
    const Record r = run_item({&cases[0], kernel}, *device, options, lost);
    if (r.status == Status::kSkip) {
      why = r.reason;
      continue;
    }
    ++ran;
    EXPECT_EQ(r.status, Status::kPass) << kernel->name << ": " << r.reason;
    ASSERT_FALSE(lost);
  }
  if (ran == 0) GTEST_SKIP() << why;
}

}  // namespace
}  // namespace attnbench
