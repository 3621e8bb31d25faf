// What a judge and its runner write to each other: one program, so these structs are sent as they are.
#pragma once

#include <array>
#include <cstdint>

#include "harness/launch/runner.h"
#include "kernels/contract/kernel.h"

namespace attnbench {

enum class RunnerCall : int32_t { kWake, kSupports, kNumerics, kWorkspaceBytes, kPlan, kLaunch, kTile };
inline constexpr const char* kCallNames[] = {"wake", "supports", "numerics", "workspace_bytes",
                                             "plan", "launch",   "tile"};

/// The first message of the judge.
struct RunnerHello {
  struct Map {
    void* base;
    int64_t size;
  } inputs, outputs;
};

struct Runner::Request {
  RunnerCall call;
  int32_t kernel = 0;  ///< place in kernels()
  OpParams params{};
  LaunchContext context{};  ///< `returned` says whether outputs may be returned
  bool alone = true;        ///< kLaunch: no other one follows at once, so the process's state is looked at
  int32_t input_changes = 0,
          output_changes = 0;  ///< SharedMemory::Change that follow: what can be touched from now on
};

/// A launch has three: at its end, when returned outputs are where they belong, when the process was looked at.
struct Runner::Reply {
  enum class How : int32_t { kReturned, kThrew, kFault } how = How::kReturned;
  KernelStatus status = KernelStatus::kOk;
  KernelMessage message{};            ///< of the kernel
  std::array<char, 512> exception{};  ///< kThrew: what a KernelError says
  Numerics numerics{};
  Tile tile{};
  uint64_t workspace_bytes = 0;
  void* address = nullptr;               ///< kFault: in the judge's memory
  int32_t wrote = -1;                    ///< kFault: 0 or 1; -1: the machine does not say
  double us = 0;                         ///< kPlan, kLaunch: by the runner's clock
  double cores_us = 0, handover_us = 0;  ///< kWake
  double waited_s = -1;                  ///< kLaunch; negative: the system does not count it
};

}  // namespace attnbench
