// NVIDIA's management library (NVML), opened at run time: clocks, power, temperature and why a clock is low.
// If the library is missing or the driver reports less, only these figures are missing; the run goes on.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "harness/device/device.h"

namespace attnbench {

class Nvml {
 public:
  /// Opens the GPU with this PCI bus id ("0000:18:00.0") or UUID ("GPU-..."). Returns nullptr if the library or
  /// the GPU is not available; `why_not` then gives the reason.
  static std::unique_ptr<Nvml> open(const std::string& id, std::string& why_not,
                                    const char* library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  ClockReading read() const;
  /// Percent of the last sample period (up to a second) in which a kernel ran, of any process; nullopt if that
  /// is not reported.
  std::optional<double> busy_percent() const;
  /// "580.65.06"; empty if unknown.
  std::string driver_version() const;

 private:
  struct Api;
  explicit Nvml(std::unique_ptr<Api> api);
  std::unique_ptr<Api> api_;
};

/// Names of the reasons in a mask of nvmlClocksEventReason bits ("sw_power_cap"); an unknown bit is "bit_N".
/// An idle GPU and clocks that someone set are not reasons.
std::vector<std::string> throttle_names(unsigned long long mask);

}  // namespace attnbench
