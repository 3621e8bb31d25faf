// --plugin FILE: kernels from outside the tree, added to the program's table.
#pragma once

#include <string>

#include "harness/cli/cli.h"
#include "harness/error.h"

namespace attnbench::cli {

/// A plug-in that ends or stops the process that opens it: exit code 5, as for any kernel that crashes.
class PluginCrash : public Error {
 public:
  explicit PluginCrash(const std::string& what) : Error(what, kExitFailure) {}
};

/// --plugin; what is given goes to program.plugin_files.
void add_plugin_option(CLI::App& command, Program& program);

/// Opens them and adds their kernels to program.kernels. Throws UsageError, PluginCrash.
void load_plugins(Program& program);

/// One of them, for a table of its own; `option` is named in errors. Throws UsageError, PluginCrash.
LoadedPlugin load_tried_plugin(const std::string& option, const std::string& file);

/// The file of a kernel of a plug-in; empty for one of the program's own.
std::string plugin_of(const Program& program, const Kernel& kernel);

}  // namespace attnbench::cli
