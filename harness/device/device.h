// A place where kernels run: memory, fills, digests, timed launches, ceilings. `cpu` always exists. `cuda` is
// built where nvcc is found; without a working GPU it gives a reason.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/device/kernel_host.h"
#include "harness/error.h"
#include "harness/facts/device_info.h"
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
  /// The launch by a second clock: the GPU's own; on a CPU that of another process. 0: there is none.
  double span_us = 0;
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
  double apart_s = 0;  ///< wall time that was spent on new values before it
  /// Several devices: by rank. `us` is the time of the slowest one.
  std::vector<RankTimes> ranks;
  double skew_us = 0;  ///< the ranks' clocks start at most this far apart
};

struct RankTeam;

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual LaunchContext launch_context() const = 0;      ///< without workspace
  virtual KernelHost* kernel_host() { return nullptr; }  ///< null: kernels run in this process
  virtual void time_by(TimeClock) {}  ///< CPU: what launches and ceilings are timed by from now on
  /// Only with a kernel_host: runs all launches that `launches` asks for, without a stop between them.
  virtual Go time_go(const std::function<void()>& launches) { return kernel_host()->time_go(launches); }
  virtual int64_t free_memory() const = 0;  ///< bytes that an allocation may get

  virtual void* allocate(int64_t bytes) = 0;  ///< 256-byte aligned or better; throws OutOfMemory
  /// Memory that a kernel may see. A kernel in a process of its own can do no more to it than `access` says.
  virtual void* allocate_for(Access access, int64_t bytes, const std::string& name, const SeenPart& seen) {
    static_cast<void>(access);
    static_cast<void>(name);
    static_cast<void>(seen);
    return allocate(bytes);
  }
  /// Whether SeenPart::holes take no memory. All other functions leave them out, or find a little memory all over them.
  virtual bool has_holes() const { return false; }
  virtual std::vector<Hole> holes_of(const void*) const { return {}; }  ///< of its block of memory
  /// A kernel in this process can touch no more, either, while `on` (open_cpu_protected).
  virtual void protect(bool on) { static_cast<void>(on); }
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
  std::string cuda_reason;   ///< empty when cuda_devices > 0
  bool shared_cuda = false;  ///< two processes can use the memory of each of them
};
DeviceProbe probe_devices();

/// Opens "cpu", "cuda", "cuda:N". Throws DeviceError with the reason. num_threads 0: all hardware threads. `host`: where
/// kernels run; null: in this process. It must outlive the device.
std::unique_ptr<Device> open_device(std::string_view name, int num_threads = 0, GpuHost* host = nullptr);

/// N of "cuda:N", 0 of "cuda", -1 of "cpu". Throws DeviceError.
int gpu_of(std::string_view name);
/// Throws DeviceError if there is no such device, without opening one.
void expect_device(std::string_view name);

/// Implemented by harness/device/cuda, or by harness/device/no_cuda/no_cuda.cpp in a build without CUDA.
DeviceProbe probe_cuda();
std::unique_ptr<Device> open_cuda(int ordinal, GpuHost* host = nullptr);
std::unique_ptr<Device> open_cpu(int num_threads, KernelHost* host = nullptr);
/// Kernels run in this process, and can touch only what they may see while Device::protect is on.
std::unique_ptr<Device> open_cpu_protected(int num_threads);

}  // namespace attnbench
