// Whether a case fits into memory, looked at ahead: `run` skips it where it does not, and `list` says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "harness/cases/case.h"
#include "harness/device/device.h"
#include "harness/facts/skip_reason.h"
#include "harness/facts/verdict.h"

namespace attnbench {

/// What is free where a case is to run, in bytes.
struct FreeMemory {
  DeviceKind kind = DeviceKind::kCpu;
  std::string device;  ///< "cpu", "cuda:0"
  int64_t of_device = 0;
  int64_t of_host = 0;  ///< the same memory as the device's where that is the cpu
  int64_t flush = 0;    ///< what a cold cache takes of the device's (DeviceInfo::flush_bytes)
  bool holes = false;   ///< of tensors take none (SeenPart::holes)
};

FreeMemory free_memory_of(const Device& device);

/// Why the case does not fit, with needed and free memory; nullopt where it does. Counted are its tensors on
/// the device; on the host row owners, and the copies that a check needs: the outputs, or caches and partial
/// states too. A host that runs out of memory later is an error.
std::optional<SkipReason> does_not_fit(const Case& item, const FreeMemory& memory, CheckMode check);

}  // namespace attnbench
