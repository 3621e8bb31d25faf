// A place where kernels run: memory, filling, digests, one timed launch, ceilings. `cpu` is always there;
// `cuda` is built where nvcc is found and answers with a reason where no GPU works.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/error.h"
#include "harness/values/fill.h"
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
  std::string name;     ///< "cpu", "cuda:0": what --device takes
  std::string model;    ///< "AMD EPYC ...", "NVIDIA H100 80GB HBM3"
  std::string uuid;     ///< GPU only
  std::string driver;   ///< GPU only: "580.159" or the CUDA driver API version
  std::string runtime;  ///< GPU only: CUDA runtime version
  int compute_capability = 0;
  int multiprocessors = 0;
  int threads = 1;  ///< host threads
  int64_t memory_bytes = 0;
  int64_t cache_bytes = 0;  ///< last-level cache: L2 on a GPU, L3 on a CPU
  double clock_mhz = 0;     ///< highest SM clock on a GPU; 0 where unknown
  double memory_gbs = 0;    ///< GPU: memory clock times bus width, which no transfer exceeds; 0 where unknown
};

/// What the last-level cache holds of a launch when it begins.
enum class CacheMode {
  kCold,      ///< nothing of its data
  kColdCode,  ///< nor does any cache hold its instructions; GPUs only
  kHot,       ///< what the launch before left
  kRotate,    ///< what launches on other copies of the tensors left, which together are 3 caches or more
};
constexpr const char* cache_mode_name(CacheMode m) {
  constexpr const char* names[] = {"cold", "cold_code", "hot", "rotate"};
  return names[static_cast<int>(m)];
}

/// What the management library says of a GPU at one moment; nullopt where it does not.
struct ClockReading {
  std::optional<double> sm_mhz, mem_mhz, power_w, temperature_c;
  std::vector<std::string> throttle;  ///< why the clock is lower than it could be: "sw_power_cap", ...
};

/// One timed launch.
struct Sample {
  double us = 0;            ///< device time of the launch
  double enqueue_us = 0;    ///< host time to enqueue it (GPU), 0 on cpu
  bool disturbed = false;   ///< CPU: the system took a core away meanwhile (involuntary context switches)
  bool host_bound = false;  ///< the host was slower than the spin that hides it: the time is not the device's
  /// CPU: what the machine's own probes took just before, or 0: a fixed piece of arithmetic on all threads,
  /// the reading that makes the cache cold, and threads that wait for each other.
  double cores_us = 0, memory_us = 0, handover_us = 0;
};

/// What the hardware counted in launches of their own; nullopt where the device has no such counter.
struct CounterReading {
  std::optional<double> dram_read_bytes, dram_write_bytes;
  std::optional<double>
      tensor_active_percent;             ///< tensor pipes busy, of the cycles with work on a multiprocessor
  std::optional<double> l2_hit_percent;  ///< of the sectors that the L2 cache was asked for
  int launches = 0;                      ///< one for each pass that the counters need
  std::string reason;                    ///< why nothing was counted, and what mends it
};

/// Rates measured on this device in this process; nullopt where unmeasured.
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
  bool disturbed = false;          ///< CPU: measured on a busy machine, so that a quiet launch may beat them
  std::string note;                ///< how they were measured, or why not
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual LaunchContext launch_context() const = 0;  ///< without workspace
  virtual int64_t free_memory() const = 0;           ///< bytes that an allocation may hope for

  virtual void* allocate(int64_t bytes) = 0;  ///< 256-byte aligned or better; throws OutOfMemory
  virtual void release(void* p) noexcept = 0;
  virtual void upload(void* dst, const void* src, int64_t bytes) = 0;
  virtual void download(void* dst, const void* src, int64_t bytes) = 0;
  virtual void set_bytes(void* dst, unsigned char byte, int64_t bytes) = 0;
  virtual void fill(const FillJob& job) = 0;  ///< base and owners are device memory
  virtual uint64_t digest(const void* data, int64_t bytes) = 0;
  virtual void synchronize() = 0;  ///< throws DeviceError with what went wrong on the device

  /// Times one call of `launch`, which enqueues on launch_context().stream. Cold: the last-level cache holds
  /// none of its data, and no dirty lines; with cold code, the instruction caches none of its code either
  /// (GPUs; a CPU throws Error). Hot and rotate: nothing is done before it. Errors raised by
  /// `launch` itself pass through.
  virtual Sample time_launch(const std::function<void()>& launch, CacheMode cache) = 0;
  /// Counts what the hardware did in one call of `launch`, which is repeated where the counters need several
  /// passes. Before each, `prepare` is called; cold, the last-level cache is emptied after that. Never part
  /// of a timed sample: counting disturbs clocks and caches. Errors of `launch` pass through; where nothing
  /// can be counted, the reading says why.
  virtual CounterReading count_launch(const std::function<void()>& launch,
                                      const std::function<void()>& prepare, CacheMode cache);
  /// Undoes what the case before may have left set for the caches (persisting L2 lines).
  virtual void reset_cache_policy() {}
  /// Clocks, power and temperature now; nullopt where nothing tells.
  virtual std::optional<ClockReading> read_clocks() { return std::nullopt; }
  /// Captures `launch` once as a CUDA graph; the returned callable replays it. Throws DeviceError where the
  /// device has no graphs.
  virtual std::function<void()> capture_graph(const std::function<void()>& launch) = 0;
  /// Measures the ceilings for these element types; some seconds at most. Cached by the device after the
  /// first call.
  virtual const Ceilings& ceilings(const std::vector<DType>& dtypes) = 0;
  /// Measures again what ceilings() measured, and keeps the better of both: on a shared machine a first
  /// measurement may have been disturbed. Does nothing where a device's ceilings are steady.
  virtual void remeasure_ceilings() {}
  /// Takes ceilings that another process measured on this device just before, instead of measuring them.
  virtual void adopt_ceilings(const Ceilings&) {}

  virtual void profiler_start() = 0;  ///< cudaProfilerStart; nothing on cpu
  virtual void profiler_stop() = 0;
  virtual void range_push(const char* name) = 0;  ///< NVTX range of the domain attnbench; nothing on cpu
  virtual void range_pop() = 0;
};

/// A range while it lives: what a profiler shows and filters by.
class DeviceRange {
 public:
  DeviceRange(Device& device, const char* name) : device_(device) { device_.range_push(name); }
  ~DeviceRange() { device_.range_pop(); }
  DeviceRange(const DeviceRange&) = delete;
  DeviceRange& operator=(const DeviceRange&) = delete;

 private:
  Device& device_;
};

/// What can be opened here, and why not where it cannot.
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
