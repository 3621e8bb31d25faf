#include "harness/session/memory_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/cases/cost.h"
#include "harness/cases/paths.h"
#include "harness/device/memory_limit.h"
#include "harness/gigabytes.h"
#include "harness/tensors/strides.h"

namespace attnbench {
namespace {

/// Device memory beyond the tensors: metadata, guards, row owners.
constexpr double kMemorySlack = 64.0 * (1 << 20);
/// A case that copies more unused bytes to the host is left to devices that have no memory for them.
constexpr double kMostUnused = 4e9;

std::optional<SkipReason> lacks(double needed, int64_t available, const std::string& memory) {
  if (needed <= static_cast<double>(available)) return std::nullopt;
  return SkipReason{fmt::format("needs {} of {} memory, {} are free", gigabytes(needed), memory,
                                gigabytes(static_cast<double>(available)))};
}

}  // namespace

FreeMemory free_memory_of(const Device& device) {
  return {device.info().kind,  device.info().name,        device.free_memory(),
          memory_limit().free, device.info().flush_bytes, device.has_holes()};
}

std::optional<SkipReason> does_not_fit(const Case& item, const FreeMemory& memory, CheckMode check) {
  const CaseCost cost = cost_of(item);
  const double owners = 8.0 * static_cast<double>(cost.total_k + cost.total_q);
  const double bytes = cost.bytes_of(memory.holes);
  const CaseParams& p = item.params;
  const bool copies_all = writes_cache(p) || merged_states(p) > 0 || p.gap_queries > 0;
  const double copies = check == CheckMode::kOff ? 0 : copies_all ? bytes : cost.written;
  const double on_device = bytes + owners + kMemorySlack + static_cast<double>(memory.flush);
  if (!memory.holes && std::min(copies, cost.hole_bytes) > kMostUnused) {
    return SkipReason{
        fmt::format("{} of its memory are unused and would be copied; the cpu device has no memory for them",
                    gigabytes(cost.hole_bytes))};
  }
  const bool one_memory = memory.kind == DeviceKind::kCpu;
  auto why = lacks(on_device + (one_memory ? copies : 0), memory.of_device, memory.device);
  if (!why && !one_memory) why = lacks(copies + owners, memory.of_host, "host");
  return why;
}

}  // namespace attnbench
