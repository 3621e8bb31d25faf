// Pools of more than 2^31 elements that are really allocated.
#include <gtest/gtest.h>

#include "harness/launch/launcher.h"
#include "harness/session/memory_check.h"
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

// What no launch touches is not copied to the host: caches that a launch writes, and O between its rows.
TEST(FarOffsets, WhatWouldBeCopiedForNothingIsLeftToTheCpu) {
  const FreeMemory gpu{DeviceKind::kCuda, "cuda:0", int64_t{1} << 40, int64_t{1} << 40, 0, false};
  FreeMemory cpu = gpu;
  cpu.holes = true;
  for (const auto& [text, fits] : std::vector<std::pair<std::string, bool>>{
           {"{kv: paged, heads: 32, head_dim: 128, pool_blocks: 70000, batch: q1s300}", true},
           {"{op: kv_append, kv: paged, heads: 32, head_dim: 128, pool_blocks: 70000, batch: q1s9}", false},
           {"{op: kv_move, kv: paged, heads: 32, head_dim: 128, pool_blocks: 70000, batch: q0s40}", false},
           {"{heads: 64/8, head_dim: 128, gap_queries: 530000, batch: q3s70_q9}", false}}) {
    const Case c = expand(parse_inline_case(text)).cases.at(0);
    EXPECT_EQ(!does_not_fit(c, gpu, CheckMode::kFull), fits) << text;
    EXPECT_FALSE(does_not_fit(c, cpu, CheckMode::kFull)) << text;
  }
}

// No row of O is there; lengths that are replaced in place would lie where nothing is.
TEST(FarOffsets, ATensorMayHaveNothingButHoles) {
  const auto device = open_cpu_protected(2);
  for (const char* text : {"{gap_queries: 170, heads: 16/2, head_dim: 193, batch: q0}",
                           "{heads: 2/2, head_dim: 97, topk: 1, batch: q0_q1s2703}"}) {
    const Case c = expand(parse_inline_case(text)).cases.at(0);
    SessionOptions options;
    options.time = false;
    options.invariants = true;
    bool lost = false;
    const Kernel* kernel = select_kernels(builtin_kernels(), Op::kAttention, DeviceKind::kCpu, {}).at(0);
    const Record r = run_item({&c, kernel}, *device, options, lost);
    EXPECT_EQ(r.status, Status::kPass) << text << ": " << r.reason;
  }
}

}  // namespace
}  // namespace attnbench
