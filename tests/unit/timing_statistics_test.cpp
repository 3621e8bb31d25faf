#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness/device/peak.h"
#include "harness/facts/two_speeds.h"
#include "harness/timing/roofline.h"
#include "harness/timing/timing.h"
#include "kernels/contract/philox.h"

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

TEST(MedianInterval, ManySamples) {
  // Binomial ranks up to 1000, normal approximation beyond: the ranks continue without a step.
  for (const int n : {999, 1000, 1001, 1002, 5000, 100000}) {
    std::vector<double> x(static_cast<std::size_t>(n));
    std::iota(x.begin(), x.end(), 1.0);
    const MedianInterval m = median_interval(x);
    EXPECT_EQ(m.median, (n + 1) / 2.0);
    EXPECT_NEAR(m.lo, n / 2.0 - 0.98 * std::sqrt(n), 2) << n;
    EXPECT_NEAR(m.hi, n / 2.0 + 0.98 * std::sqrt(n), 2) << n;
  }
}

TEST(Quantile, IsTheLeastValueThatSoManyDoNotExceed) {
  std::vector<double> x(10);
  std::iota(x.begin(), x.end(), 1.0);
  EXPECT_EQ(quantile(x, 0.5), 5);
  EXPECT_EQ(quantile(x, 0.9), 9);
  EXPECT_EQ(quantile(x, 0.99), 10);
  EXPECT_EQ(quantile({x.data(), 1}, 0), 1);
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

/// `count` values around `centre`, from -width to +width.
std::vector<double> around(double centre, double width, int count) {
  std::vector<double> x;
  for (int i = 0; i < count; ++i) x.push_back(centre + width * (2.0 * i / (count - 1) - 1));
  return x;
}

std::vector<double> both(std::vector<double> a, const std::vector<double>& b) {
  a.insert(a.end(), b.begin(), b.end());
  std::reverse(a.begin(), a.end());
  return a;
}

TEST(TwoSpeeds, TwoGroupsAreFound) {
  const auto found = two_speeds(both(around(81, 1, 30), around(91, 2, 70)));
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->quick, 81, 0.1);
  EXPECT_NEAR(found->slow, 91, 0.1);
  EXPECT_EQ(found->quick_share, 0.3);
}

TEST(TwoSpeeds, OneGroupIsNone) {
  EXPECT_FALSE(two_speeds(around(81, 10, 100))) << "wide";
  EXPECT_FALSE(two_speeds(std::vector<double>(100, 81.0)));
  EXPECT_FALSE(two_speeds(both(around(81, 1, 95), around(120, 1, 5)))) << "outliers";
  EXPECT_FALSE(two_speeds(both(around(81, 0.1, 50), around(82, 0.1, 50)))) << "1 %: steps of the clock";
  EXPECT_FALSE(two_speeds(both(around(81, 3, 50), around(88, 3, 50)))) << "the gap is narrower than a group";
  EXPECT_FALSE(two_speeds(both(around(81, 1, 5), around(91, 1, 5)))) << "too few";
  EXPECT_FALSE(two_speeds({}));
}

TEST(TwoSpeeds, NoisyTimesOfOneSpeedHardlyEverLookLikeTwo) {
  int alarms = 0;
  for (uint32_t t = 0; t < 2000; ++t) {
    std::vector<double> x;
    for (uint32_t i = 0; i < 40; ++i) {
      const double u = (philox4x32(i, t, 0, 0, 9).x[0] + 0.5) / 4294967296.0;
      x.push_back(100 * (1 - 0.05 * std::log(u)));  // as if work of others were added at random
    }
    alarms += two_speeds(x).has_value();
  }
  EXPECT_LE(alarms, 60);
}

/// A device whose launches take artificial times.
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
  void change_signs(const SignedTensor&) override {}
  void poison(const WatchedOutput&) override {}
  void take_returned(const ReturnedTensor&) override {}
  void synchronize() override {}
  Sample time_launch(const std::function<void()>& launch, CacheMode, const LaunchWatch*) override {
    launch();
    Sample sample{us_(calls++), 0, false, host_bound};
    if (probed) {
      sample.cores_us = 0.2 * sample.us;
      sample.memory_us = 8 * sample.us;
      sample.handover_us = 0.05 * sample.us;
    }
    return sample;
  }
  std::function<void()> capture_graph(const std::function<void()>& launch) override { return launch; }
  const Ceilings& ceilings(const std::vector<DType>&) override { return ceilings_; }
  void profiler_start() override {}
  void profiler_stop() override {}
  void range_push(const char*) override {}
  void range_pop() override {}
  std::optional<ClockReading> read_clocks() override { return clocks; }
  int calls = 0;
  bool host_bound = false, probed = false;
  std::optional<ClockReading> clocks;

 private:
  std::function<double(int)> us_;
  DeviceInfo info_;
  Ceilings ceilings_;
};

