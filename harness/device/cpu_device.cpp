// The host as a device: plain memory, a monotonic clock, and a cache flush by reading.
#include <fmt/format.h>
#include <omp.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <thread>

#include "harness/device/core_waits.h"
#include "harness/device/cpu_ceilings.h"
#include "harness/device/cpu_info.h"
#include "harness/device/cpu_rank_stream.h"
#include "harness/device/device.h"
#include "harness/device/memory_limit.h"
#include "harness/error.h"
#include "harness/gigabytes.h"

namespace attnbench {
namespace {

/// The share of a time that a thread may wait for a core. An idle machine takes a core from a busy thread some
/// ten times a second, for less than 1 % of the time; one other busy process takes a quarter of it and more.
constexpr double kMostWait = 0.02;

/// Involuntary context switches of all threads of this process since it started.
int64_t involuntary_switches() {
  rusage usage{};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

template <class Work>
double us_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

/// Thread numbers of the OpenMP team.
std::vector<pid_t> team_of(int threads) {
  std::vector<pid_t> team(static_cast<std::size_t>(threads), gettid());
#pragma omp parallel num_threads(threads)
  team[static_cast<std::size_t>(omp_get_thread_num())] = gettid();
  return team;
}

/// Processor time that the process's other threads have used, in seconds. Each thread's own clock is read:
/// the process's clock minus those of the team is off by milliseconds while a thread of the team runs.
double foreign_seconds(const std::vector<pid_t>& team) {
  double s = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", ignored)) {
    const auto thread = static_cast<pid_t>(std::atoi(entry.path().filename().c_str()));
    if (std::find(team.begin(), team.end(), thread) != team.end()) continue;
    // The clock of a thread's processor time, as pthread_getcpuclockid makes it from the thread's number.
    const auto clock = static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3) | 6u);
    timespec t{};
    if (clock_gettime(clock, &t) == 0)
      s += static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  return s;
}

/// The processor's time stamp, a clock that is no function call; 0 where there is none.
uint64_t time_stamp() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t t;
  asm volatile("mrs %0, cntvct_el0" : "=r"(t));
  return t;
#else
  return 0;
#endif
}

