// Kernels from outside the tree: shared libraries that export a table (kernels/contract/plugin.h).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/error.h"
#include "kernels/contract/plugin.h"
#include "kernels/registry.h"

namespace attnbench {

/// A file that cannot be a plug-in of this program; what() is one sentence without the file's name.
class PluginError : public Error {
 public:
  using Error::Error;
};

struct LoadedPlugin {
  std::string path;    ///< absolute
  std::string digest;  ///< of the file's bytes, 16 hexadecimal digits: tells builds apart, not forgeries
  std::vector<const Kernel*> kernels;
};

/// Opens the file and checks its table. It stays open until the process ends. Throws PluginError.
LoadedPlugin load_plugin(const std::string& path);

/// The kernels of a table that are fit for this program. Throws PluginError for a table of other headers, and
/// for an entry that lacks what the program calls or prints.
std::vector<const Kernel*> checked_kernels(const Plugin& table);

/// What becomes of a process that opens the file and reads its table, tried in a child, since a library's own
/// code runs when it is opened: nullopt where the process goes on, else what happened, as in "killed it by
/// signal 11 (Segmentation fault)".
std::optional<std::string> crash_of_loading(const std::string& path);

/// The built-in kernels, then those of the plug-ins. Throws PluginError where two have one name, op and
/// device.
std::vector<const Kernel*> table_with_plugins(KernelTable builtin, std::span<const LoadedPlugin> plugins);

}  // namespace attnbench
