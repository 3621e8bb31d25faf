// NVIDIA's management library, opened at run time: clocks, power, temperature and why a clock is low. A
// machine without it, or a driver that tells less, costs figures, never a run.
#pragma once

#include <memory>
#include <string>

#include "harness/device/device.h"

namespace attnbench {

class Nvml {
 public:
  /// Of the GPU at this PCI bus id ("0000:18:00.0"). nullptr, with the reason, where the library or the GPU
  /// cannot be had.
  static std::unique_ptr<Nvml> open(const std::string& pci_bus_id, std::string& why_not,
                                    const char* library = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  ClockReading read() const;
  /// "580.65.06"; empty where unknown.
  std::string driver_version() const;

 private:
  struct Api;
  explicit Nvml(std::unique_ptr<Api> api);
  std::unique_ptr<Api> api_;
};

/// The reasons in a mask of nvmlClocksEventReason bits by name ("sw_power_cap"); an unknown bit is "bit_N".
/// An idle GPU, and clocks that someone set, are no reasons.
std::vector<std::string> throttle_names(unsigned long long mask);

}  // namespace attnbench
