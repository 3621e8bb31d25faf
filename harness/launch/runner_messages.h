// What a judge and its runner write to each other: one program, so these structs are sent as they are.
#pragma once

#include <array>
#include <cstdint>

#include "harness/device/device.h"
#include "harness/launch/runner.h"

namespace attnbench {

enum class RunnerCall : int32_t {
  kWake,
  kSupports,
  kNumerics,
  kWorkspaceBytes,
  kPlan,
  kLaunch,
  kTile,
  // GPU: with a GpuJob, and the launches of it
  kTime,
  kCount,
  kCapture,
  kGo,
  // GPU
  kReplay,
  kSynchronize,
};
/// The function of a kernel that it calls.
constexpr const char* function_of(RunnerCall call) {
  constexpr const char* kNames[] = {"wake", "supports", "numerics", "workspace_bytes",
                                    "plan", "launch",   "tile"};
  return call <= RunnerCall::kTile ? kNames[static_cast<int>(call)] : "launch";
}

/// The first message of the judge.
struct RunnerHello {
  struct Map {
    void* base;
    int64_t size;
  } inputs, outputs;
  int32_t gpu;  ///< N of cuda:N; negative: the CPU
};

/// What is done with launches on a GPU. They follow, then those of `prepare`, each a request.
struct GpuJob {
  int32_t launches = 0, prepare = 0;
  CacheMode cache = CacheMode::kHot;
  bool watched = false;
  bool returns = false;  ///< LaunchWatch::take_outputs is there
  uint64_t seed = 0;     ///< of LaunchWatch
  int32_t outputs = 0, late = 0;
  std::array<WatchedOutput, 8> output{};
  std::array<LateSigns, 4> signs{};
  const void* hold = nullptr;  ///< kGo: as in GpuHold
  uint32_t ticket = 0;
};

struct Runner::Request {
  RunnerCall call;
  int32_t kernel = 0;  ///< place in kernels()
  OpParams params{};
  LaunchContext context{};  ///< `returned` says whether outputs may be returned
  bool alone = true;        ///< kLaunch: no other one follows at once, so the process's state is looked at
  int32_t graph = 0;        ///< kReplay
  TimeClock clock = TimeClock::kWall;  ///< kWake
  int32_t input_changes = 0,
          output_changes = 0;  ///< SharedMemory::Change that follow: what can be touched from now on
  int32_t gpu_changes = 0;     ///< GpuPages that follow, each with its file
};

/// A launch has three: at its end, when returned outputs are where they belong, when the process was looked at.
struct Runner::Reply {
  /// kLost: on a GPU whose context nothing can use any more.
  enum class How : int32_t { kReturned, kThrew, kFault, kLost } how = How::kReturned;
  KernelStatus status = KernelStatus::kOk;
  KernelMessage message{};       ///< of the kernel
  std::array<char, 512> text{};  ///< kThrew, kLost: what the error says; kCount: why nothing was counted
  Numerics numerics{};
  Tile tile{};
  uint64_t workspace_bytes = 0;
  void* address = nullptr;               ///< kFault: in the judge's memory
  int32_t wrote = -1;                    ///< kFault: 0 or 1; -1: the machine does not say
  double us = 0;                         ///< kPlan, kLaunch: by the runner's clock
  double cores_us = 0, handover_us = 0;  ///< kWake
  double waited_s = -1;                  ///< kLaunch; negative: the system does not count it
  double enqueue_us = 0;                 ///< kTime, as in Sample
  bool host_bound = false;
  WatchReading watch;
  std::array<double, 4> counters{};  ///< kCount; negative: not counted
  int32_t number = 0;                ///< kCount: launches; kCapture: the graph
};

}  // namespace attnbench
