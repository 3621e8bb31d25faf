// A session on a made-up device: when counters are read, for which launches, and what other clocks say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "harness/cases/cost.h"
#include "harness/device/cpu_info.h"
#include "harness/device/kernel_host.h"
#include "harness/launch/launcher.h"
#include "harness/session/session.h"

namespace attnbench {
namespace {

using ::testing::HasSubstr;

/// A process of kernels that is none: launches run here and take what a test says.
class MadeUpHost : public KernelHost {
 public:
  KernelMemory& memory() override { throw std::logic_error("tensors lie in this process"); }
  double last_us() const override { return 1; }
  void begin(int, TimeClock) override {}
  HostedTimes end() override { return {}; }
  Go time_go(const std::function<void()>& launches) override {
    launches();
    ++goes;
    return go;
  }
  bool disturbed(int) const override { return busy; }
  bool busy = false;
  Go go{.us = 1000, .held_us = 1000, .cpu_us = 1000};  ///< of ten launches
  int goes = 0;
};

/// The cpu device with artificial counters and a log of events: t for a timed launch, ( ) around a
/// preparation, [ ] around a counted launch, l for a launch inside either.
class CountingDevice : public Device {
 public:
  const DeviceInfo& info() const override { return info_; }
  LaunchContext launch_context() const override { return cpu_->launch_context(); }
  KernelHost* kernel_host() override { return host.get(); }
  int64_t free_memory() const override { return cpu_->free_memory(); }
  void* allocate(int64_t bytes) override { return cpu_->allocate(bytes); }
  void release(void* p) noexcept override { cpu_->release(p); }
  void upload(void* dst, const void* src, int64_t bytes) override { cpu_->upload(dst, src, bytes); }
  void download(void* dst, const void* src, int64_t bytes) override { cpu_->download(dst, src, bytes); }
  void set_bytes(void* dst, unsigned char b, int64_t bytes) override { cpu_->set_bytes(dst, b, bytes); }
  void fill(const FillJob& job) override { cpu_->fill(job); }
  uint64_t digest(const void* data, int64_t bytes) override { return cpu_->digest(data, bytes); }
  void change_signs(const SignedTensor& t) override { cpu_->change_signs(t); }
  void poison(const WatchedOutput& o) override { cpu_->poison(o); }
  void take_returned(const ReturnedTensor& t) override { cpu_->take_returned(t); }
  void synchronize() override { cpu_->synchronize(); }
  using Device::time_launch;
  Sample time_launch(const std::function<void()>& launch, CacheMode, const LaunchWatch* watch) override {
    Sample sample = cpu_->time_launch(launch, CacheMode::kHot, watch);
    log += 't';
    sample.us = 100;
    sample.watch.span_us = 0;
    return sample;
  }
  CounterReading count_launch(const std::function<void()>& launch, const std::function<void()>& prepare,
                              CacheMode mode) override {
    cache = mode;
    CounterReading r = reading;
    for (int i = 0; i < 2; ++i) {
      const int before = launches;
      log += '(';
      prepare();
      log += std::string(static_cast<std::size_t>(launches - before), 'l') + ")[";
      launch();
      log += ']';
      ++r.launches;
    }
    return r;
  }
  std::function<void()> capture_graph(const std::function<void()>& launch) override { return launch; }
  const Ceilings& ceilings(const std::vector<DType>&) override { return ceilings_; }
  void profiler_start() override {}
  void profiler_stop() override {}
  void range_push(const char* name) override { launches += std::string(name) == "launch" ? 1 : 0; }
  void range_pop() override {}

  DeviceInfo& changed_info() { return info_; }
  std::string log;
  std::unique_ptr<MadeUpHost> host;
  int launches = 0;
  std::optional<CacheMode> cache;
  CounterReading reading{4e6, 1e6, 37.5, 12.5, 0, ""};

