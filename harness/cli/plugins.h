// --plugin FILE: kernels from outside the tree, added to the program's table.
#pragma once

#include <string>
#include <vector>

#include "harness/cli/cli.h"
#include "harness/error.h"

namespace attnbench::cli {

/// A plug-in ended or stopped the process that opened it: exit code 5, as for any kernel that crashes.
class PluginCrash : public Error {
 public:
  explicit PluginCrash(const std::string& what) : Error(what, kExitFailure) {}
};

/// Adds --plugin and --python, which fill program.plugin_files and program.python.
void add_plugin_option(CLI::App& command, Program& program);

/// Whether a plug-in is written in Python.
bool has_python(const Program& program);

/// Opens program.plugin_files and adds their kernels to program.kernels. Throws UsageError, PluginCrash.
void load_plugins(Program& program);

/// Opens one plug-in for a table of its own; `option` is named in errors. Throws UsageError, PluginCrash.
LoadedPlugin load_tried_plugin(const std::string& option, const std::string& file, const std::string& python);

/// The words that choose this interpreter again, in any folder; none if --python was not given or is not used.
std::vector<std::string> python_words(const Program& program);

/// The plug-in file of a kernel; empty for a built-in kernel.
std::string plugin_of(const Program& program, const Kernel& kernel);

}  // namespace attnbench::cli