TimeResult time_of(FakeDevice& device, const std::function<void()>& launch, const TimingOptions& options) {
  const auto sample = [&] { return device.time_launch(launch, options.cache, nullptr); };
  return time_samples(device, "a/b(c)[x]*", sample, 2, options);
}

TEST(TimeSamples, StopsEarlyWhenQuietAndGoesOnWhenNoisy) {
  FakeDevice quiet([](int i) { return 100.0 + 0.01 * (i % 3); });
  FakeDevice noisy([](int i) { return 100.0 + 40.0 * (i % 7); });
  TimingOptions o;
  o.budget_s = 1e9;
  o.max_samples = 60;
  const TimeResult a = time_of(
      quiet, [] {}, o);
  const TimeResult b = time_of(
      noisy, [] {}, o);
  EXPECT_EQ(a.samples_us.size(), 10u);
  EXPECT_EQ(b.samples_us.size(), 60u);
  EXPECT_EQ(a.iterations, 10) << "Google Benchmark ran each sample";
  EXPECT_NEAR(a.median_us, 100.01, 1e-9);
  EXPECT_NEAR(a.real_time_us, a.median_us, 0.02) << "its manual time is ours";
  EXPECT_EQ(a.host_bound, 0);
}

TEST(TimeSamples, ProbesBesideTheSamplesAreMedians) {
  FakeDevice d([](int i) { return i % 10 == 0 ? 1000.0 : 100.0; });
  EXPECT_EQ(time_of(d, [] {}, {}).cores_us, 0) << "a device without probes";
  d.probed = true;
  const TimeResult r = time_of(d, [] {}, {});
  EXPECT_DOUBLE_EQ(r.cores_us, 20);
  EXPECT_DOUBLE_EQ(r.memory_us, 800);
  EXPECT_DOUBLE_EQ(r.handover_us, 5);
}

TEST(TimeSamples, TimesInStepsAreNotTakenForQuietOnes) {
  // Six of ten samples are on one step, so the median's interval has no width. Still, the median of another
  // run may be the next step, 3 % away.
  FakeDevice steps([](int i) { return i % 10 < 6 ? 5.0 : 5.16; });
  TimingOptions o;
  o.budget_s = 1e9;
  const TimeResult r = time_of(
      steps, [] {}, o);
  EXPECT_LE((r.hi_us - r.lo_us) / 2, 0.005 * r.median_us + 0.08);
  EXPECT_GE(r.samples_us.size(), 100u);
  EXPECT_LT(r.samples_us.size(), 200u) << "but enough of them are enough";
}

TEST(MedianInterval, ErrorOfTheMiddleHalfIsThatOfItsMean) {
  double sum = 0, squares = 0, said = 0;
  constexpr int kTrials = 2000;
  for (int t = 0; t < kTrials; ++t) {
    std::vector<double> x;
    for (uint32_t i = 0; i < 40; ++i) {
      const double u = (philox4x32(i, static_cast<uint32_t>(t), 0, 0, 9).x[0] + 0.5) / 4294967296.0;
      x.push_back(-std::log(u));  // skewed
    }
    said += middle_half_error(x) / 1.96 / kTrials;
    std::sort(x.begin(), x.end());
    const double m = std::accumulate(x.begin() + 10, x.begin() + 30, 0.0) / 20;
    sum += m;
    squares += m * m;
  }
  const double seen = std::sqrt(squares / kTrials - sum / kTrials * (sum / kTrials));
  EXPECT_NEAR(said / seen, 1, 0.1);
}

TEST(TimeSamples, HostBoundSamplesAreCounted) {
  FakeDevice d([](int) { return 5.0; });
  d.host_bound = true;
  EXPECT_EQ(time_of(d, [] {}, {}).host_bound, 10);
}

