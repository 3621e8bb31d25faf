// A GPU as a device: the same bits as the host, honest timing, errors with names.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "harness/device/device.h"
#include "harness/device/peak.h"

namespace attnbench {
namespace {

class GpuDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    const DeviceProbe probe = probe_cuda();
    if (probe.cuda_devices == 0) GTEST_SKIP() << probe.cuda_reason;
    device_ = open_device("cuda");
  }

  /// Device memory that is released at the end of the scope.
  std::unique_ptr<void, std::function<void(void*)>> memory(int64_t bytes) {
    return {device_->allocate(bytes), [this](void* p) { device_->release(p); }};
  }

  std::unique_ptr<Device> device_;
};

struct Layout {
  const char* name;
  bool blocks, heads_outside;
  int pad;  ///< elements after each row's channels
};
constexpr Layout kLayouts[] = {{"plain", false, false, 0},
                               {"padded", false, false, 3},
                               {"NHD", true, false, 0},
                               {"HND", true, true, 0},
                               {"HND padded", true, true, 1}};

TEST_F(GpuDeviceTest, FillGivesTheHostsBits) {
  constexpr int64_t kRows = 37, kBlock = 8, kBlocks = 5;
  constexpr int32_t kHeads = 3;
  std::vector<RowOwner> owners;
  for (int32_t r = 0; r < kRows; ++r)
    owners.push_back(r % 7 == 3 ? RowOwner{-1, -1} : RowOwner{r % 5, 60 + r});
  const auto device_owners = memory(kRows * static_cast<int64_t>(sizeof(RowOwner)));
  device_->upload(device_owners.get(), owners.data(), kRows * static_cast<int64_t>(sizeof(RowOwner)));

  for (const DType dtype :
       {DType::kBf16, DType::kFp16, DType::kFp32, DType::kE4m3, DType::kE5m2, DType::kInt8}) {
    for (const Profile profile :
         {Profile::kNormal, Profile::kPeaked, Profile::kOutlier, Profile::kLarge, Profile::kHuge}) {
      for (const Tensor tensor : {Tensor::kQ, Tensor::kNewV}) {
        for (const Layout& layout : kLayouts) {
          for (const int dim : {1, 3, 4, 5, 64, 72, 127, 256}) {
            SCOPED_TRACE(std::string(dtype_name(dtype)) + " " + profile_name(profile) + " " + layout.name +
                         " D " + std::to_string(dim));
            const int64_t row = dim + layout.pad;
            FillJob job{};
            job.dtype = dtype;
            job.tensor = tensor;
            job.spec = {0x123456789abcdef0u, profile};
            job.num_rows = kRows;
            job.block_size = layout.blocks ? kBlock : kRows;
            job.stride_head = layout.heads_outside ? kBlock * row : row;
            job.stride_token = layout.heads_outside ? row : kHeads * row;
            job.stride_block = kBlock * kHeads * row;
            job.num_heads = kHeads;
            job.head_dim = dim;
            const int64_t bytes = kBlocks * kBlock * kHeads * row * static_cast<int64_t>(dtype_size(dtype));
            std::vector<unsigned char> expected(static_cast<std::size_t>(bytes), 0x33), got(expected.size());
            const auto data = memory(bytes);
            device_->set_bytes(data.get(), 0x33, bytes);
            job.base = data.get();
            job.owners = static_cast<const RowOwner*>(device_owners.get());
            device_->fill(job);
            device_->download(got.data(), data.get(), bytes);
            job.base = expected.data();
            job.owners = owners.data();
            fill_host(job);
            ASSERT_EQ(got, expected);
          }
        }
      }
    }
  }
}

TEST_F(GpuDeviceTest, DigestIsTheHosts) {
  std::vector<unsigned char> bytes(3 << 20);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(i * 2654435761u >> 13);
  const auto total = static_cast<int64_t>(bytes.size());
  const auto data = memory(total);
  device_->upload(data.get(), bytes.data(), total);
  for (const int64_t start : {0, 1, 2, 8, 12}) {
    for (const int64_t length :
         {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{8}, int64_t{9}, int64_t{4095}, total - 16}) {
      EXPECT_EQ(device_->digest(static_cast<const char*>(data.get()) + start, length),
                digest_host(bytes.data() + start, length))
          << start << " " << length;
    }
  }
}

