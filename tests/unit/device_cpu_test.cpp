// The host as a device, and the names of devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "harness/device/core_waits.h"
#include "harness/device/cpu_ceilings.h"
#include "harness/device/cpu_info.h"
#include "harness/device/device.h"

namespace attnbench {
namespace {

using testing::HasSubstr;

std::string error_of_opening(std::string_view name) {
  try {
    open_device(name);
  } catch (const DeviceError& error) {
    EXPECT_FALSE(error.lost);
    return error.what();
  }
  return "";
}

/// Spins on `count` threads at once for 200 ms. Returns the longest wait of one of them as a share of the time.
std::optional<double> waited_share(unsigned count) {
  const auto all = static_cast<std::ptrdiff_t>(count) + 1;
  std::barrier begin(all), spun(all), read(all);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < count; ++i) {
    threads.emplace_back([&] {
      begin.arrive_and_wait();
      const auto start = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(200)) {
      }
      spun.arrive_and_wait();
      read.arrive_and_wait();  // the waits of a thread that has ended are not counted
    });
  }
  const CoreWaits waits;
  begin.arrive_and_wait();
  spun.arrive_and_wait();
  const std::optional<double> longest = waits.longest();
  read.arrive_and_wait();
  for (std::thread& t : threads) t.join();
  if (!longest) return std::nullopt;
  return *longest / 0.2;
}

TEST(CoreWaits, ThreadsThatShareACoreWait) {
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  const std::optional<double> shared = waited_share(3 * cores);
  if (!shared) GTEST_SKIP() << "this system does not count waits";
  EXPECT_GT(*shared, 0.3);
}

TEST(CoreWaits, AThreadThatSleepsDoesNotWait) {
  const CoreWaits waits;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT(waits.longest().value_or(0), 0.045) << "sleep is no wait";
}

TEST(CpuInfo, ABusyThreadIsCounted) {
  if (!std::ifstream("/proc/stat")) GTEST_SKIP() << "no /proc/stat here";
  std::atomic<bool> stop = false;
  std::thread busy([&] {
    while (!stop) {
    }
  });
  const double threads = cpu_busy_threads(0.5);
  stop = true;
  busy.join();
  EXPECT_GT(threads, 0.3);
  EXPECT_LE(threads, cpu_threads() + 0.5);
}

TEST(OpenDeviceTest, NamesWhatIsAllowed) {
  for (const char* name :
       {"", "gpu", "CPU", "cpu ", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda:99999999999", "auto"}) {
    EXPECT_THAT(error_of_opening(name), HasSubstr("cpu, cuda or cuda:N required")) << name;
  }
}

TEST(OpenDeviceTest, SaysWhyThereIsNoGpu) {
  const DeviceProbe probe = probe_devices();
  if (probe.cuda_devices > 0) {
    EXPECT_TRUE(probe.cuda_reason.empty());
    EXPECT_THAT(error_of_opening("cuda:1000"), HasSubstr("cuda:0 to cuda:"));
  } else {
    EXPECT_FALSE(probe.cuda_reason.empty());
    EXPECT_EQ(probe.cuda_reason.find('\n'), std::string::npos);
    EXPECT_THAT(error_of_opening("cuda"), HasSubstr(probe.cuda_reason));
    EXPECT_THAT(error_of_opening("cuda:0"), HasSubstr(probe.cuda_reason));
  }
}

TEST(CpuDeviceTest, Info) {
  const auto device = open_device("cpu");
  const DeviceInfo& info = device->info();
  EXPECT_EQ(info.kind, DeviceKind::kCpu);
  EXPECT_EQ(info.name, "cpu");
  EXPECT_FALSE(info.model.empty());
  EXPECT_GE(info.threads, 1);
  EXPECT_GT(info.cache_bytes, 0);
  EXPECT_GT(info.memory_bytes, 0);
  EXPECT_GT(device->free_memory(), 0);
  EXPECT_LE(device->free_memory(), info.memory_bytes);
  const LaunchContext context = device->launch_context();
  EXPECT_EQ(context.num_threads, info.threads);
  EXPECT_EQ(context.stream, nullptr);
  EXPECT_EQ(open_device("cpu", 3)->launch_context().num_threads, 3);
}

TEST(CpuDeviceTest, MemoryIsAlignedAndCopied) {
  const auto device = open_device("cpu");
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{257}, int64_t{5} << 20}) {
    void* p = device->allocate(bytes);
    ASSERT_NE(p, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 256, 0u);
    device->set_bytes(p, 0xab, bytes);
    device->release(p);
  }
  device->release(nullptr);

  const std::vector<int> source{1, 2, 3, 4};
  std::vector<int> back(4);
  void* p = device->allocate(16);
  device->upload(p, source.data(), 16);
  device->download(back.data(), p, 16);
  EXPECT_EQ(back, source);
  EXPECT_EQ(device->digest(p, 16), digest_host(source.data(), 16));
  device->release(p);
}

