// The host as a device: plain memory, a monotonic clock, and a cache flush by reading.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

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

/// What a flush reads per thread after the tensors are evicted: more than the caches of a core.
constexpr int64_t kReadByThread = 4 * kMiB;

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int num_threads, KernelHost* host = nullptr) : host_(host) {
    info_.kind = DeviceKind::kCpu;
    info_.name = "cpu";
    info_.model = cpu_model();
    info_.threads = num_threads > 0 ? num_threads : cpu_threads();
    const MemoryLimit memory = memory_limit();
    info_.memory_bytes = memory.bytes;
    info_.cache_bytes = cpu_cache_bytes();
    read_bytes_ = cpu_flush_bytes(info_.cache_bytes, memory.free);
    info_.flush_bytes = can_evict() ? std::min(read_bytes_, info_.threads * kReadByThread) : read_bytes_;
  }

  const DeviceInfo& info() const override { return info_; }
  LaunchContext launch_context() const override {
    LaunchContext context{};
    context.num_threads = info_.threads;
    return context;
  }
  KernelHost* kernel_host() override { return host_; }
  void time_by(TimeClock clock) override { clock_ = clock; }
  int64_t free_memory() const override {
    const KernelMemory* memory = kernel_memory();
    return memory_limit().free + (memory != nullptr ? memory->inputs.kept() + memory->outputs.kept() : 0);
  }

  void* allocate(int64_t bytes) override {
    check_request(bytes);
    const auto alignment = static_cast<std::size_t>(bytes >= 4 * kMiB ? 4096 : 256);
    const auto size =
        (std::max<std::size_t>(static_cast<std::size_t>(bytes), 1) + alignment - 1) / alignment * alignment;
    void* p = std::aligned_alloc(alignment, size);
    return checked(p, bytes);
  }
  void* allocate_for(Access access, int64_t bytes, const std::string& name, const SeenPart& seen) override {
    KernelMemory* memory = kernel_memory();
    if (memory == nullptr || (access != Access::kReads && access != Access::kWrites)) return allocate(bytes);
    int64_t there = bytes;
    for (const ByteRange& hole : seen.holes) there -= hole.end - hole.begin;
    check_request(there);
    return checked(memory->of(access).allocate(bytes, name, seen), bytes);
  }
  bool has_holes() const override { return kernel_memory() != nullptr; }
  std::vector<Hole> holes_of(const void* p) const override {
    std::vector<Hole> holes;
    const KernelMemory* memory = kernel_memory();
    if (memory == nullptr) return holes;
    for (const SharedMemory* m : {&memory->inputs, &memory->outputs}) {
      const char* base = static_cast<const char*>(m->base());
      for (const ByteRange& r : m->holes_of(p)) holes.push_back({base + r.begin, base + r.end});
    }
    return holes;
  }
  void release(void* p) noexcept override {
    KernelMemory* memory = kernel_memory();
    const bool shared = memory != nullptr && (memory->inputs.release(p) || memory->outputs.release(p));
    if (!shared) std::free(p);
  }
  void own_memory() {
    try {
      own_ = std::make_unique<KernelMemory>(info_.memory_bytes);
    } catch (const Error&) {  // then the neighbours of tensors are not hidden
    }
  }
  void protect(bool on) override {
    if (own_ == nullptr) return;
    own_->inputs.protect(on, Access::kReads);
    own_->outputs.protect(on, Access::kWrites);
  }
  void upload(void* dst, const void* src, int64_t bytes) override { copy(dst, src, bytes); }
  void download(void* dst, const void* src, int64_t bytes) override {
    for_each_part(src, bytes, holes_of(src), [&](const char* at, int64_t n) {
      copy(static_cast<char*>(dst) + (at - static_cast<const char*>(src)), at, n);
    });
  }
  void set_bytes(void* dst, unsigned char byte, int64_t bytes) override {
    for_each_part(dst, bytes, holes_of(dst), [&](const char* at, int64_t n) {
      std::memset(const_cast<char*>(at), byte, static_cast<std::size_t>(n));
    });
  }
  void fill(const FillJob& job) override { fill_host(job, holes_of(job.base)); }
  uint64_t digest(const void* data, int64_t bytes) override {
    uint64_t all = 0;
    for_each_part(data, bytes, holes_of(data),
                  [&](const char* at, int64_t n) { all = all * 31 + digest_host(at, n); });
    return all;
  }
  void change_signs(const SignedTensor& tensor) override {
    for_each_part(tensor, holes_of(tensor.data), change_signs_host);
  }
  void poison(const WatchedOutput& output) override {
    if (output.tokens != nullptr) return poison_host(output);
    for_each_part(output.tensor, holes_of(output.tensor.data),
                  [](const SignedTensor& part) { poison_host({part}); });
  }
  void take_returned(const ReturnedTensor& tensor) override { take_returned_host(tensor); }
  void synchronize() override {}

  using Device::time_launch;
  Sample time_launch(const std::function<void()>& launch, CacheMode cache,
                     const LaunchWatch* watch) override {
    if (cache == CacheMode::kColdData) {
      throw Error("the cpu device has no --cache cold_data; take cold");
    }
    Sample sample;
    const auto prepare = [&] {
      if (watch != nullptr) {
        for (const LateSigns& s : watch->late)
          for_each_part(s.tensor, holes_of(s.tensor.data), [&](const SignedTensor& part) {
            change_late_signs_host({part, s.table_row, s.first, s.count});
          });
      }
      if (cache == CacheMode::kCold) sample.memory_us = flush_cache();
    };
    host_ != nullptr ? time_hosted(launch, prepare, sample) : time_here(launch, prepare, sample);
    if (watch != nullptr && watch->take_outputs) watch->take_outputs();
    uint64_t factor = 1;
    for (const WatchedOutput& o : watch != nullptr ? watch->outputs : std::span<const WatchedOutput>()) {
      for_each_part(o.tensor, holes_of(o.tensor.data), [&](const SignedTensor& part) {
        sample.watch.at_end += factor * unsigned_digest_host(part, watch->seed);
      });
      factor *= 31;
    }
    sample.watch.when_idle = sample.watch.at_end;  // a hosted kernel is stopped
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
  KernelMemory* kernel_memory() const { return host_ != nullptr ? &host_->memory() : own_.get(); }

  /// Linux grants more memory than it has and kills the process at the first touch, so large requests are checked.
  void check_request(int64_t bytes) const {
    if (bytes < 0) throw DeviceError(fmt::format("cpu: allocation of {} bytes", bytes), false);
    if (bytes <= 64 * kMiB || bytes <= free_memory()) return;
    throw OutOfMemory(fmt::format("cpu: out of memory: {} wanted, {} free",
                                  gigabytes(static_cast<double>(bytes)),
                                  gigabytes(static_cast<double>(free_memory()))));
  }
  static void* checked(void* p, int64_t bytes) {
    if (p != nullptr) return p;
    throw OutOfMemory(fmt::format("cpu: out of memory: {} wanted", gigabytes(static_cast<double>(bytes))));
  }

  template <class Prepare>
  void time_here(const std::function<void()>& launch, const Prepare& prepare, Sample& sample) {
    sample.cores_us = us_of(clock_, [&] { turn_cores(info_.threads); });
    if (info_.threads > 1) sample.handover_us = us_of(clock_, [&] { hand_over(info_.threads); });
    prepare();
    CoreWaits waits;
    waits.start();
    sample.us = us_of(clock_, launch);
    note_wait(waits.longest(), sample);
  }

  template <class Prepare>
  void time_hosted(const std::function<void()>& launch, const Prepare& prepare, Sample& sample) {
    host_->begin(info_.threads, clock_);
    prepare();
    launch();
    const HostedTimes t = host_->end();
    sample.us = t.us;
    sample.cores_us = t.cores_us;
    sample.handover_us = t.handover_us;
    sample.watch.span_us = t.outer_us;
    note_wait(t.waited_s, sample);
  }

  void note_wait(const std::optional<double>& seconds, Sample& sample) const {
    sample.disturbed = clock_ == TimeClock::kWall && seconds && 1e6 * *seconds > kMostWait * sample.us;
  }

  static void copy(void* dst, const void* src, int64_t bytes) {
    if (bytes > 0) std::memcpy(dst, src, static_cast<std::size_t>(bytes));
  }

  /// Evicts the tensors and reads a little, for what else the kernel's cores keep near (code, tables of pages). Reads
  /// twice the caches if lines cannot be evicted, or if the tensors are so large that this is quicker. Returns the
  /// microseconds of the reading.
  double flush_cache() {
    const std::vector<std::span<const char>> tensors = evictable();
    const int64_t bytes = tensors.empty() ? read_bytes_ : info_.flush_bytes;
    if (flush_.size() < static_cast<std::size_t>(bytes / 8)) {
      try {
        flush_.assign(static_cast<std::size_t>(bytes / 8), 1);
      } catch (const std::bad_alloc&) {
        throw OutOfMemory(fmt::format("cpu: out of memory: {} wanted for the cache flush",
                                      gigabytes(static_cast<double>(bytes))));
      }
    }
    for (const std::span<const char>& t : tensors)
      evict(t.data(), static_cast<int64_t>(t.size()), info_.threads);
    if (!tensors.empty()) evict(flush_.data(), bytes, info_.threads);
    return us_of(clock_, [&] { flush_sink_ = read_all(flush_.data(), bytes / 8, info_.threads); });
  }

  /// The tensors, if to evict them is quicker than to read twice the caches. Tensors that lie in no KernelMemory are not
  /// known.
  std::vector<std::span<const char>> evictable() const {
    constexpr int64_t kQuicker = 2;  // lines are evicted in half of the time that it takes to read them
    const KernelMemory* memory = can_evict() ? kernel_memory() : nullptr;
    if (memory == nullptr) return {};
    std::vector<std::span<const char>> tensors = memory->inputs.seen_memory();
    const std::vector<std::span<const char>> outputs = memory->outputs.seen_memory();
    tensors.insert(tensors.end(), outputs.begin(), outputs.end());
    std::size_t bytes = 0;
    for (const std::span<const char>& t : tensors) bytes += t.size();
    if (static_cast<int64_t>(bytes) > kQuicker * read_bytes_) tensors.clear();
    return tensors;
  }

  void measure() {
    std::vector<double> floor(21);
    const std::function<void()> nothing = [] {};
    for (double& us : floor) us = us_of(clock_, nothing);
    std::nth_element(floor.begin(), floor.begin() + 10, floor.end());
    ceilings_.floor_us = floor[10];
    try {
      const CoreWaits waits;
      const double start = us_by(TimeClock::kWall);
      const int64_t free = free_memory();
      const CpuRateSizes sizes = cpu_rate_sizes(info_.threads, info_.cache_bytes, free);
      const CpuRates rates = measure_cpu_rates(info_.threads, sizes, clock_);
      ceilings_.read_gbs = rates.read_gbs;
      ceilings_.copy_gbs = rates.copy_gbs;
      fp32_tflops_ = rates.fp32_tflops;
      const double seconds = 1e-6 * (us_by(TimeClock::kWall) - start);
      const double share = waits.longest().value_or(0) / seconds;
      ceilings_.disturbed = clock_ == TimeClock::kWall && share > kMostWait;
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
  TimeClock clock_ = TimeClock::kWall;
  int64_t read_bytes_;  ///< by a flush that evicts nothing
  std::vector<uint64_t> flush_;
  volatile uint64_t flush_sink_ = 0;
  Ceilings ceilings_;
  std::optional<double> fp32_tflops_;
  int remeasured_ = 0;  ///< times
  bool measured_ = false;
  KernelHost* host_;
  std::unique_ptr<KernelMemory> own_;  ///< of kernels in this process, if it is protected
  std::vector<std::unique_ptr<CpuDevice>> peers_;
  std::vector<std::unique_ptr<CpuRankStream>> streams_;
  RankTeam ranks_;
};

}  // namespace

std::unique_ptr<Device> open_cpu(int num_threads, KernelHost* host) {
  return std::make_unique<CpuDevice>(num_threads, host);
}

std::unique_ptr<Device> open_cpu_protected(int num_threads) {
  auto device = std::make_unique<CpuDevice>(num_threads);
  device->own_memory();
  return device;
}

std::unique_ptr<Device> open_cpu_ranks(int num_threads, int ranks, const std::string& nccl_library) {
  auto device = std::make_unique<CpuDevice>(num_threads);
  device->stand_for_ranks(ranks, nccl_library);
  return device;
}

}  // namespace attnbench
