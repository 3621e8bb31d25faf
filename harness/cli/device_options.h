// Which device and which kernels: what --device and --kernel mean.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/device/device.h"
#include "kernels/registry.h"

namespace attnbench::cli {

/// --device auto|cpu|cuda|cuda:N. `auto` takes a GPU where one works and says in one line why not where it
/// does not.
std::unique_ptr<Device> open_chosen_device(const std::string& name, int threads, bool quiet);

/// The devices that --device names, without opening them: one, or with `all` every GPU. `auto` as above.
/// Throws UsageError.
std::vector<std::string> chosen_devices(const std::string& name, bool quiet);

/// Checks the names of --kernel against the table. Throws UsageError with the nearest name and those that
/// exist.
void check_kernel_names(const std::vector<std::string>& names, KernelTable table);

/// The kind of device that all kernels of these names are of; nullopt where that is none or several.
std::optional<DeviceKind> kind_of_kernels(const std::vector<std::string>& names, KernelTable table);

/// What `auto` is where kernels are named: cpu where all of them are of it; other devices as given. Throws
/// UsageError where all need a GPU and none works.
std::string device_for(const std::string& device, const std::vector<std::string>& names, KernelTable table);

}  // namespace attnbench::cli
