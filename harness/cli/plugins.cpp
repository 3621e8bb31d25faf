#include "harness/cli/plugins.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "harness/cli/cli.h"
#include "harness/cli/usage_error.h"
#include "harness/session/worker_pipe.h"

namespace attnbench::cli {
namespace {

UsageError refused(const std::string& option, const std::string& file, const PluginError& e) {
  return UsageError(fmt::format("{} {}: {}", option, file, e.what()));
}

/// In a worker: the file must be the one that its supervisor opened, perhaps hours ago.
LoadedPlugin load_same_plugin(const std::string& file, const std::string& digest) {
  try {
    LoadedPlugin plugin = load_plugin(file);
    if (plugin.digest == digest) return plugin;
  } catch (const PluginError& e) {
    throw refused("--plugin", file, e);
  }
  throw UsageError(
      fmt::format("--plugin {}: the file was built anew while the run went on; results of two builds would "
                  "stand in one report",
                  file));
}

}  // namespace

void add_plugin_option(CLI::App& command, Program& program) {
  command
      .add_option("--plugin", program.plugin_files,
                  "Add the kernels of this shared library (kernels/README.md); may be repeated")
      ->type_name("FILE")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);  // a file may follow
}

LoadedPlugin load_tried_plugin(const std::string& option, const std::string& file) {
  try {
    if (const auto crash = crash_of_loading(file)) {
      throw PluginCrash(fmt::format("{} {}: opening it in a process {}; its static initialisers run then",
                                    option, file, *crash));
    }
    return load_plugin(file);
  } catch (const PluginError& e) {
    throw refused(option, file, e);
  }
}

void load_plugins(Program& program) {
  const bool worker = !program.plugin_digests.empty();
  if (worker && program.plugin_digests.size() != program.plugin_files.size()) {
    throw UsageError("--plugin-digest: one for each --plugin is wanted");
  }
  if (worker) take_worker_pipes();  // before the static initialisers of a plug-in run
  for (std::size_t i = 0; i < program.plugin_files.size(); ++i) {
    const std::string& file = program.plugin_files[i];
    program.plugins.push_back(worker ? load_same_plugin(file, program.plugin_digests[i])
                                     : load_tried_plugin("--plugin", file));
  }
  if (program.plugins.empty()) return;
  try {
    program.table = table_with_plugins(program.kernels, program.plugins);
  } catch (const PluginError& e) {
    throw UsageError(fmt::format("--plugin {}", e.what()));
  }
  program.kernels = program.table;
}

std::string plugin_of(const Program& program, const Kernel& kernel) {
  for (const LoadedPlugin& p : program.plugins) {
    if (std::find(p.kernels.begin(), p.kernels.end(), &kernel) != p.kernels.end()) return p.path;
  }
  return "";
}

}  // namespace attnbench::cli