/// Ticks of the time stamp in a microsecond, measured once.
double ticks_per_us() {
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t first = time_stamp();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const uint64_t last = time_stamp();
  const auto end = std::chrono::steady_clock::now();
  return static_cast<double>(last - first) / std::chrono::duration<double, std::micro>(end - begin).count();
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int num_threads) {
    info_.kind = DeviceKind::kCpu;
    info_.name = "cpu";
    info_.model = cpu_model();
    info_.threads = num_threads > 0 ? num_threads : cpu_threads();
    const MemoryLimit memory = memory_limit();
    info_.memory_bytes = memory.bytes;
    info_.cache_bytes = cpu_cache_bytes();
    info_.flush_bytes = cpu_flush_bytes(info_.cache_bytes, memory.free);
  }

  const DeviceInfo& info() const override { return info_; }
  LaunchContext launch_context() const override {
    LaunchContext context{};
    context.num_threads = info_.threads;
    return context;
  }
  int64_t free_memory() const override { return memory_limit().free; }

  void* allocate(int64_t bytes) override {
    if (bytes < 0) throw DeviceError(fmt::format("cpu: allocation of {} bytes", bytes), false);
    // Linux grants more memory than it has and kills the process at the first touch. So large requests are
    // checked here.
    if (bytes > 64 * kMiB && bytes > free_memory()) {
      throw OutOfMemory(fmt::format("cpu: out of memory: {} wanted, {} free",
                                    gigabytes(static_cast<double>(bytes)),
                                    gigabytes(static_cast<double>(free_memory()))));
    }
    const auto alignment = static_cast<std::size_t>(bytes >= 4 * kMiB ? 4096 : 256);
    const auto size =
        (std::max<std::size_t>(static_cast<std::size_t>(bytes), 1) + alignment - 1) / alignment * alignment;
    void* p = std::aligned_alloc(alignment, size);
    if (p == nullptr)
      throw OutOfMemory(fmt::format("cpu: out of memory: {} wanted", gigabytes(static_cast<double>(bytes))));
    return p;
  }
  void release(void* p) noexcept override { std::free(p); }
  void upload(void* dst, const void* src, int64_t bytes) override { copy(dst, src, bytes); }
  void download(void* dst, const void* src, int64_t bytes) override { copy(dst, src, bytes); }
  void set_bytes(void* dst, unsigned char byte, int64_t bytes) override {
    if (bytes > 0) std::memset(dst, byte, static_cast<std::size_t>(bytes));
  }
  void fill(const FillJob& job) override { fill_host(job); }
  uint64_t digest(const void* data, int64_t bytes) override { return digest_host(data, bytes); }
  void change_signs(const SignedTensor& tensor) override { change_signs_host(tensor); }
  void poison(const WatchedOutput& output) override { poison_host(output); }
  void take_returned(const ReturnedTensor& tensor) override { take_returned_host(tensor); }
  void synchronize() override {}

  void settle() override {
    waits_.emplace();
    constexpr auto kNap = std::chrono::microseconds(200);
    constexpr int kNaps = 500;
    // Where a team is larger than the one before it, OpenMP makes threads, whose work would look like a kernel's. The
    // harness's own loops run on all threads, also if the kernel gets fewer.
    if (omp_get_max_threads() < info_.threads) omp_set_num_threads(info_.threads);
    team_ = team_of(std::max(info_.threads, omp_get_max_threads()));
    for (int i = 0; i < kNaps; ++i) {
      const double before = foreign_seconds(team_);
      std::this_thread::sleep_for(kNap);
      settled_s_ = foreign_seconds(team_);
      if (settled_s_ - before < 0.2e-6 * static_cast<double>(kNap.count())) break;
    }
  }

  using Device::time_launch;
  Sample time_launch(const std::function<void()>& launch, CacheMode cache,
                     const LaunchWatch* watch) override {
    if (cache == CacheMode::kColdData) {
      throw Error("the cpu device has no --cache cold_data; take cold");
    }
    Sample sample;
    if (watch != nullptr) {
      for (const LateSigns& s : watch->late) change_late_signs_host(s);
    }
    sample.cores_us = us_of([&] { turn_cores(info_.threads); });
    if (info_.threads > 1) sample.handover_us = us_of([&] { hand_over(info_.threads); });
    if (cache == CacheMode::kCold) sample.memory_us = us_of([&] { flush_cache(); });
    const std::span<const WatchedOutput> outputs =
        watch != nullptr ? watch->outputs : std::span<const WatchedOutput>();
    for (const WatchedOutput& o : outputs) sample.watch.early += written_probes_host(o, watch->seed);
    if (watch != nullptr && !team_.empty())
      sample.watch.foreign_us = 1e6 * (foreign_seconds(team_) - settled_s_);
    if (waits_) waits_->start();
    const int64_t switches = involuntary_switches();
    const uint64_t stamp = time_stamp();
    sample.us = us_of(launch);
    sample.watch.span_us = static_cast<double>(time_stamp() - stamp) / ticks_per_us_;
    sample.disturbed = involuntary_switches() != switches;
    if (const std::optional<double> wait = waits_ ? waits_->longest() : std::nullopt)
      sample.disturbed = 1e6 * *wait > kMostWait * sample.us;
    if (watch != nullptr && watch->take_outputs) watch->take_outputs();
    // A digest of all takes long enough for a thread to finish what the launch left undone. The probes do not.
    uint64_t probes = 0;
    for (const WatchedOutput& o : outputs) probes += probe_digest_host(o, watch->seed);
    uint64_t factor = 1;
    for (const WatchedOutput& o : outputs) {
      sample.watch.at_end += factor * unsigned_digest_host(o.tensor, watch->seed);
      factor *= 31;
    }
    sample.watch.when_idle = sample.watch.at_end;
    for (const WatchedOutput& o : outputs) probes -= probe_digest_host(o, watch->seed);
    if (probes != 0) ++sample.watch.when_idle;  // something changed meanwhile
    return sample;
  }

  std::function<void()> capture_graph(const std::function<void()>&) override {
    throw DeviceError("cpu has no graphs", false);
  }

  const Ceilings& ceilings(const std::vector<DType>& dtypes) override {
    if (!measured_) measure();
    for (const DType t : dtypes) {
      if (dtype_size(t) == 1) continue;  // kernels widen such numbers
      const bool known = std::any_of(ceilings_.matmul.begin(), ceilings_.matmul.end(),
                                     [t](const Ceilings::Matmul& m) { return m.dtype == t; });
      if (!known && fp32_tflops_) ceilings_.matmul.push_back({t, *fp32_tflops_});
    }
    return ceilings_;
  }

  void remeasure_ceilings() override {
    constexpr int kMost = 5;  // ceilings that are beaten in every case would be measured in every case
    if (++remeasured_ > kMost) return;
    const Ceilings before = ceilings_;
    const std::optional<double> fp32_before = fp32_tflops_;
    measure();
    if (!ceilings_.read_gbs) ceilings_.note = before.note;
    const auto keep_better = [](std::optional<double>& now, const std::optional<double>& then) {
      if (then && (!now || *now < *then)) now = then;
    };
    keep_better(ceilings_.read_gbs, before.read_gbs);
    keep_better(ceilings_.copy_gbs, before.copy_gbs);
    keep_better(fp32_tflops_, fp32_before);
    for (Ceilings::Matmul& m : ceilings_.matmul) m.tflops = std::max(m.tflops, fp32_tflops_.value_or(0));
  }

  void adopt_ceilings(const Ceilings& measured) override {
    ceilings_ = measured;
    if (!measured.matmul.empty()) fp32_tflops_ = measured.matmul.front().tflops;
    measured_ = true;
  }

  /// From now on, `ranks` devices of this CPU stand for as many GPUs.
  void stand_for_ranks(int ranks, const std::string& nccl_library) {
    ranks_.nccl_library = nccl_library;
    for (int r = 0; r < ranks; ++r) {
      if (r > 0) {
        peers_.push_back(std::make_unique<CpuDevice>(info_.threads));
        peers_.back()->info_.name = fmt::format("cpu, rank {}", r);
      }
      ranks_.devices.push_back(r == 0 ? this : peers_.back().get());
      streams_.push_back(std::make_unique<CpuRankStream>());
      ranks_.streams.push_back(streams_.back().get());
    }
  }
  RankTeam* rank_team(int32_t ranks, std::string& why_not) override {
    return ranks == ranks_.ranks() ? &ranks_ : Device::rank_team(ranks, why_not);
  }

  void profiler_start() override {}
  void profiler_stop() override {}
  void range_push(const char*) override {}
  void range_pop() override {}

 private:
  static void copy(void* dst, const void* src, int64_t bytes) {
    if (bytes > 0) std::memcpy(dst, src, static_cast<std::size_t>(bytes));
  }

  void flush_cache() {
    if (flush_.empty()) {
      try {
        flush_.assign(static_cast<std::size_t>(info_.flush_bytes / 8), 1);
      } catch (const std::bad_alloc&) {
        throw OutOfMemory(fmt::format("cpu: out of memory: {} wanted for the cache flush",
                                      gigabytes(static_cast<double>(info_.flush_bytes))));
      }
    }
    flush_sink_ = read_all(flush_.data(), static_cast<int64_t>(flush_.size()), info_.threads);
  }

  void measure() {
    std::vector<double> floor(21);
    for (double& us : floor) us = time_launch([] {}, CacheMode::kHot, nullptr).us;
    std::nth_element(floor.begin(), floor.begin() + 10, floor.end());
    ceilings_.floor_us = floor[10];
    try {
      const CoreWaits waits;
      const auto start = std::chrono::steady_clock::now();
      const int64_t free = free_memory();
      const CpuRateSizes sizes = cpu_rate_sizes(info_.threads, info_.cache_bytes, free);
      const CpuRates rates = measure_cpu_rates(info_.threads, sizes);
      ceilings_.read_gbs = rates.read_gbs;
      ceilings_.copy_gbs = rates.copy_gbs;
      fp32_tflops_ = rates.fp32_tflops;
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      const double share = waits.longest().value_or(0) / seconds;
      ceilings_.disturbed = share > kMostWait;
      const std::string memory =
          sizes.buffer_bytes > 0
              ? fmt::format("over {} MiB, best of several", sizes.buffer_bytes / kMiB)
              : fmt::format(
                    "not measured: twice the caches' {} MiB would take over half of the {} MiB that are free",
                    info_.cache_bytes / kMiB, free / kMiB);
      ceilings_.note = fmt::format(
          "{} threads; read and copy {}; matrix product: Eigen fp32, one {}^3 product per thread, stands for "
          "every dtype because cpu kernels compute in fp32",
          info_.threads, memory, sizes.product);
      if (ceilings_.disturbed) {
        ceilings_.note += fmt::format(
            "; the machine was busy (a thread waited for a core {:.0f} % of the time)", 100 * share);
      }
    } catch (const std::bad_alloc&) {
      ceilings_.note = "not measured: out of memory";
    }
    measured_ = true;
  }

  DeviceInfo info_;
  std::vector<uint64_t> flush_;
  volatile uint64_t flush_sink_ = 0;
  Ceilings ceilings_;
  std::optional<double> fp32_tflops_;
  int remeasured_ = 0;  ///< times
  bool measured_ = false;
  std::vector<pid_t> team_;
  std::optional<CoreWaits> waits_;
  double settled_s_ = 0;  ///< foreign_seconds() at the end of settle()
  double ticks_per_us_ = ticks_per_us();
  std::vector<std::unique_ptr<CpuDevice>> peers_;
  std::vector<std::unique_ptr<CpuRankStream>> streams_;
  RankTeam ranks_;
};

}  // namespace

std::unique_ptr<Device> open_cpu(int num_threads) { return std::make_unique<CpuDevice>(num_threads); }

std::unique_ptr<Device> open_cpu_ranks(int num_threads, int ranks, const std::string& nccl_library) {
  auto device = std::make_unique<CpuDevice>(num_threads);
  device->stand_for_ranks(ranks, nccl_library);
  return device;
}

}  // namespace attnbench