TEST(TimeSamples, ErrorsOfTheLaunchPassThrough) {
  FakeDevice d([](int) { return 5.0; });
  int n = 0;
  EXPECT_THROW(time_of(d,
                       [&] {
                         if (++n == 5) throw std::runtime_error("boom");
                       },
                       {}),
               std::runtime_error);
  EXPECT_EQ(time_of(d, [] {}, {}).samples_us.size(), 10u) << "the next one is not affected";
}

TEST(TimeSamples, CopiesMakeThreeCaches) {
  EXPECT_EQ(rotation_copies(100, 1000), 30);
  EXPECT_EQ(rotation_copies(1001, 1000), 3);
  EXPECT_EQ(rotation_copies(3000, 1000), 1) << "it evicts itself";
  EXPECT_GT(rotation_copies(0, 1000), kMaxRotationCopies);
}

TEST(TimeSamples, ClocksAreSummedUpAndThrottlingIsMarked) {
  EXPECT_EQ(summarise({}).readings, 0);
  EXPECT_FALSE(summarise({}).sm_mhz);
  ClockReading a, b, c;
  a.sm_mhz = 1980;
  b.sm_mhz = 1700;
  c.sm_mhz = 1965;
  a.power_w = 100;
  b.power_w = 690;
  b.throttle = {"sw_power_cap"};
  c.throttle = {"sw_power_cap", "hw_thermal"};
  const ClockSummary s = summarise({a, b, c});
  EXPECT_EQ(s.readings, 3);
  EXPECT_EQ(s.sm_mhz, 1965);
  EXPECT_EQ(s.sm_mhz_min, 1700);
  EXPECT_EQ(s.sm_mhz_max, 1980);
  EXPECT_EQ(s.power_w, 690);
  EXPECT_FALSE(s.temperature_c);
  EXPECT_EQ(s.throttle, (std::vector<std::string>{"hw_thermal", "sw_power_cap"}));
  EXPECT_TRUE(s.throttled());

  FakeDevice d([](int) { return 5.0; });
  d.clocks = a;
  EXPECT_EQ(time_of(d, [] {}, {}).clocks.readings, 2) << "before the samples and after";
}

/// The GPU of the ladder's figures.
DeviceInfo h100() {
  DeviceInfo d;
  d.kind = DeviceKind::kCuda;
  d.compute_capability = 90;
  d.multiprocessors = 132;
  d.clock_mhz = 1980;
  d.memory_gbs = 3352;
  d.cache_bytes = 50 << 20;
  return d;
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
  Roofline r = roofline(cost, p, 2 * matrix_us, CacheMode::kCold, c, d);
  EXPECT_EQ(r.bound, "matrix");
  EXPECT_NEAR(*r.sol, 0.5, 1e-12);
  EXPECT_NEAR(r.tflops, 50, 1e-9);
  c.read_gbs = 1;
  r = roofline(cost, p, 2 * matrix_us, CacheMode::kCold, c, d);
  EXPECT_EQ(r.bound, "memory");
  EXPECT_FALSE(roofline(cost, p, 10, CacheMode::kCold, Ceilings{}, d).sol) << "no ceiling, no share";
  EXPECT_FALSE(roofline(CaseCost{}, p, 10, CacheMode::kCold, c, d).sol)
      << "nothing to do is no share of anything";
  c.read_gbs.reset();
  r = roofline(cost, p, 2 * matrix_us, CacheMode::kCold, c, d);
  EXPECT_FALSE(r.sol) << "memory may bind";
  EXPECT_EQ(r.bound, "");
}

// Products of two sides of 8 bits have rates of their own; a side that stands alone is widened.
TEST(Roofline, ProductsOfEightBitsHaveTheirOwnRates) {
  CaseParams p;
  p.head_dim = 192;
  p.head_dim_v = 64;
  p.seqs = {{1000, 1000}};
  Ceilings c;
  c.matmul = {{DType::kBf16, 100}, {DType::kE4m3, 200}, {DType::kInt8, 400}};
  const auto least_us = [&] {
    const CaseCost cost = cost_of(p);
    return roofline(cost, p, 1, CacheMode::kCold, c, DeviceInfo{}).floor_us / (cost.flop / 100e12 * 1e6);
  };
  EXPECT_NEAR(least_us(), 1, 1e-12);
  p.kv_dtype = KvDType::kE4m3;
  EXPECT_NEAR(least_us(), 1, 1e-12);
  p.q_dtype = DType::kE4m3;
  EXPECT_NEAR(least_us(), 0.5, 1e-12);
  p.q_dtype = DType::kInt8;
  p.kv_dtype = KvDType::kInt8K;  // three quarters of the products are those of q and K
  EXPECT_NEAR(least_us(), 0.75 / 4 + 0.25, 1e-12);
  c.matmul.pop_back();
  EXPECT_NEAR(least_us(), 1, 1e-12) << "without a rate of its own, that of dtype stands in";
}

