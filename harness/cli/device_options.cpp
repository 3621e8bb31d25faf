#include "harness/cli/device_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <set>
#include <thread>

#include "harness/cli/common.h"
#include "harness/cli/option.h"
#include "harness/cli/usage_error.h"
#include "harness/device/cpu_info.h"
#include "harness/device/nvml.h"

namespace attnbench::cli {

namespace {

/// Throws UsageError if no device is called so. open_device checks N of cuda:N.
void check_device_name(const std::string& name) {
  if (name == "auto" || name == "all" || name == "cpu" || name == "cuda" || name.starts_with("cuda:")) return;
  throw UsageError(fmt::format(
      "--device {}: there is no such device; it is auto (a GPU where one works), cpu, cuda, cuda:N (such as "
      "cuda:1), or in run all (every GPU)",
      name));
}

}  // namespace

std::string cannot_open(const std::string& name, const std::string& why) {
  return fmt::format("--device {}: {}{}", name, why,
                     name == "cpu"
                         ? ""
                         : "; --device cpu needs no GPU, and attnbench doctor says what this machine "
                           "has and how to build with CUDA");
}

std::unique_ptr<Device> open_chosen_device(const std::string& name, int threads, bool quiet) {
  check_device_name(name);
  if (name != "auto") {
    try {
      return open_device(name, threads);
    } catch (const DeviceError& e) {
      throw UsageError(cannot_open(name, e.what()));
    }
  }
  return open_device(chosen_devices(name, quiet).front(), threads);
}

std::vector<std::string> chosen_devices(const std::string& name, bool quiet) {
  check_device_name(name);
  if (name != "auto" && name != "all") return {name == "cuda" ? "cuda:0" : name};
  const DeviceProbe probe = probe_devices();
  if (name == "all") {
    if (probe.cuda_devices == 0) throw UsageError(cannot_open("all", probe.cuda_reason));
    std::vector<std::string> names;
    for (int i = 0; i < probe.cuda_devices; ++i) names.push_back(fmt::format("cuda:{}", i));
    return names;
  }
  if (probe.cuda_devices > 0) return {"cuda:0"};
  if (!quiet) std::cerr << "device auto: cpu (" << probe.cuda_reason << ")\n";
  return {"cpu"};
}

void add_kernel_option(CLI::App& command, std::vector<std::string>& names, const std::string& text) {
  list_option(command, "--kernel", names, text)->take_all();
}

bool built_with_cuda(KernelTable table) {
  return std::ranges::any_of(table, [](const Kernel* k) { return k->device == DeviceKind::kCuda; });
}

void check_kernel_names(const std::vector<std::string>& names, KernelTable table) {
  std::set<std::string> known;
  for (const Kernel* k : table) known.insert(k->name);
  const std::vector<std::string> list(known.begin(), known.end());
  const bool cuda = built_with_cuda(table);
  for (const std::string& name : names) {
    if (!known.count(name)) {
      throw UsageError(fmt::format(
          "--kernel {}: no such kernel; {}there are {}{}. --plugin FILE adds those of a file of your own",
          name, did_you_mean(name, list), fmt::join(list, ", "),
          cuda ? "" : " (this program was built without CUDA)"));
    }
  }
}

std::optional<DeviceKind> kind_of_kernels(const std::vector<std::string>& names, KernelTable table) {
  std::set<DeviceKind> kinds;
  for (const Kernel* k : table) {
    if (std::ranges::find(names, k->name) != names.end()) kinds.insert(k->device);
  }
  return kinds.size() == 1 ? std::optional(*kinds.begin()) : std::nullopt;
}

std::string device_for(const std::string& device, const std::vector<std::string>& names, KernelTable table) {
  if (device != "auto" || names.empty()) return device;
  const std::optional<DeviceKind> kind = kind_of_kernels(names, table);
  if (kind == DeviceKind::kCpu) return "cpu";
  if (kind == DeviceKind::kCuda) {
    const DeviceProbe probe = probe_devices();
    if (probe.cuda_devices == 0) {
      const KernelTable own = builtin_kernels();
      const bool plugin = std::ranges::any_of(table, [&](const Kernel* k) {
        return std::ranges::count(names, k->name) > 0 && std::ranges::count(own, k) == 0;
      });
      throw UsageError(fmt::format(
          "--kernel {}: {} a GPU{}: {}", fmt::join(names, ", "), names.size() == 1 ? "it needs" : "they need",
          plugin ? ", as it declares device cuda (a kernel in Python does unless it says device=\"cpu\")"
                 : "",
          probe.cuda_reason));
    }
  }
  return device;
}

TimeClock clock_for(const std::string& device, bool quiet) {
  constexpr double kSeconds = 0.2, kShare = 0.25;
  if (chosen_devices(device, true).front() != "cpu") return TimeClock::kWall;
  const double busy = cpu_busy_threads(kSeconds), cores = std::thread::hardware_concurrency();
  if (busy < kShare * cores) return TimeClock::kWall;
  if (!quiet)
    std::cerr << fmt::format(
        "note: other processes keep {:.1f} of this machine's {:g} threads at work, so times are CPU time of one thread "
        "(--clock cpu); --clock wall takes wall time\n",
        busy, cores);
  return TimeClock::kCpu;
}

void say_if_busy(const DeviceInfo& device, const char* so) {
  constexpr double kSeconds = 0.2, kShare = 0.1, kPercentOfGpu = 20;
  if (device.kind == DeviceKind::kCuda) {
    std::string why_not;
    const auto nvml = Nvml::open(device.uuid, why_not);
    const double busy = nvml == nullptr ? 0 : nvml->busy_percent().value_or(0);
    if (busy < kPercentOfGpu) return;
    std::cerr << fmt::format(
        "note: the GPU is busy: other processes kept it at work for {:.0f} % of the last second, so {}\n",
        busy, so);
    return;
  }
  const double busy = cpu_busy_threads(kSeconds);
  const int threads = std::max(device.threads, static_cast<int>(std::thread::hardware_concurrency()));
  if (busy <= kShare * device.threads) return;
  std::cerr << fmt::format(
      "note: the machine is busy: other processes keep {:.1f} of its {} threads at work, so {}\n", busy,
      threads, so);
}

}  // namespace attnbench::cli
