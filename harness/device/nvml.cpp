#include "harness/device/nvml.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <optional>

namespace attnbench {
namespace {

// The few functions of nvml.h that are used. They are declared here because a machine that builds this may
// lack the CUDA Toolkit. Their ABI has been stable since driver 352 (NVML API reference).
using Return = int;  // 0: success
using Handle = void*;
constexpr int kClockSm = 1;
constexpr int kClockMemory = 2;
constexpr int kTemperatureGpu = 0;

struct Utilization {
  unsigned gpu, memory;  ///< percent
};

struct Reason {
  unsigned long long bit;
  const char* name;
};
constexpr Reason kReasons[] = {
    {0x4, "sw_power_cap"}, {0x8, "hw_slowdown"},     {0x20, "sw_thermal_slowdown"},
    {0x40, "hw_thermal"},  {0x80, "hw_power_brake"}, {0x10, "sync_boost"},
};
constexpr unsigned long long kNoReason = 0x1 | 0x2 | 0x100;  // idle, application clocks, display clock

}  // namespace

struct Nvml::Api {
  void* library = nullptr;
  Handle device = nullptr;
  Return (*shutdown)() = nullptr;
  Return (*clock)(Handle, int, unsigned*) = nullptr;
  Return (*power)(Handle, unsigned*) = nullptr;
  Return (*temperature)(Handle, int, unsigned*) = nullptr;
  Return (*reasons)(Handle, unsigned long long*) = nullptr;
  Return (*utilization)(Handle, Utilization*) = nullptr;
  Return (*driver)(char*, unsigned) = nullptr;

  template <class Function>
  bool find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  }
};

std::vector<std::string> throttle_names(unsigned long long mask) {
  std::vector<std::string> names;
  mask &= ~kNoReason;
  for (const Reason& r : kReasons) {
    if (mask & r.bit) names.emplace_back(r.name);
    mask &= ~r.bit;
  }
  for (int bit = 0; mask != 0; ++bit, mask >>= 1) {
    if (mask & 1) names.push_back(fmt::format("bit_{}", bit));
  }
  return names;
}

std::unique_ptr<Nvml> Nvml::open(const std::string& id, std::string& why_not, const char* library) {
  auto api = std::make_unique<Api>();
  api->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (api->library == nullptr) {
    why_not = fmt::format("{} was not found", library);
    return nullptr;
  }
  Return (*init)() = nullptr;
  Return (*handle)(const char*, Handle*) = nullptr;
  if (!api->find("nvmlInit_v2", init) || !api->find("nvmlShutdown", api->shutdown) ||
      !api->find(id.starts_with("GPU-") ? "nvmlDeviceGetHandleByUUID" : "nvmlDeviceGetHandleByPciBusId_v2",
                 handle)) {
    why_not = fmt::format("{} lacks a function that is needed", library);
    return nullptr;
  }
  if (const Return r = init(); r != 0) {
    why_not = fmt::format("nvmlInit failed with status {}", r);
    return nullptr;
  }
  if (const Return r = handle(id.c_str(), &api->device); r != 0) {
    api->shutdown();
    why_not = fmt::format("NVML does not know the GPU {} (status {})", id, r);
    return nullptr;
  }
  // Each of these functions may be missing or refused. Its figure is then unknown.
  api->find("nvmlDeviceGetClockInfo", api->clock);
  api->find("nvmlDeviceGetPowerUsage", api->power);
  api->find("nvmlDeviceGetTemperature", api->temperature);
  if (!api->find("nvmlDeviceGetCurrentClocksEventReasons", api->reasons)) {
    api->find("nvmlDeviceGetCurrentClocksThrottleReasons", api->reasons);  // the name before driver 535
  }
  api->find("nvmlDeviceGetUtilizationRates", api->utilization);
  api->find("nvmlSystemGetDriverVersion", api->driver);
  return std::unique_ptr<Nvml>(new Nvml(std::move(api)));
}

Nvml::Nvml(std::unique_ptr<Api> api) : api_(std::move(api)) {}

Nvml::~Nvml() {
  api_->shutdown();
  // The library stays loaded: the CUDA driver uses it too.
}

ClockReading Nvml::read() const {
  ClockReading r;
  const auto ask = [](auto call, double scale) -> std::optional<double> {
    unsigned value = 0;
    return call(&value) == 0 ? std::optional(value * scale) : std::nullopt;
  };
  const Api& a = *api_;
  if (a.clock != nullptr) {
    r.sm_mhz = ask([&](unsigned* v) { return a.clock(a.device, kClockSm, v); }, 1);
    r.mem_mhz = ask([&](unsigned* v) { return a.clock(a.device, kClockMemory, v); }, 1);
  }
  if (a.power != nullptr) r.power_w = ask([&](unsigned* v) { return a.power(a.device, v); }, 1e-3);
  if (a.temperature != nullptr) {
    r.temperature_c = ask([&](unsigned* v) { return a.temperature(a.device, kTemperatureGpu, v); }, 1);
  }
  unsigned long long mask = 0;
  if (a.reasons != nullptr && a.reasons(a.device, &mask) == 0) r.throttle = throttle_names(mask);
  return r;
}

std::optional<double> Nvml::busy_percent() const {
  Utilization used{};
  if (api_->utilization == nullptr || api_->utilization(api_->device, &used) != 0) return std::nullopt;
  return used.gpu;
}

std::string Nvml::driver_version() const {
  char text[96] = "";
  if (api_->driver == nullptr || api_->driver(text, sizeof text) != 0) return "";
  text[sizeof text - 1] = '\0';
  return text;
}

}  // namespace attnbench