 private:
  std::unique_ptr<Device> cpu_ = open_device("cpu", 1);
  DeviceInfo info_ = cpu_->info();
  Ceilings ceilings_;
};

Case tiny() {
  Case c;
  c.params.num_heads_q = c.params.num_heads_kv = 1;
  c.params.head_dim = 4;
  c.params.seqs = {{2, 2}};
  c.id = case_id(c.params);
  return c;
}

const Kernel& cpu_attention() {
  return *select_kernels(builtin_kernels(), Op::kAttention, DeviceKind::kCpu, {"cpu"}).front();
}

Record run_one(Device& device, SessionOptions options, const Kernel& kernel = cpu_attention()) {
  const Case c = tiny();
  options.timing.ceilings = false;
  bool lost = false;
  return run_item({&c, &kernel}, device, options, lost);
}

TEST(SessionClock, TimesFitLaunchesThatFollowEachOther) {
  CountingDevice device;  // 100 us by the timer
  device.host = std::make_unique<MadeUpHost>();
  EXPECT_EQ(run_one(device, {}).status, Status::kPass);
  EXPECT_EQ(device.host->goes, 1);
  device.host->go.us = 1300;
  const Record r = run_one(device, {});
  EXPECT_EQ(r.status, Status::kFail);
  EXPECT_THAT(
      r.reason,
      HasSubstr(
          "100.0 us by the timer, but 130.0 us with new values by a clock that a kernel cannot change"));
  EXPECT_FALSE(r.time);
  EXPECT_GT(device.host->goes, 10);
  device.host->busy = true;
  const Record marked = run_one(device, {});
  EXPECT_EQ(marked.status, Status::kPass) << "a busy machine is no reason to accuse a kernel";
  EXPECT_TRUE(marked.time->busy());
  EXPECT_EQ(marked.time->other_us, 130) << "and none to believe it";
  device.host->go.us = 1600;
  EXPECT_TRUE(run_one(device, {}).time->vague()) << "such a time is not usable";
}

TEST(SessionClock, ProcessorsComputeNoLongerThanTheThreadsThatAreGiven) {
  CountingDevice device;
  device.host = std::make_unique<MadeUpHost>();
  device.host->go.cpu_us = 1900;
  EXPECT_THAT(run_one(device, {}).reason,
              HasSubstr("10 launches took 1000.0 us with 1 thread, but 1900.0 us of processors"));
  device.changed_info().threads = 2;
  if (cpu_threads() < 2) GTEST_SKIP() << "more threads than cores are not counted";
  EXPECT_EQ(run_one(device, {}).status, Status::kPass);
}

TEST(SessionCounters, OnlyWhereAskedFor) {
  CountingDevice device;
  const Record r = run_one(device, {});
  EXPECT_EQ(r.status, Status::kPass) << r.reason;
  EXPECT_FALSE(r.counters);
  EXPECT_EQ(device.log.find('['), std::string::npos);
}

TEST(SessionCounters, AfterAllTimedLaunches) {
  CountingDevice device;
  SessionOptions options;
  options.counters = true;
  const Record r = run_one(device, options);
  ASSERT_EQ(r.status, Status::kPass) << r.reason;
  ASSERT_TRUE(r.counters);
  EXPECT_EQ(r.counters->launches, 2);
  EXPECT_EQ(dram_over_model(r), 5e6 / r.roofline->bytes);
  EXPECT_EQ(device.cache, CacheMode::kCold);
  const std::size_t first = device.log.find('(');
  EXPECT_EQ(device.log.substr(first), "()[]()[]") << "a cold cache is the device's to make";
  EXPECT_EQ(device.log.substr(0, first), std::string(first, 't'));
  EXPECT_GE(first, r.time->samples_us.size());
}

TEST(SessionCounters, AHotCacheIsWhatALaunchLeft) {
  CountingDevice device;
  SessionOptions options;
  options.counters = true;
  options.timing.cache = CacheMode::kHot;
  const Record r = run_one(device, options);
  ASSERT_EQ(r.status, Status::kPass) << r.reason;
  EXPECT_EQ(device.cache, CacheMode::kHot);
  EXPECT_THAT(device.log, ::testing::EndsWith("t(l)[](l)[]"));
}

TEST(SessionCounters, AReasonIsKept) {
  CountingDevice device;
  device.reading = {};
  device.reading.reason = "CUPTI was not found";
  SessionOptions options;
  options.counters = true;
  const Record r = run_one(device, options);
  EXPECT_EQ(r.status, Status::kPass) << r.reason;
  EXPECT_EQ(r.counters->reason, "CUPTI was not found");
  EXPECT_EQ(dram_over_model(r), std::nullopt);
}

const Kernel* g_inner = nullptr;
CountingDevice* g_device = nullptr;
std::vector<const void*> g_outs;

TEST(SessionCounters, WhatACountedLaunchLeavesIsLookedAt) {
  CountingDevice device;
  g_device = &device;
  g_inner = &cpu_attention();
  Kernel kernel = *g_inner;
  kernel.launch = [](const OpParams* p, const LaunchContext* c, KernelMessage* m) {
    const KernelStatus s = g_inner->launch(p, c, m);
    if (g_device->log.find('[') != std::string::npos) {
      static_cast<unsigned char*>(p->attention.out)[1] ^= 0x40;
    }
    return s;
  };
  SessionOptions options;
  options.counters = true;
  const Record r = run_one(device, options, kernel);
  EXPECT_EQ(r.status, Status::kFail);
  EXPECT_THAT(r.reason, HasSubstr("after timing"));
}

TEST(SessionTiming, ARotatingCacheTakesTheCopiesInTurns) {
  for (const bool watch : {false, true}) {
    CountingDevice device;
    device.changed_info().cache_bytes = static_cast<int64_t>(cost_of(tiny().params).bytes);
    g_inner = &cpu_attention();
    g_outs.clear();
    Kernel kernel = *g_inner;
    kernel.launch = [](const OpParams* p, const LaunchContext* c, KernelMessage* m) {
      g_outs.push_back(p->attention.out);
      return g_inner->launch(p, c, m);
    };
    SessionOptions options;
    options.timing.cache = CacheMode::kRotate;
    options.timing.watch = watch;
    const Record r = run_one(device, options, kernel);
    ASSERT_EQ(r.status, Status::kPass) << r.reason;
    EXPECT_EQ(r.time->copies, 3);
    ASSERT_GE(g_outs.size(), 1u + 3u + 10u) << "the verified launch, a warm-up of each copy, samples";
    EXPECT_EQ(std::set(g_outs.begin(), g_outs.end()).size(), 3u);
    for (std::size_t i = 1; i < g_outs.size(); ++i) EXPECT_EQ(g_outs[i], g_outs[1 + (i - 1) % 3]) << i;
  }
}

}  // namespace
}  // namespace attnbench
