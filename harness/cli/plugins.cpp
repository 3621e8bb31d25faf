#include "harness/cli/plugins.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "harness/cli/cli.h"
#include "harness/cli/peers.h"
#include "harness/cli/usage_error.h"
#include "harness/run/python.h"
#include "harness/session/worker_pipe.h"

namespace attnbench::cli {
namespace {

UsageError refused(const std::string& option, const std::string& file, const PluginError& e) {
  return UsageError(fmt::format("{} {}: {}", option, file, e.what()));
}

/// In a worker: the file must be the one that its supervisor opened, perhaps hours ago.
LoadedPlugin load_same_plugin(const std::string& file, const std::string& digest) {
  try {
    LoadedPlugin plugin = is_python(file) ? load_python_plugin(file) : load_plugin(file);
    if (plugin.digest == digest) return plugin;
  } catch (const PluginError& e) {
    throw refused("--plugin", file, e);
  }
  throw UsageError(fmt::format(
      "--plugin {}: the file was changed or built anew while the run went on; results of two builds would "
      "stand in one report",
      file));
}

/// Runs this command line in a process of the interpreter, which this process becomes. Returns only by
/// UsageError.
void become_python(const Program& program) {
  std::vector<std::string> words;
  try {
    std::vector<std::string> argv = program.command_line;
    const std::vector<std::string> peers = peer_words(program);
    argv.insert(argv.begin() + 2, peers.begin(), peers.end());  // after the name of the subcommand
    words = python_command(python_file(program.python), argv);
  } catch (const PluginError& e) {
    throw UsageError(fmt::format("--plugin: {}", e.what()));
  }
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  throw UsageError(fmt::format("{} cannot be run: {}", words[0], std::strerror(errno)));
}

}  // namespace

void add_plugin_option(CLI::App& command, Program& program) {
  command
      .add_option("--plugin", program.plugin_files,
                  "Add the kernels of this file: a shared library (kernels/README.md) or Python "
                  "(harness/python/README.md); may be repeated")
      ->type_name("FILE")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);  // a file may follow
  command
      .add_option("--python", program.python,
                  "Interpreter for plug-ins written in Python (default: that of $VIRTUAL_ENV, else of the "
                  "environment that attnbench is installed in, else python3 of PATH)")
      ->type_name("FILE");
}

bool has_python(const Program& program) {
  return std::any_of(program.plugin_files.begin(), program.plugin_files.end(), is_python);
}

LoadedPlugin load_tried_plugin(const std::string& option, const std::string& file,
                               const std::string& python) {
  try {
    if (is_python(file)) return in_python() ? load_python_plugin(file) : describe_python_plugin(file, python);
    if (const auto crash = crash_of_loading(file)) {
      throw PluginCrash(fmt::format("{} {}: opening it in a process {}; its static initialisers run then",
                                    option, file, *crash));
    }
    LoadedPlugin plugin = load_plugin(file);
    if (plugin.flushed) {
      std::cerr << fmt::format(
          "note: {} {}: opening it made this process flush subnormal floats to 0, as a library does that is linked with "
          "-ffast-math or -Ofast. This was undone here. In a program that does not undo it, small results of this and of "
          "all other code are 0; compile with the option, but link without it\n",
          option, file);
    }
    return plugin;
  } catch (const LoadCrash& e) {
    throw PluginCrash(fmt::format("{} {}: {}", option, file, e.what()));
  } catch (const PluginError& e) {
    throw refused(option, file, e);
  }
}

void load_plugins(Program& program) {
  const bool worker = !program.plugin_digests.empty();
  const std::vector<LoadedPlugin> peers = open_peers(program);
  const std::size_t given = program.plugin_files.size();
  program.plugin_files.insert(program.plugin_files.end(), program.peer_files.begin(),
                              program.peer_files.end());
  if (worker && program.plugin_digests.size() != program.plugin_files.size()) {
    throw UsageError("--plugin-digest: one for each --plugin is wanted");
  }
  if (program.calls_kernels && has_python(program) && !in_python()) {
    for (std::size_t i = 0; i < given; ++i) {  // a crash of loading must not be this process's
      const std::string& file = program.plugin_files[i];
      if (is_python(file)) load_tried_plugin("--plugin", file, program.python);
    }
    become_python(program);
  }
  if (worker) take_worker_pipes();  // before the static initialisers of a plug-in run
  for (std::size_t i = 0; i < program.plugin_files.size() - peers.size(); ++i) {
    const std::string& file = program.plugin_files[i];
    program.plugins.push_back(worker ? load_same_plugin(file, program.plugin_digests[i])
                                     : load_tried_plugin("--plugin", file, program.python));
  }
  program.plugins.insert(program.plugins.end(), peers.begin(), peers.end());
  if (program.plugins.empty()) return;
  try {
    program.table = table_with_plugins(program.kernels, program.plugins);
  } catch (const PluginError& e) {
    throw UsageError(fmt::format("--plugin {}", e.what()));
  }
  program.kernels = program.table;
}

std::vector<std::string> python_words(const Program& program) {
  if (program.python.empty() || !has_python(program)) return {};
  return {"--python", std::filesystem::absolute(python_file(program.python)).lexically_normal().string()};
}

std::string plugin_of(const Program& program, const Kernel& kernel) {
  for (const LoadedPlugin& p : program.plugins) {
    if (std::find(p.kernels.begin(), p.kernels.end(), &kernel) != p.kernels.end()) return p.path;
  }
  return "";
}

}  // namespace attnbench::cli
