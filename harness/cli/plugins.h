// --plugin FILE: kernels from outside the tree, added to the program's table.
#pragma once

#include <string>
#include <vector>

#include "harness/cli/case_options.h"
#include "harness/cli/cli.h"
#include "harness/error.h"
#include "harness/results/record.h"

namespace attnbench::cli {

/// A plug-in ended or stopped the process that opened it: exit code 5, as for any kernel that crashes.
class PluginCrash : public Error {
 public:
  explicit PluginCrash(const std::string& what) : Error(what, kExitFailure) {}
};

/// Adds --plugin and --python, which fill program.plugin_files and program.python.
void add_plugin_option(CLI::App& command, Program& program);
/// Adds --timeout to a command in which it limits nothing but the opening of plug-ins.
void add_opening_limit(CLI::App& command, Program& program);

/// Whether a plug-in is written in Python.
bool has_python(const Program& program);

/// Adds the kernels of program.plugin_files to program.kernels: opened in this process if the command calls
/// kernels in it, else as child processes describe them. Throws UsageError, PluginCrash.
void load_plugins(Program& program);

/// The options, with dtype=fp16 or fp32 for all sweeps where kernels of a plug-in run in Triton's interpreter
/// (TRITON_INTERPRET=1), whose products of bf16 are wrong. A note says so.
CaseOptions for_interpreter(CaseOptions options, const Program& program);

/// The kernels of one plug-in by their description; `option` is named in errors. Throws UsageError,
/// PluginCrash.
LoadedPlugin described_plugin(const std::string& option, const std::string& file, const Program& program);

/// The words that run this command line again, with `more` after the name of the command, in a process of the
/// interpreter if `python`. Throws PluginError.
std::vector<std::string> words_again(const Program& program, const std::vector<std::string>& more,
                                     bool python);

/// The words that choose this interpreter again, in any folder; none if --python was not given or is not used.
std::vector<std::string> python_words(const Program& program);

/// What a run of this program on `device` is, with its plug-ins.
RunContext context_of_run(const DeviceInfo& device, const std::string& name, const Program& program);

/// The plug-in file of a kernel; empty for a built-in kernel.
std::string plugin_of(const Program& program, const Kernel& kernel);

}  // namespace attnbench::cli