TEST_F(GpuDeviceTest, InfoIsFilled) {
  const DeviceInfo& info = device_->info();
  EXPECT_EQ(info.kind, DeviceKind::kCuda);
  EXPECT_EQ(info.name, "cuda:0");
  EXPECT_FALSE(info.model.empty());
  EXPECT_EQ(info.uuid.size(), 40u) << info.uuid;
  EXPECT_GE(info.compute_capability, 80);
  EXPECT_GT(info.multiprocessors, 0);
  EXPECT_GT(info.cache_bytes, 0);
  EXPECT_GT(info.clock_mhz, 100);
  EXPECT_GT(device_->free_memory(), 0);
  EXPECT_LE(device_->free_memory(), info.memory_bytes);
  EXPECT_NE(device_->launch_context().stream, nullptr);
}

TEST_F(GpuDeviceTest, OutOfMemoryIsNotLoss) {
  try {
    device_->allocate(int64_t{1} << 50);
    FAIL() << "2^50 bytes were granted";
  } catch (const OutOfMemory& error) {
    EXPECT_FALSE(error.lost);
  }
  const auto data = memory(1024);  // the device still works
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data.get()) % 256, 0u);
  device_->set_bytes(data.get(), 1, 1024);
  device_->synchronize();
}

TEST_F(GpuDeviceTest, MisuseIsAnErrorWithAName) {
  int host = 0;
  try {
    device_->upload(nullptr, &host, sizeof host);
    FAIL() << "a copy to null passed";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("cudaError"), std::string::npos) << error.what();
    EXPECT_FALSE(error.lost) << error.what();
  }
}

TEST_F(GpuDeviceTest, TimesAreDeviceTimes) {
  for (const CacheMode mode : {CacheMode::kCold, CacheMode::kHot}) {
    device_->time_launch([] {}, mode);
    int host_bound = 0;
    for (int i = 0; i < 20; ++i) {
      const Sample sample = device_->time_launch([] {}, mode);
      EXPECT_GT(sample.us, 0);
      EXPECT_LT(sample.us, 1000) << "an empty launch";
      EXPECT_GT(sample.enqueue_us, 0);
      host_bound += sample.host_bound;
    }
    EXPECT_LE(host_bound, 10);
  }
}

TEST_F(GpuDeviceTest, SlowHostsAreSeenAndHidden) {
  const auto slow = [](int us) {
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::microseconds(us)) {
    }
  };
  // Longer than the longest spin: it cannot be hidden.
  const Sample bound = device_->time_launch([&] { slow(10000); }, CacheMode::kHot);
  EXPECT_TRUE(bound.host_bound);
  EXPECT_GE(bound.enqueue_us, 10000);
  // Shorter: after the first sample the spin is long enough.
  device_->time_launch([&] { slow(300); }, CacheMode::kHot);
  int hidden = 0;
  for (int i = 0; i < 10; ++i) {
    const Sample sample = device_->time_launch([&] { slow(300); }, CacheMode::kHot);
    if (!sample.host_bound) {
      ++hidden;
      EXPECT_LT(sample.us, 200) << "host time got into the figure";
    }
  }
  EXPECT_GE(hidden, 5);
}

TEST_F(GpuDeviceTest, ErrorsOfALaunchPassThrough) {
  EXPECT_THROW(device_->time_launch([] { throw std::runtime_error("mine"); }, CacheMode::kCold),
               std::runtime_error);
  EXPECT_THROW(device_->capture_graph([] { throw std::runtime_error("mine"); }), std::runtime_error);
  device_->synchronize();
  const auto replay = device_->capture_graph([] {});
  EXPECT_GT(device_->time_launch(replay, CacheMode::kHot).us, 0);
}

TEST_F(GpuDeviceTest, CeilingsArePlausible) {
  const Ceilings& ceilings = device_->ceilings({DType::kBf16});
  ASSERT_TRUE(ceilings.read_gbs && ceilings.copy_gbs && ceilings.floor_us) << ceilings.note;
  EXPECT_GT(*ceilings.read_gbs, 50);
  EXPECT_LT(*ceilings.read_gbs, 20000);
  EXPECT_GT(*ceilings.copy_gbs, 50);
  EXPECT_LT(*ceilings.copy_gbs, 20000);
  EXPECT_GT(*ceilings.floor_us, 0.5);
  EXPECT_LT(*ceilings.floor_us, 100);
  for (const Ceilings::Matmul& m : ceilings.matmul) {
    EXPECT_GT(m.tflops, 1) << dtype_name(m.dtype);
    EXPECT_LT(m.tflops, 10000) << dtype_name(m.dtype);
  }
  EXPECT_FALSE(ceilings.note.empty());
}