/// A path dcp of four ranks: all that they do, against four times the ceilings.
TEST(Roofline, SeveralDevicesHaveAsManyTimesTheCeilings) {
  CaseParams p;
  p.kv = KvSource::kPaged;
  p.path = Path::kDcp;
  p.dcp_ranks = 4;
  p.seqs = {{1, 1 << 20}};
  DeviceInfo d = h100();
  Ceilings c;
  c.read_gbs = 3000;
  c.cache_gbs = 5000;
  c.matmul = {{DType::kBf16, 800}};
  const auto of = [&](Combine combine) {
    p.dcp_combine = combine;
    return roofline(cost_of(p), p, 500, CacheMode::kCold, c, d);
  };
  const Roofline one = of(Combine::kOneDevice), four = of(Combine::kFused);
  EXPECT_EQ(four.bound, "memory");
  EXPECT_EQ(four.bytes, one.bytes);
  EXPECT_EQ(four.gbs, one.gbs) << "of all GPUs together";
  EXPECT_NEAR(4 * *four.sol, *one.sol, 1e-12);
  EXPECT_NEAR(4 * four.floor_us, one.floor_us, 1e-9);
  EXPECT_NEAR(4 * four.limit_us, one.limit_us, 1e-9);
}

TEST(Roofline, WhatAHotCacheHoldsIsBoundByTheCache) {
  CaseParams p;
  p.seqs = {{1, 4096}};
  const CaseCost cost = cost_of(p);
  Ceilings c;
  c.read_gbs = 1000;
  c.cache_gbs = 5000;
  DeviceInfo d;
  d.cache_bytes = 50 << 20;
  Roofline r = roofline(cost, p, 100, CacheMode::kHot, c, d);
  EXPECT_EQ(r.bound, "l2");
  EXPECT_NEAR(*r.sol, cost.bytes / 5000e9 * 1e6 / 100, 1e-12);
  EXPECT_EQ(roofline(cost, p, 100, CacheMode::kCold, c, d).bound, "memory");
  EXPECT_EQ(roofline(cost, p, 100, CacheMode::kRotate, c, d).bound, "memory");
  d.cache_bytes = 1 << 20;  // most of it does not fit
  r = roofline(cost, p, 100, CacheMode::kHot, c, d);
  EXPECT_EQ(r.bound, "memory");
  EXPECT_NEAR(r.floor_us, (cost.bytes - (1 << 20)) / 1000e9 * 1e6, 1e-9);
  c.floor_us = 1e6;
  EXPECT_EQ(roofline(cost, p, 100, CacheMode::kHot, c, d).bound, "launch");
}

TEST(Roofline, PeaksOfTheHardware) {
  EXPECT_NEAR(*peak_tflops(h100(), DType::kBf16), 1070.5, 0.1);
  EXPECT_NEAR(*peak_tflops(h100(), DType::kE4m3), 2141, 0.1);
  EXPECT_NEAR(*peak_tflops(h100(), DType::kFp32), 535.3, 0.1);
  DeviceInfo unknown = h100();
  unknown.compute_capability = 999;
  EXPECT_FALSE(peak_tflops(unknown, DType::kBf16));
  EXPECT_FALSE(peak_tflops(DeviceInfo{}, DType::kBf16));
}

