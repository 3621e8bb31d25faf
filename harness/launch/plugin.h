// Kernels from outside the tree: shared libraries that export a table (kernels/contract/plugin.h).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
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

/// A file whose opening ended or stopped the process that tried it.
class LoadCrash : public PluginError {
 public:
  using PluginError::PluginError;
};

/// A file in Python that needs a package which the interpreter lacks; why() says what to install.
class PluginAbsent : public PluginError {
 public:
  PluginAbsent(const std::string& what, std::string why) : PluginError(what), why_(std::move(why)) {}
  const std::string& why() const { return why_; }

 private:
  std::string why_;
};

struct LoadedPlugin {
  std::string path;    ///< absolute
  std::string digest;  ///< digest of the file, 16 hexadecimal digits: tells builds apart, not secure
  std::vector<const Kernel*> kernels;
  /// Python: names and versions of the interpreter and of the packages that the file imported.
  std::vector<std::pair<std::string, std::string>> versions = {};
  /// Opening the file makes a process flush subnormal floats to 0, as code that is linked with -ffast-math
  /// does. It is undone, because the reference and other kernels need them.
  bool flushed = false;
};

/// Checks that the file exists, and returns its absolute path. Throws PluginError.
std::string checked_plugin_file(const std::string& path);

/// Opens the file and checks its table. It stays open until the process ends. Throws PluginError.
LoadedPlugin load_plugin(const std::string& path);

/// Checks a table and returns its kernels. Throws PluginError if it was compiled with other headers, or if an
/// entry lacks something that the program calls or prints.
std::vector<const Kernel*> checked_kernels(const Plugin& table);

/// Throws PluginError if a kernel lacks something that the program calls or prints.
void check_entries(std::span<const Kernel* const> kernels);

/// The kernels as a child process describes them that opens the file: code of a library runs when it is
/// opened. Their callbacks throw. `limit_s`: seconds that opening may take (default 60). Throws PluginError;
/// LoadCrash if the child crashes, exits or hangs.
LoadedPlugin describe_plugin(const std::string& path, std::optional<double> limit_s = {});

/// The built-in kernels, then those of the plug-ins. Throws PluginError if two have the same name, op and
/// device.
std::vector<const Kernel*> table_with_plugins(KernelTable builtin, std::span<const LoadedPlugin> plugins);

}  // namespace attnbench