TEST(CpuDeviceTest, OutOfMemoryIsNotLoss) {
  const auto device = open_device("cpu");
  try {
    device->allocate(int64_t{1} << 50);
    FAIL() << "2^50 bytes were granted";
  } catch (const OutOfMemory& error) {
    EXPECT_FALSE(error.lost);
    EXPECT_THAT(error.what(), HasSubstr("1125899.91 GB wanted"));
  }
}

TEST(CpuDeviceTest, TimesALaunch) {
  const auto device = open_device("cpu");
  for (const CacheMode mode : {CacheMode::kCold, CacheMode::kHot}) {
    int calls = 0;
    const Sample sample = device->time_launch(
        [&] {
          ++calls;
          std::this_thread::sleep_for(std::chrono::milliseconds(3));
        },
        mode);
    EXPECT_EQ(calls, 1);
    EXPECT_GE(sample.us, 3000);
    EXPECT_EQ(sample.enqueue_us, 0);
    EXPECT_FALSE(sample.host_bound);
    EXPECT_GT(sample.cores_us, 1) << "the probes stand beside it";
    EXPECT_EQ(sample.handover_us > 0, device->info().threads > 1);
    EXPECT_EQ(sample.memory_us > 1, mode == CacheMode::kCold) << sample.memory_us;
  }
  EXPECT_THROW(device->time_launch([] { throw std::runtime_error("mine"); }, CacheMode::kHot),
               std::runtime_error);
}

TEST(CpuDeviceTest, AColdLaunchFindsItsTensorsInNoCache) {
  if (!can_evict()) GTEST_SKIP() << "a flush reads at most 256 MiB, and caches may be larger";
  const auto device = open_cpu_protected(1);
  constexpr int64_t kLines = 8192, kWords = 8;  // 512 KiB
  const auto* data = static_cast<uint64_t*>(device->allocate_for(Access::kReads, 64 * kLines, "data", {}));
  device->set_bytes(const_cast<uint64_t*>(data), 0, 64 * kLines);
  volatile uint64_t sink = 0;
  const auto fastest = [&](CacheMode mode) {
    double us = 1e9;
    for (int i = 0; i < 20; ++i) {
      const auto launch = [&] {
        uint64_t at = 0;
        for (int64_t j = 0; j < kLines;
             ++j)  // no prefetcher follows, and each address needs the value before
          at = (at * 1103515245 + 12345 + static_cast<uint64_t>(j) + data[at * kWords]) % kLines;
        sink = at;
      };
      us = std::min(us, device->time_launch(launch, mode).us);
    }
    return us;
  };
  const double hot = fastest(CacheMode::kHot);
  EXPECT_GT(fastest(CacheMode::kCold), 5 * hot) << hot << " us: read from L3 alone it takes 4 times as long";
}

TEST(CpuDeviceTest, HasNoGraphsAndIgnoresProfilers) {
  const auto device = open_device("cpu");
  try {
    device->capture_graph([] {});
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_STREQ(error.what(), "cpu has no graphs");
    EXPECT_FALSE(error.lost);
  }
  device->profiler_start();
  device->range_push("range");
  device->range_pop();
  device->profiler_stop();
  device->synchronize();
}

TEST(CpuDeviceTest, CeilingsArePlausibleAndKept) {
  const auto device = open_device("cpu");
  const Ceilings& first = device->ceilings({DType::kBf16});
  ASSERT_TRUE(first.read_gbs && first.copy_gbs && first.floor_us);
  EXPECT_GT(*first.read_gbs, 0.1);
  EXPECT_LT(*first.read_gbs, 10000);
  EXPECT_GT(*first.copy_gbs, 0.1);
  EXPECT_LT(*first.floor_us, 1000);
  ASSERT_EQ(first.matmul.size(), 1u);
  EXPECT_GT(first.matmul[0].tflops, 1e-4);
  EXPECT_THAT(first.note, HasSubstr("fp32"));
  const double read = *first.read_gbs;
  const Ceilings& second = device->ceilings({DType::kBf16, DType::kFp32, DType::kE4m3, DType::kInt8});
  EXPECT_EQ(*second.read_gbs, read) << "measured twice";
  ASSERT_EQ(second.matmul.size(), 2u) << "8-bit types have no products of their own";
  EXPECT_EQ(second.matmul[0].tflops, second.matmul[1].tflops);
}

}  // namespace
}  // namespace attnbench
