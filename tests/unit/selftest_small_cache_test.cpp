// Append in the call if the cache has no room. On every device that works here, every kernel refuses what it
// can know before it launches, and writes nothing.
#include <gtest/gtest.h>

#include "harness/launch/launcher.h"
#include "harness/selftest/tamper.h"
#include "harness/session/session.h"

namespace attnbench {
namespace {

using Change = std::function<void(Tamper&, AttentionParams&)>;

struct CacheOutcome {
  bool ran = false;  ///< the kernel accepts the case
  bool refused = false;
  bool wrote = false;
};

/// What a kernel does with the changed call, and its cache as bytes before and after.
CacheOutcome outcome_of(const Kernel& kernel, Device& device, const std::string& mapping,
                        const Change& change) {
  const std::vector<Case> cases = expand(parse_inline_case(mapping)).cases;
  EXPECT_EQ(cases.size(), 1u);
  CacheOutcome outcome;
  Tamper tamper(kernel, device);
  const Kernel& watched = tamper.armed([&](Tamper& t, const OpParams& op) {
    const AttentionParams& p = op.attention;
    const auto cache = [&] {
      const auto size = static_cast<int64_t>(dtype_size(p.dtype_k));
      auto bytes = t.read<unsigned char>(p.k_cache, p.num_blocks * p.k_stride_block * size);
      const auto v = t.read<unsigned char>(p.v_cache, p.num_blocks * p.v_stride_block * size);
      bytes.insert(bytes.end(), v.begin(), v.end());
      return bytes;
    };
    const auto before = cache();
    AttentionParams small = p;
    change(t, small);
    outcome.ran = true;
    outcome.refused = t.launch(small) != KernelStatus::kOk || !t.refusal().empty();
    outcome.wrote = cache() != before;
    return t.launch(op);
  });
  SessionOptions options;
  options.time = false;
  bool lost = false;
  const Record r = run_item({&cases[0], &watched}, device, options, lost);
  EXPECT_TRUE(r.status == Status::kPass || r.status == Status::kSkip) << kernel.name << ": " << r.reason;
  return outcome;
}

/// Runs `visit(kernel, device)` for each kernel that appends. `visit` returns whether the kernel accepted its
/// case.
template <class Visit>
void for_each_appending_kernel(DeviceKind kind, const Visit& visit) {
  if (kind == DeviceKind::kCuda && probe_devices().cuda_devices == 0)
    GTEST_SKIP() << probe_devices().cuda_reason;
  const auto device = kind == DeviceKind::kCuda ? open_device("cuda") : open_device("cpu", 1);
  int ran = 0;
  for (const Kernel* kernel : select_kernels(builtin_kernels(), Op::kAttention, kind, {})) {
    if (kernel->features & kAppend) ran += visit(*kernel, *device);
  }
  EXPECT_GT(ran, 0);
}

#define SMALL "append: in_call, heads: 4/2, head_dim: 64, mask: causal, "

void expect_refusal_of_the_longest_sequence(DeviceKind kind) {
  for_each_appending_kernel(kind, [](const Kernel& kernel, Device& device) {
    const CacheOutcome cache = outcome_of(kernel, device, "{kv: contiguous, " SMALL "batch: q3s40_q1s21}",
                                          [](Tamper&, AttentionParams& p) { p.cache_capacity = 39; });
    const CacheOutcome pages =
        outcome_of(kernel, device, "{kv: paged, block_size: 16, " SMALL "batch: q3s40_q1s21}",
                   [](Tamper&, AttentionParams& p) { p.block_table_stride = 2; });
    for (const CacheOutcome& o : {cache, pages}) {
      EXPECT_EQ(o.refused, o.ran) << kernel.name;
      EXPECT_FALSE(o.wrote) << kernel.name;
    }
    return cache.ran && pages.ran;
  });
}

/// Left padding that puts all new rows past the end of the cache.
void expect_nothing_behind_the_cache(DeviceKind kind) {
  for_each_appending_kernel(kind, [&](const Kernel& kernel, Device& device) {
    const CacheOutcome o = outcome_of(kernel, device, "{kv: contiguous, leftpad: 3, " SMALL "batch: q3s40}",
                                      [](Tamper& t, AttentionParams& p) {
                                        const auto room =
                                            static_cast<int32_t>(p.cache_capacity) - p.max_seqlen_k;
                                        p.cache_leftpad = t.put(std::vector<int32_t>{room + 3});
                                      });
    EXPECT_FALSE(o.wrote) << kernel.name;
    // The host of a GPU kernel cannot read lengths and padding before the launch.
    EXPECT_EQ(o.refused, o.ran && kind == DeviceKind::kCpu) << kernel.name;
    return o.ran;
  });
}

TEST(SmallCache, IsRefused) { expect_refusal_of_the_longest_sequence(DeviceKind::kCpu); }
TEST(SmallCache, IsNotWrittenBehindItsEnd) { expect_nothing_behind_the_cache(DeviceKind::kCpu); }
TEST(GpuSmallCache, IsRefused) { expect_refusal_of_the_longest_sequence(DeviceKind::kCuda); }
TEST(GpuSmallCache, IsNotWrittenBehindItsEnd) { expect_nothing_behind_the_cache(DeviceKind::kCuda); }

}  // namespace
}  // namespace attnbench
