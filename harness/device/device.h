// A place where kernels run: memory, fills, digests, timed launches, ceilings. `cpu` always exists. `cuda` is
// built where nvcc is found; without a working GPU it gives a reason.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/error.h"
#include "harness/values/fill.h"
#include "harness/values/returned.h"
#include "harness/values/signs.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

/// A failed device call. `lost` means that the device context is unusable and no further case can run on it.
class DeviceError : public Error {
 public:
  DeviceError(const std::string& what, bool lost_context)
      : Error(what, kExitFailure, "attnbench: device error: "), lost(lost_context) {}
  bool lost;
};
/// Not enough device memory.
class OutOfMemory : public DeviceError {
 public:
  explicit OutOfMemory(const std::string& what) : DeviceError(what, false) {}
};

struct DeviceInfo {
  DeviceKind kind = DeviceKind::kCpu;
  std::string name;     ///< "cpu", "cuda:0": the value of --device
  std::string model;    ///< "AMD EPYC ...", "NVIDIA H100 80GB HBM3"
  std::string uuid;     ///< GPU only
  std::string driver;   ///< GPU only: "580.159" or the CUDA driver API version
  std::string runtime;  ///< GPU only: CUDA runtime version
  int compute_capability = 0;
  int multiprocessors = 0;
  int threads = 1;  ///< host threads
  int64_t memory_bytes = 0;
  int64_t cache_bytes = 0;  ///< last-level cache: L2 on a GPU, L3 on a CPU
  int64_t flush_bytes = 0;  ///< CPU: read before a launch with a cold cache; 0 on a GPU
  double clock_mhz = 0;     ///< highest SM clock on a GPU; 0 if unknown
  double memory_gbs = 0;    ///< GPU: memory clock times bus width, which no transfer exceeds; 0 if unknown
};

/// What the caches hold when a launch begins.
enum class CacheMode {
  kCold,      ///< the last-level cache holds none of its data, and on a GPU no cache holds its code
  kColdData,  ///< only the data is cold: the code is where the launch before left it; GPUs only
  kHot,       ///< what the launch before left
  kRotate,    ///< what launches on other copies of the tensors left; all copies fill 3 caches or more
};
inline constexpr const char* kCacheModeNames[] = {"cold", "cold_data", "hot", "rotate"};
constexpr const char* cache_mode_name(CacheMode m) { return kCacheModeNames[static_cast<int>(m)]; }
/// nullopt: no mode has this name.
constexpr std::optional<CacheMode> cache_mode_of(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kCacheModeNames); ++i) {
    if (name == kCacheModeNames[i]) return static_cast<CacheMode>(i);
  }
  return std::nullopt;
}

/// What NVML reports about a GPU at one moment; nullopt: not reported.
struct ClockReading {
  std::optional<double> sm_mhz, mem_mhz, power_w, temperature_c;
  std::vector<std::string> throttle;  ///< why the clock is low: "sw_power_cap", ...
};

/// What is looked at around a timed launch, outside of its time.
struct LaunchWatch {
  std::span<const WatchedOutput> outputs;
  /// Changed at the last moment: after it, on a GPU, nothing else runs until the launch begins.
  std::span<const LateSigns> late;
  uint64_t seed = 0;  ///< of the places that are looked at; another one for each launch
  /// Called when the launch has been timed, before its outputs are looked at: brings returned ones to their
  /// place. Null: there are none.
  std::function<void()> take_outputs;
};

/// What was seen around a timed launch.
struct WatchReading {
  int64_t early = 0;       ///< probes that were written when the launch began
  uint64_t at_end = 0;     ///< digest of the outputs as soon as the launch had ended
  uint64_t when_idle = 0;  ///< the same when the device had nothing left to do
  /// Time between two readings of a second clock (the GPU's own, the processor's time stamp), just before the
  /// launch and just after it. 0: not read.
  double span_us = 0;
  /// CPU: processor time between settle() and the launch that no thread of the harness took.
  double foreign_us = 0;
};

/// What a rank did in a launch that several devices share (harness/launch/rank_exchange.h), from the common start.
struct RankTimes {
  double attention_us = 0, communication_us = 0, correction_us = 0;
  double total_us = 0;
};

/// One timed launch.
struct Sample {
  double us = 0;            ///< device time of the launch
  double enqueue_us = 0;    ///< host time to enqueue it (GPU), 0 on cpu
  bool disturbed = false;   ///< CPU: a thread waited for a core meanwhile, for more than 2 % of the time
  bool host_bound = false;  ///< the host was slower than the spin that hides it, so `us` is not device time
  /// CPU: times of three probes just before the launch. They are fixed arithmetic on all threads, the read
  /// that makes the cache cold, and threads that wait for each other. 0: not run.
  double cores_us = 0, memory_us = 0, handover_us = 0;
  WatchReading watch;  ///< empty if the launch was not watched
  /// Several devices: by rank. `us` is the time of the slowest one.
  std::vector<RankTimes> ranks;
  double skew_us = 0;  ///< the ranks' clocks start at most this far apart
};

/// What the hardware counted in separate launches; nullopt: the device has no such counter.
struct CounterReading {
  std::optional<double> dram_read_bytes, dram_write_bytes;
  std::optional<double> tensor_active_percent;  ///< tensor pipes busy, of cycles in which the SM has work
  std::optional<double> l2_hit_percent;         ///< of the sectors requested from L2
  int launches = 0;                             ///< one per pass that the counters need
  std::string reason;                           ///< why nothing was counted, and the remedy
};