TEST(Roofline, OnAGpuOnlyTheHardwareMakesATimeImpossible) {
  CaseParams p;
  p.seqs = {{16384, 16384}};
  p.num_heads_q = p.num_heads_kv = 16;
  Ceilings c;
  c.read_gbs = 3100;
  c.matmul = {{DType::kBf16, 810}};
  const CaseCost cost = cost_of(p);
  const auto impossible = [&](double us, CacheMode cache, const DeviceInfo& d) {
    return impossible_time(roofline(cost, p, us, cache, c, d), us, c, d);
  };
  const double us_at_859 = cost.flop / 859e12 * 1e6;
  EXPECT_FALSE(impossible(us_at_859, CacheMode::kCold, h100())) << "a right kernel beat the measured ceiling";
  EXPECT_GT(*roofline(cost, p, us_at_859, CacheMode::kCold, c, h100()).sol, 1);
  EXPECT_TRUE(impossible(cost.flop / 1080e12 * 1e6, CacheMode::kCold, h100()));
  EXPECT_TRUE(impossible(cost.flop / 1080e12 * 1e6, CacheMode::kHot, h100())) << "no cache multiplies faster";
  p.kv_dtype = KvDType::kE4m3;
  EXPECT_FALSE(impossible(cost.flop / 1080e12 * 1e6, CacheMode::kCold, h100()));
  EXPECT_TRUE(impossible(cost.flop / 2200e12 * 1e6, CacheMode::kCold, h100()));
}

TEST(Roofline, OnAGpuMemoryIsAHardLimitToo) {
  CaseParams p;
  p.seqs = {{1, 100000}};
  const Ceilings none;  // no measured ceiling is needed either
  const CaseCost cost = cost_of(p);
  const double floor = (cost.bytes - cost.written) / 3352e9 * 1e6;
  const auto impossible = [&](double us, CacheMode cache) {
    return impossible_time(roofline(cost, p, us, cache, none, h100()), us, none, h100());
  };
  EXPECT_TRUE(impossible(0.98 * floor, CacheMode::kCold));
  EXPECT_TRUE(impossible(0.98 * floor, CacheMode::kRotate));
  EXPECT_FALSE(impossible(0.98 * floor, CacheMode::kHot));
  EXPECT_FALSE(impossible(1.01 * floor, CacheMode::kCold));
  // With few bytes, the timer's steps prevent a proof.
  p.seqs = {{1, 100}};
  const double small = roofline(cost_of(p), p, 1, CacheMode::kCold, none, h100()).limit_us;
  EXPECT_GT(small, 0);
  EXPECT_LT(small, kTimerResolutionUs);
  EXPECT_FALSE(
      impossible_time(roofline(cost_of(p), p, 0.01, CacheMode::kCold, none, h100()), 0.01, none, h100()));
}

/// One state: as many bytes are written as read. What is written may be in the cache when the clock stops.
TEST(Roofline, MergedStatesMayStillBeInTheCache) {
  CaseParams p;
  p.op = Op::kMergeStates;
  p.states = 1;
  p.seqs = {{1000, 0}};
  const CaseCost cost = cost_of(p);
  EXPECT_EQ(cost.written, 1000.0 * p.num_heads_q * (2 * p.head_dim + 4));
  const double read = cost.bytes - cost.written;
  EXPECT_GT(read, 0);
  const Ceilings none;
  EXPECT_NEAR(roofline(cost, p, 1, CacheMode::kCold, none, h100()).limit_us, read / 3352e9 * 1e6, 1e-9);
  Ceilings c;
  c.read_gbs = 10;
  EXPECT_NEAR(roofline(cost, p, 1, CacheMode::kCold, c, DeviceInfo{}).floor_us, read / 10e9 * 1e6, 1e-9);
  EXPECT_NEAR(roofline(cost, p, 1, CacheMode::kCold, c, h100()).floor_us, cost.bytes / 10e9 * 1e6, 1e-9);
  p.seqs = {{1000000, 0}};  // more than the cache holds
  const CaseCost large = cost_of(p);
  EXPECT_NEAR(roofline(large, p, 1, CacheMode::kCold, none, h100()).limit_us,
              (large.bytes - h100().cache_bytes) / 3352e9 * 1e6, 1e-6);
}

TEST(Roofline, OnACpuMeasuredCeilingsStandInUnlessDisturbed) {
  CaseParams p;
  p.seqs = {{1, 100000}};
  Ceilings c;
  c.read_gbs = 10;
  DeviceInfo d;
  const CaseCost cost = cost_of(p);
  const double floor = cost.bytes / 10e9 * 1e6;
  const auto impossible = [&](double us) {
    return impossible_time(roofline(cost, p, us, CacheMode::kCold, c, d), us, c, d);
  };
  EXPECT_TRUE(impossible(0.6 * floor));
  EXPECT_FALSE(impossible(0.7 * floor)) << "within the noise of a shared machine";
  c.disturbed = true;
  EXPECT_FALSE(impossible(0.6 * floor)) << "ceilings of a busy machine prove nothing";
}

}  // namespace
}  // namespace attnbench
