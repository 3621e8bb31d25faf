// Pools of more than 2^31 elements that are really allocated.
#include <gtest/gtest.h>

#include "harness/cases/tally.h"
#include "harness/launch/launcher.h"
#include "harness/session/memory_check.h"
#include "harness/session/session.h"
#include "harness/tensors/host_bytes.h"
#include "harness/tensors/workload.h"

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

// What fits is decided by hole_rows(): memory that it leaves out must not be there.
TEST(FarOffsets, HolesAreAtLeastWhatIsCounted) {
  const auto device = open_cpu_protected(1);
  for (const char* text :
       {"{kv: paged, heads: 8, head_dim: 128, pool_blocks: 9000, batch: q1s300_q2s40_q0s9}",
        "{kv: paged, block_size: 1, heads: 4, head_dim: 64, pool_blocks: 400000, batch: 2q1s30}",
        "{kv: contiguous, heads: 8, head_dim: 128, batch: q2s256_150q0_q1s200_150q0_q3s5}",
        "{heads: 8, head_dim: 128, gap_tokens: 14000, batch: q2s70_q1s20_q3s5}"}) {
    const Case c = expand(parse_inline_case(text)).cases.at(0);
    const Workload w(*device, c);
    const AttentionParams p = w.params().attention;
    double there = 0;
    for (const void* t : {p.k, p.v}) {
      for (const Hole& h : device->holes_of(t)) there += static_cast<double>(h.end - h.begin);
    }
    const double counted = kv_row_bytes(c.params) * static_cast<double>(hole_rows(c.params));
    EXPECT_GT(counted, 1 << 20) << text;
    EXPECT_LE(counted, there) << text;
  }
}

TEST(FarOffsets, ACopyOnTheHostHasTheSameHoles) {
  constexpr int64_t kBytes = int64_t{1} << 40, kUsed = 5000;  // no machine has so much
  std::vector<char> of(1);
  const char* base = of.data();
  const std::vector<Hole> holes = {{base + kUsed, base + kBytes / 2},
                                   {base + kBytes / 2 + kUsed, base + kBytes}};
  HostBytes a(kBytes, holes, base, 7);
  EXPECT_EQ(a[kUsed - 1], 7);
  EXPECT_FALSE(a.in_hole(kUsed - 1));
  EXPECT_TRUE(a.in_hole(kUsed));
  EXPECT_TRUE(a.in_hole(kBytes / 2 - 1));
  EXPECT_FALSE(a.in_hole(kBytes / 2));
  EXPECT_TRUE(a.in_hole(kBytes - 1));
  HostBytes b(kBytes, holes, base, 7);
  EXPECT_TRUE(a == b);
  b[kBytes / 2 + kUsed - 1] = 8;
  EXPECT_FALSE(a == b) << "the last byte that is there";
  EXPECT_EQ(b.blank()[kBytes / 2], 0xff);
}

}  // namespace
}  // namespace attnbench
