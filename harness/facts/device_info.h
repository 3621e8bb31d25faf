// What is known and measured of a device, without the device itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/contract/kernel.h"

namespace attnbench {

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
  /// Where kernels run: "runner" (a process without seeds and expected outputs), "worker" (that which judges them),
  /// "in_process" (that of the command); empty in older files.
  std::string trust;
  std::string confinement;  ///< of a runner: "landlock, seccomp"
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

/// What the time of a launch is on a CPU.
enum class TimeClock {
  kWall,
  kCpu,  ///< of all threads of the kernel's process, whatever else takes the cores
};
inline constexpr const char* kClockNames[] = {"wall", "cpu"};
constexpr const char* clock_name(TimeClock c) { return kClockNames[static_cast<int>(c)]; }

/// Most ranks of a case.
inline constexpr int32_t kMostRanks = 16;

/// What a rank did in a launch that several devices share (harness/launch/rank_exchange.h), from the common start.
struct RankTimes {
  double attention_us = 0, communication_us = 0, correction_us = 0;
  double total_us = 0;
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

}  // namespace attnbench
