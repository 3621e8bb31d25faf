// The part of CUPTI's range profiler (CUDA 12.6 and later) that is used. It is declared here because a
// machine that builds this may lack the headers. Each call takes one of these structs. The first member is
// the struct's size, from which a later library knows the members of an earlier caller. A file of static
// assertions, cuda/cupti_abi.cu, compares the structs with the headers where these exist.
#pragma once

#include <cstddef>
#include <cstdint>

namespace attnbench::cupti {

using Result = int;  ///< CUptiResult
inline constexpr Result kSuccess = 0;
inline constexpr Result kHardwareBusy = 26;
inline constexpr Result kInsufficientPrivileges = 35;
inline constexpr Result kOldProfilerInitialized = 36;
inline constexpr Result kMultipleSubscribers = 39;
inline constexpr Result kVirtualInsufficientPrivileges = 40;
inline constexpr Result kInvalidChipName = 46;

inline constexpr int kRangeProfiler = 0;  ///< CUPTI_PROFILER_TYPE_RANGE_PROFILER
inline constexpr int kMetricCounter = 0;  ///< CUPTI_METRIC_TYPE_COUNTER
inline constexpr int kMetricRatio = 1;    ///< CUPTI_METRIC_TYPE_RATIO
inline constexpr int kUserRange = 2;      ///< CUPTI_UserRange
inline constexpr int kUserReplay = 3;     ///< CUPTI_UserReplay

struct Initialize {
  std::size_t size;
  void* unused;
};
struct ChipName {
  std::size_t size;
  void* unused;
  std::size_t device;  ///< CUDA's ordinal
  const char* chip;    ///< out: "GH100"
};
struct HostInitialize {
  std::size_t size;
  void* unused;
  int type;
  const char* chip;
  const uint8_t* availability;
  void* host;  ///< out
};
struct HostDeinitialize {
  std::size_t size;
  void* unused;
  void* host;
};
struct BaseMetrics {
  std::size_t size;
  void* unused;
  void* host;
  int type;
  const char** names;  ///< out
  std::size_t count;   ///< out
};
struct AddMetrics {
  std::size_t size;
  void* unused;
  void* host;
  const char** names;
  std::size_t count;
};
struct ConfigSize {
  std::size_t size;
  void* unused;
  void* host;
  std::size_t bytes;  ///< out
};
struct ConfigImage {
  std::size_t size;
  void* unused;
  void* host;
  std::size_t bytes;
  uint8_t* image;
};
struct Evaluate {
  std::size_t size;
  void* unused;
  void* host;
  const uint8_t* counters;
  std::size_t counters_bytes;
  std::size_t range;
  const char** names;
  std::size_t count;
  double* values;  ///< filled
};
struct Enable {
  std::size_t size;
  void* unused;
  void* context;   ///< CUcontext
  void* profiler;  ///< out
};
/// For Disable, Start and PopRange.
struct OfProfiler {
  std::size_t size;
  void* unused;
  void* profiler;
};
struct Stop {
  std::size_t size;
  void* unused;
  void* profiler;
  std::size_t pass;       ///< out
  std::size_t level;      ///< out
  uint8_t all_submitted;  ///< out: no further pass is needed
};
struct PushRange {
  std::size_t size;
  void* unused;
  void* profiler;
  const char* name;
};
struct Decode {
  std::size_t size;
  void* unused;
  void* profiler;
  std::size_t dropped;  ///< out: number of dropped ranges
};
struct CountersSize {
  std::size_t size;
  void* unused;
  void* profiler;
  const char** names;
  std::size_t count;
  std::size_t max_ranges;
  uint32_t max_nodes;
  std::size_t bytes;  ///< out
};
struct CountersInitialize {
  std::size_t size;
  void* unused;
  void* profiler;
  std::size_t bytes;
  uint8_t* counters;
};
struct SetConfig {
  std::size_t size;
  void* unused;
  void* profiler;
  std::size_t config_bytes;
  const uint8_t* config;
  std::size_t counters_bytes;
  uint8_t* counters;
  int range;
  int replay;
  std::size_t max_ranges;
  uint16_t num_levels;
  uint16_t min_level;
  std::size_t pass;
  uint16_t target_level;
};
struct CountersInfo {
  std::size_t size;
  void* unused;
  const uint8_t* counters;
  std::size_t counters_bytes;
  std::size_t ranges;  ///< out
};

/// Value of `size`: up to the end of the last member, without the padding after it.
template <class Params>
inline constexpr std::size_t kSize = sizeof(Params);
template <>
inline constexpr std::size_t kSize<Stop> = offsetof(Stop, all_submitted) + sizeof(uint8_t);
template <>
inline constexpr std::size_t kSize<SetConfig> = offsetof(SetConfig, target_level) + sizeof(uint16_t);

}  // namespace attnbench::cupti
