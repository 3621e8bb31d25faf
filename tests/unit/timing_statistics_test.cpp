#include <gtest/gtest.h>

#include <numeric>

#include "harness/timing/roofline.h"
#include "harness/timing/timing.h"
#include "harness/values/philox.h"

namespace attnbench {
namespace {

TEST(MedianInterval, KnownOrderStatistics) {
  std::vector<double> x(20);
  std::iota(x.begin(), x.end(), 1.0);
  const MedianInterval m = median_interval(x);
  EXPECT_EQ(m.median, 10.5);
  EXPECT_EQ(m.lo, 6);  // the 6th and 15th of 20 cover 95.9 %
  EXPECT_EQ(m.hi, 15);
}

TEST(MedianInterval, FewSamplesGiveTheRange) {
  const MedianInterval m = median_interval({3, 1, 2});
  EXPECT_EQ(m.median, 2);
  EXPECT_EQ(m.lo, 1);
  EXPECT_EQ(m.hi, 3);
  EXPECT_EQ(median_interval({}).median, 0);
}

TEST(MedianInterval, CoversTheTrueMedianAsOftenAsItSays) {
  int covered = 0;
  constexpr int kTrials = 4000;
  for (int t = 0; t < kTrials; ++t) {
    std::vector<double> x;
    for (uint32_t i = 0; i < 25; ++i) {
      const double u = (philox4x32(i, static_cast<uint32_t>(t), 0, 0, 7).x[0] + 0.5) / 4294967296.0;
      x.push_back(u * u * u);  // skewed; the true median is 1/8
    }
    const MedianInterval m = median_interval(x);
    covered += m.lo <= 0.125 && 0.125 <= m.hi;
  }
  EXPECT_GE(covered, 0.95 * kTrials);
  EXPECT_LE(covered, 0.99 * kTrials);
}

/// A device whose launches take made-up times.
class FakeDevice : public Device {
 public:
  explicit FakeDevice(std::function<double(int)> us) : us_(std::move(us)) {}
  const DeviceInfo& info() const override { return info_; }
  LaunchContext launch_context() const override { return {}; }
  int64_t free_memory() const override { return 0; }
  void* allocate(int64_t) override { return nullptr; }
  void release(void*) noexcept override {}
  void upload(void*, const void*, int64_t) override {}
  void download(void*, const void*, int64_t) override {}
  void set_bytes(void*, unsigned char, int64_t) override {}
  void fill(const FillJob&) override {}
  uint64_t digest(const void*, int64_t) override { return 0; }
  void synchronize() override {}
  Sample time_launch(const std::function<void()>& launch, CacheMode) override {
    launch();
    return {us_(calls++), 0, false, host_bound};
  }
  std::function<void()> capture_graph(const std::function<void()>& launch) override { return launch; }
  const Ceilings& ceilings(const std::vector<DType>&) override { return ceilings_; }
  void profiler_start() override {}
  void profiler_stop() override {}
  void range_push(const char*) override {}
  void range_pop() override {}
  int calls = 0;
  bool host_bound = false;

 private:
  std::function<double(int)> us_;
  DeviceInfo info_;
  Ceilings ceilings_;
};

TEST(TimeLaunches, StopsEarlyWhenQuietAndGoesOnWhenNoisy) {
  FakeDevice quiet([](int i) { return 100.0 + 0.01 * (i % 3); });
  FakeDevice noisy([](int i) { return 100.0 + 40.0 * (i % 7); });
  TimingOptions o;
  o.budget_s = 1e9;
  o.max_samples = 60;
  const TimeResult a = time_launches(
      quiet, "a/b(c)[x]*", [] {}, o);
  const TimeResult b = time_launches(
      noisy, "noisy", [] {}, o);
  EXPECT_EQ(a.samples_us.size(), 10u);
  EXPECT_EQ(b.samples_us.size(), 60u);
  EXPECT_EQ(a.iterations, 10) << "Google Benchmark ran each sample";
  EXPECT_NEAR(a.median_us, 100.01, 1e-9);
  EXPECT_NEAR(a.real_time_us, a.median_us, 0.02) << "its manual time is ours";
  EXPECT_EQ(a.host_bound, 0);
}

TEST(TimeLaunches, HostBoundSamplesAreCounted) {
  FakeDevice d([](int) { return 5.0; });
  d.host_bound = true;
  EXPECT_EQ(time_launches(d, "x", [] {}, {}).host_bound, 10);
}

TEST(TimeLaunches, ErrorsOfTheLaunchPassThrough) {
  FakeDevice d([](int) { return 5.0; });
  int n = 0;
  EXPECT_THROW(time_launches(d, "x",
                             [&] {
                               if (++n == 5) throw std::runtime_error("boom");
                             },
                             {}),
               std::runtime_error);
  EXPECT_EQ(time_launches(d, "x", [] {}, {}).samples_us.size(), 10u) << "the next one is not affected";
}

TEST(Roofline, BindingTermAndShare) {
  CaseParams p;
  p.seqs = {{1000, 1000}};
  const CaseCost cost = cost_of(p);
  Ceilings c;
  c.read_gbs = 1000;
  c.matmul = {{DType::kBf16, 100}};
  DeviceInfo d;
  const double matrix_us = cost.flop / 100e12 * 1e6;
  Roofline r = roofline(cost, p, 2 * matrix_us, c, d);
  EXPECT_EQ(r.bound, "matrix");
  EXPECT_NEAR(*r.sol, 0.5, 1e-12);
  EXPECT_NEAR(r.tflops, 50, 1e-9);
  c.read_gbs = 1;
  r = roofline(cost, p, 2 * matrix_us, c, d);
  EXPECT_EQ(r.bound, "memory");
  EXPECT_FALSE(roofline(cost, p, 10, Ceilings{}, d).sol) << "no ceiling, no share";
}

TEST(Roofline, ImpossibleTimesAreSeenOnlyCold) {
  CaseParams p;
  p.seqs = {{1, 100000}};
  Ceilings c;
  c.read_gbs = 1000;
  DeviceInfo d;
  d.kind = DeviceKind::kCuda;
  const CaseCost cost = cost_of(p);
  const double floor = cost.bytes / 1e12 * 1e6;
  const Roofline r = roofline(cost, p, 0.8 * floor, c, d);
  EXPECT_TRUE(impossible_time(r, 0.8 * floor, CacheMode::kCold, c, d));
  EXPECT_FALSE(impossible_time(r, 0.8 * floor, CacheMode::kHot, c, d));
  EXPECT_FALSE(impossible_time(r, 0.99 * floor, CacheMode::kCold, c, d)) << "within the noise of a ceiling";
  c.disturbed = true;
  EXPECT_FALSE(impossible_time(r, 0.8 * floor, CacheMode::kCold, c, d))
      << "ceilings of a busy machine prove nothing";
}

}  // namespace
}  // namespace attnbench
