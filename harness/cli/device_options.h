// The device and the kernels that --device and --kernel name.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/device/device.h"
#include "kernels/registry.h"

namespace CLI {
class App;
}

namespace attnbench::cli {

/// Opens --device auto|cpu|cuda|cuda:N. `auto` takes a GPU if one works, else it says in one line why not and
/// takes the cpu.
std::unique_ptr<Device> open_chosen_device(const std::string& name, int threads, bool quiet);

/// "--device cuda: WHY; ...": the message for a device that cannot be opened.
std::string cannot_open(const std::string& name, const std::string& why);

/// The devices that --device names, without opening them: one, or every GPU for `all`. `auto` is as above.
/// Throws UsageError.
std::vector<std::string> chosen_devices(const std::string& name, bool quiet);

/// Adds --kernel NAME, which may be repeated and before a file; `text` is its help.
void add_kernel_option(CLI::App& command, std::vector<std::string>& names, const std::string& text);

/// True if the table has kernels for GPUs. Without CUDA only those of a plug-in are there.
bool built_with_cuda(KernelTable table);

/// Checks the names of --kernel against the table. Throws UsageError, which lists the kernels and suggests
/// the nearest name.
void check_kernel_names(const std::vector<std::string>& names, KernelTable table);

/// The kind of device that all kernels of these names are of; nullopt if that is none or several.
std::optional<DeviceKind> kind_of_kernels(const std::vector<std::string>& names, KernelTable table);

/// Replaces `auto` by cpu if all named kernels run on the cpu; returns other devices as given. Throws
/// UsageError if all named kernels need a GPU and none works.
std::string device_for(const std::string& device, const std::vector<std::string>& names, KernelTable table);

/// The clock of one thread where the user leaves it open: CPU time beside other processes that keep a quarter of the cores
/// busy, which it says on stderr, unless quiet. This process and its workers must be idle. Takes 0.2 s.
TimeClock clock_for(const std::string& device, bool quiet);

/// Says before timing that other processes use the device, and what follows: the times would not be worth
/// waiting for. This process and its workers must be idle. Takes 0.2 s on a CPU.
void say_if_busy(const DeviceInfo& device, const char* so);

}  // namespace attnbench::cli