/// Rates measured on this device in this process; nullopt if not measured.
struct Ceilings {
  std::optional<double> read_gbs;
  std::optional<double> copy_gbs;
  std::optional<double> cache_gbs;  ///< read from the last-level cache
  struct Matmul {
    DType dtype;
    double tflops;
  };
  std::vector<Matmul> matmul;
  std::optional<double> floor_us;  ///< an empty launch, timed the same way
  /// One exchange between several devices, from a common start to the end of the slowest one.
  struct Link {
    std::string what;  ///< "all_gather", ... (launch/link_times.h)
    int32_t ranks;
    int64_t bytes;  ///< of a rank's larger buffer: all that it gathers, or all that it gives away
    double us;
  };
  std::vector<Link> links;  ///< in runs of cases that take several devices
  bool disturbed = false;   ///< CPU: measured on a busy machine, so a quiet launch may beat them
  std::string note;         ///< how they were measured, or why not
};

struct RankTeam;

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual LaunchContext launch_context() const = 0;  ///< without workspace
  virtual int64_t free_memory() const = 0;           ///< bytes that an allocation may get

  virtual void* allocate(int64_t bytes) = 0;  ///< 256-byte aligned or better; throws OutOfMemory
  virtual void release(void* p) noexcept = 0;
  virtual void upload(void* dst, const void* src, int64_t bytes) = 0;
  virtual void download(void* dst, const void* src, int64_t bytes) = 0;
  virtual void set_bytes(void* dst, unsigned char byte, int64_t bytes) = 0;
  virtual void fill(const FillJob& job) = 0;  ///< base and owners are device memory
  virtual uint64_t digest(const void* data, int64_t bytes) = 0;
  virtual void change_signs(const SignedTensor& tensor) = 0;     ///< the table is device memory
  virtual void poison(const WatchedOutput& output) = 0;          ///< sets what a launch writes to poison
  virtual void take_returned(const ReturnedTensor& tensor) = 0;  ///< after what the stream holds
  virtual void synchronize() = 0;  ///< throws DeviceError with what went wrong on the device

  /// Waits for threads that are about to fall asleep. Call before the inputs of a watched launch change, or
  /// foreign_us is not read.
  virtual void settle() {}
  /// Times one call of `launch`, which enqueues on launch_context().stream. Cold: the last-level cache holds
  /// none of the launch's data and no dirty lines; on a GPU, caches hold none of its code, as after other
  /// kernels. Cold data: the code stays where it is (GPU only; a CPU throws Error). Hot and rotate: nothing is
  /// done before the launch. Errors of `launch` pass through. `watch`: what to look at just before the launch and right after it; null: nothing.
  virtual Sample time_launch(const std::function<void()>& launch, CacheMode cache,
                             const LaunchWatch* watch) = 0;
  Sample time_launch(const std::function<void()>& launch, CacheMode cache) {
    return time_launch(launch, cache, nullptr);
  }
  /// Counts what the hardware does in one call of `launch`, which is repeated if the counters need several
  /// passes. `prepare` is called before each pass; for cold, the last-level cache is emptied after it. Never
  /// part of a timed sample, because counting disturbs clocks and caches. Errors of `launch` pass through. If
  /// nothing can be counted, the reading gives the reason.
  virtual CounterReading count_launch(const std::function<void()>& launch,
                                      const std::function<void()>& prepare, CacheMode cache);
  /// Undoes cache settings that a launch may have left (persisting L2 lines, a stream's access policy).
  virtual void reset_cache_policy() {}
  /// Clocks, power and temperature now; nullopt if they cannot be read.
  virtual std::optional<ClockReading> read_clocks() { return std::nullopt; }
  /// Captures `launch` once as a CUDA graph. The returned callable replays it. Throws DeviceError if the
  /// device has no graphs.
  virtual std::function<void()> capture_graph(const std::function<void()>& launch) = 0;
  /// Measures the ceilings for these element types, in a few seconds. The device caches them after the first
  /// call.
  virtual const Ceilings& ceilings(const std::vector<DType>& dtypes) = 0;
  /// Repeats the measurement of ceilings() and keeps the better values: on a shared machine, the first one
  /// may have been disturbed. Does nothing on a device whose ceilings are steady.
  virtual void remeasure_ceilings() {}
  /// Takes ceilings that another process has just measured on this device, instead of measuring them.
  virtual void adopt_ceilings(const Ceilings&) {}

  /// This device and others, one for each of several ranks of a case; this device is rank 0. They live as long
  /// as it. Null with the reason if there are not so many.
  virtual RankTeam* rank_team(int32_t ranks, std::string& why_not);

  virtual void profiler_start() = 0;  ///< cudaProfilerStart; nothing on cpu
  virtual void profiler_stop() = 0;
  virtual void range_push(const char* name) = 0;  ///< NVTX range of the domain attnbench; nothing on cpu
  virtual void range_pop() = 0;
};

/// A profiler range for as long as it lives. Profilers show it and filter by it.
class DeviceRange {
 public:
  DeviceRange(Device& device, const char* name) : device_(device) { device_.range_push(name); }
  ~DeviceRange() { device_.range_pop(); }
  DeviceRange(const DeviceRange&) = delete;
  DeviceRange& operator=(const DeviceRange&) = delete;

 private:
  Device& device_;
};

/// The devices that can be opened here, and why there is no GPU.
struct DeviceProbe {
  int cuda_devices = 0;
  std::string cuda_reason;  ///< empty when cuda_devices > 0
};
DeviceProbe probe_devices();

/// Opens "cpu", "cuda", "cuda:N". Throws DeviceError with the reason. num_threads 0: all hardware threads.
std::unique_ptr<Device> open_device(std::string_view name, int num_threads = 0);

/// Implemented by harness/device/cuda, or by harness/device/no_cuda/no_cuda.cpp in a build without CUDA.
DeviceProbe probe_cuda();
std::unique_ptr<Device> open_cuda(int ordinal);
std::unique_ptr<Device> open_cpu(int num_threads);

}  // namespace attnbench