TEST_F(GpuDeviceTest, NoMeasuredCeilingPassesTheHardware) {
  const DeviceInfo& info = device_->info();
  const Ceilings& ceilings =
      device_->ceilings({DType::kBf16, DType::kFp16, DType::kFp32, DType::kE4m3, DType::kInt8});
  ASSERT_GT(info.memory_gbs, 50);
  if (ceilings.read_gbs) {
    EXPECT_LE(*ceilings.read_gbs, info.memory_gbs);
  }
  if (ceilings.read_gbs && ceilings.cache_gbs) {
    EXPECT_GT(*ceilings.cache_gbs, *ceilings.read_gbs);
    EXPECT_LT(*ceilings.cache_gbs, 20 * *ceilings.read_gbs);
  }
  for (const Ceilings::Matmul& m : ceilings.matmul) {
    if (const auto peak = peak_tflops(info, m.dtype)) {
      EXPECT_LE(m.tflops, *peak) << dtype_name(m.dtype);
    }
  }
}

TEST_F(GpuDeviceTest, ClocksAreReadWhereTheLibraryIs) {
  const auto clocks = device_->read_clocks();
  if (!clocks) GTEST_SKIP() << device_->ceilings({}).note;
  ASSERT_TRUE(clocks->sm_mhz);
  EXPECT_GT(*clocks->sm_mhz, 100);
  EXPECT_LE(*clocks->sm_mhz, device_->info().clock_mhz + 1);
  if (clocks->power_w) {
    EXPECT_LT(*clocks->power_w, 3000);
  }
}

/// (100 tokens, 4 heads, 24 channels) of bf16 with signs, on the host and on the GPU.
TEST_F(GpuDeviceTest, SignsPoisonAndDigestsAreThoseOfTheHost) {
  std::vector<uint16_t> host(100 * 4 * 24);
  for (std::size_t i = 0; i < host.size(); ++i) host[i] = static_cast<uint16_t>(i * 40503u % 0x7f00u);
  std::vector<uint8_t> table(2 * 24);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = i % 3 == 0 ? 1 : 0;
  const auto bytes = static_cast<int64_t>(host.size() * 2);
  void* const data = device_->allocate(bytes);
  void* const signs = device_->allocate(48);
  device_->upload(data, host.data(), bytes);
  device_->upload(signs, table.data(), 48);
  SignedTensor on_host{.data = host.data(),
                       .dtype = DType::kBf16,
                       .elements = bytes / 2,
                       .dim = 24,
                       .head_rows = 5,
                       .heads = 4,
                       .group = 2,
                       .table = table.data(),
                       .table_dim = 24};
  SignedTensor on_gpu = on_host;
  on_gpu.data = data;
  on_gpu.table = static_cast<const uint8_t*>(signs);
  change_signs_host(on_host);
  device_->change_signs(on_gpu);
  change_late_signs_host({on_host, 1, 4, 4});

  const WatchedOutput output{.tensor = on_gpu, .poisoned = false};
  const LateSigns late{on_gpu, 1, 4, 4};
  const LaunchWatch watch{std::span(&output, 1), std::span(&late, 1), 99};
  const WatchReading seen = device_->time_launch([] {}, CacheMode::kCold, &watch).watch;
  EXPECT_EQ(seen.at_end, unsigned_digest_host(on_host, 0));
  EXPECT_EQ(seen.when_idle, seen.at_end);
  EXPECT_GT(seen.span_us, 0);
  std::vector<uint16_t> got(host.size());
  device_->download(got.data(), data, bytes);
  EXPECT_EQ(got, host);

  const WatchedOutput poisoned{.tensor = on_gpu};
  const LaunchWatch of_poison{std::span(&poisoned, 1), {}, 99};
  EXPECT_EQ(device_->time_launch([] {}, CacheMode::kHot, &of_poison).watch.early, kProbes);
  device_->poison(poisoned);
  EXPECT_EQ(device_->time_launch([] {}, CacheMode::kHot, &of_poison).watch.early, 0);
  device_->release(data);
  device_->release(signs);
}

TEST_F(GpuDeviceTest, ResettingTheCachePolicyIsHarmless) {
  device_->reset_cache_policy();
  device_->synchronize();
}

}  // namespace
}  // namespace attnbench
