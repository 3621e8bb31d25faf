// Opens a device by its name.
#include <fmt/format.h>

#include <charconv>
#include <system_error>

#include "harness/device/device.h"

namespace attnbench {

DeviceProbe probe_devices() { return probe_cuda(); }

CounterReading Device::count_launch(const std::function<void()>&, const std::function<void()>&, CacheMode) {
  CounterReading none;
  none.reason = fmt::format("counters are read of CUDA GPUs only, not of {}", info().name);
  return none;
}

int gpu_of(std::string_view name) {
  if (name == "cpu") return -1;
  int ordinal = 0;
  bool well_formed = name == "cuda";
  if (constexpr std::string_view prefix = "cuda:"; name.substr(0, prefix.size()) == prefix) {
    const std::string_view digits = name.substr(prefix.size());
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
    well_formed = error == std::errc() && end == digits.data() + digits.size() && ordinal >= 0;
  }
  if (!well_formed) {
    throw DeviceError(fmt::format("unknown device \"{}\": cpu, cuda or cuda:N required", name), false);
  }
  return ordinal;
}

void expect_device(std::string_view name) {
  const int ordinal = gpu_of(name);
  if (ordinal < 0) return;
  const DeviceProbe probe = probe_cuda();
  if (probe.cuda_devices == 0) throw DeviceError(fmt::format("{}: {}", name, probe.cuda_reason), false);
  if (ordinal >= probe.cuda_devices) {
    throw DeviceError(fmt::format("{}: cuda:0 to cuda:{} can be opened here", name, probe.cuda_devices - 1),
                      false);
  }
}

std::unique_ptr<Device> open_device(std::string_view name, int num_threads, GpuHost* host) {
  expect_device(name);
  const int ordinal = gpu_of(name);
  return ordinal < 0 ? open_cpu(num_threads, host) : open_cuda(ordinal, host);
}

}  // namespace attnbench
