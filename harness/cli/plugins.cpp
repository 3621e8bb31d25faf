#include "harness/cli/plugins.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "harness/cli/child_program.h"
#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/peers.h"
#include "harness/cli/usage_error.h"
#include "harness/launch/last_words.h"
#include "harness/launch/python.h"
#include "harness/launch/runner.h"
#include "harness/results/text.h"
#include "harness/session/worker_pipe.h"

namespace attnbench::cli {
namespace {

UsageError refused(const std::string& option, const std::string& file, const PluginError& e) {
  return UsageError(fmt::format("{} {}: {}", option, file, e.what()));
}

/// Opens the files in this process, in a worker only its own, which must be the one that its supervisor described,
/// perhaps hours ago.
void open_plugins(Program& program) {
  program.plugins.clear();
  const bool worker = !program.plugin_digests.empty();
  for (std::size_t i = 0; i < program.plugin_files.size(); ++i) {
    const auto& own = program.worker_opens;
    if (worker && std::find(own.begin(), own.end(), i) == own.end()) continue;
    const std::string& file = program.plugin_files[i];
    try {
      program.plugins.push_back(is_python(file) ? load_python_plugin(file) : load_plugin(file));
    } catch (const PluginError& e) {
      throw refused("--plugin", file, e);
    }
    if (!worker || program.plugins.back().digest == program.plugin_digests[i]) continue;
    throw UsageError(fmt::format(
        "--plugin {}: the file was changed or built anew while the run went on; results of two builds would "
        "stand in one report",
        file));
  }
}

/// Runs this command line in a process of the interpreter, which this process becomes. Returns only by
/// UsageError.
void become_python(const Program& program) {
  std::vector<std::string> words;
  try {
    words = words_again(program, peer_words(program), true);
  } catch (const PluginError& e) {
    throw UsageError(fmt::format("--plugin: {}", e.what()));
  }
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  throw UsageError(fmt::format("{} cannot be run: {}", words[0], std::strerror(errno)));
}

/// "; it opens --plugin a.so when it starts": of a process that ended without a word; empty without plug-ins.
std::string opened_first(const Program& program) {
  return program.plugins.empty()
             ? ""
             : fmt::format("; it opens --plugin {} when it starts", fmt::join(program.plugin_files, ", "));
}

/// Runs this command line in a child, which opens the plug-ins. A plug-in may end the child with exit code
/// 0, so the child also tells that the command has ended.
int run_in_child(const Program& program) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
    throw Error(fmt::format("cannot make a pipe: {}", std::strerror(errno)), kExitFailure);
  fcntl(fds[1], F_SETFD, 0);
  catch_signals();
  const int code = run_program(
      words_again(program, {fmt::format("--end-pipe={}", fds[1])}, has_python(program)), "", false);
  restore_signals();
  char byte = 0;
  const bool told = read(fds[0], &byte, 1) == 1;
  for (const int fd : fds) close(fd);
  // A crash has been reported by the child.
  if (told || child_stopped() || code == kCrashExitCode) return code;
  throw PluginCrash(
      fmt::format("the child that runs this command ended with exit code {} before it was done{}", code,
                  opened_first(program)));
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
  command.add_option("--end-pipe", program.end_pipe)->group("");
}

void add_opening_limit(CLI::App& command, Program& program) {
  command
      .add_option("--timeout", program.opening_limit_s,
                  "Seconds after which opening a plug-in is given up (default 60; one in Python: 120)")
      ->type_name("S")
      ->check(number_in(0.001, 1e6));
}

bool has_python(const Program& program) {
  return std::any_of(program.plugin_files.begin(), program.plugin_files.end(), is_python);
}

LoadedPlugin described_plugin(const std::string& option, const std::string& file, const Program& program) {
  try {
    if (is_python(file)) return describe_python_plugin(file, program.python, program.opening_limit_s);
    LoadedPlugin plugin = describe_plugin(file, program.opening_limit_s);
    if (plugin.flushed) {
      std::cerr << fmt::format(
          "note: {} {}: opening it makes a process flush subnormal floats to 0, as a library does that is linked with "
          "-ffast-math or -Ofast. This is undone here. In a program that does not undo it, small results of this and of "
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
  if (program.runner) confine_runner();  // before code of a plug-in runs
  const bool worker = !program.plugin_digests.empty();
  // Whether another process of this program has described the files, and this one opens them.
  const bool opens = worker || in_python() || program.end_pipe >= 0;
  const std::vector<LoadedPlugin> peers = open_peers(program);
  const std::vector<std::string> given = program.plugin_files;
  program.plugin_files.insert(program.plugin_files.end(), program.peer_files.begin(),
                              program.peer_files.end());
  if (worker && program.plugin_digests.size() != program.plugin_files.size()) {
    throw UsageError("--plugin-digest: one for each --plugin is required");
  }
  if (program.judge) return;                           // its runner opens them
  if (worker && !program.runner) take_worker_pipes();  // before the static initialisers of a plug-in run
  if (opens) {
    open_plugins(program);
  } else {
    for (const std::string& file : given)
      program.plugins.push_back(described_plugin("--plugin", file, program));
    program.plugins.insert(program.plugins.end(), peers.begin(), peers.end());
  }
  if (program.plugins.empty()) return;
  if (!opens && program.calls == Calls::kInChild) {
    program.chosen = [&program] { return run_in_child(program); };
    return;
  }
  if (!opens && program.calls == Calls::kHere) {
    if (has_python(program)) become_python(program);
    open_plugins(program);
  }
  try {
    program.table = table_with_plugins(program.kernels, program.plugins);
  } catch (const PluginError& e) {
    throw UsageError(fmt::format("--plugin {}", e.what()));
  }
  program.kernels = program.table;
}

CaseOptions for_interpreter(CaseOptions options, const Program& program) {
  const char* asked = std::getenv("TRITON_INTERPRET");
  const auto named = [](const std::string& o) { return o.starts_with("dtype="); };
  const auto is_sweep = [](const std::string& path) {
    return !std::filesystem::is_directory(path) && !path.ends_with(".safetensors");
  };
  if (asked == nullptr || *asked == '\0' || std::string_view(asked) == "0" ||
      std::ranges::any_of(options.overrides, named) || !std::ranges::all_of(options.configs, is_sweep))
    return options;
  uint64_t features = 0;
  for (const LoadedPlugin& p : program.plugins) {
    if (std::ranges::none_of(p.versions, [](const auto& v) { return v.first == "triton"; })) continue;
    for (const Kernel* k : p.kernels) features |= k->device == DeviceKind::kCpu ? k->features : 0;
  }
  if ((features & (kFp16 | kFp32)) == 0) return options;
  options.overrides.push_back((features & kFp16) != 0 ? "dtype=fp16" : "dtype=fp32");
  if (!options.notes_said) {
    std::cerr << fmt::format(
        "note: TRITON_INTERPRET={}: all cases have {}, because Triton's interpreter computes wrong products of bf16; "
        "--set dtype=... chooses another type\n",
        one_line(asked), options.overrides.back());
  }
  return options;
}

std::vector<std::string> words_again(const Program& program, const std::vector<std::string>& more,
                                     bool python) {
  std::vector<std::string> argv = program.command_line;
  argv.insert(argv.begin() + 2, more.begin(), more.end());  // after the name of the subcommand
  argv.front() = program_file();
  return python ? python_command(python_file(program.python), argv) : argv;
}

std::vector<std::string> python_words(const Program& program) {
  if (program.python.empty() || !has_python(program)) return {};
  return {"--python", std::filesystem::absolute(python_file(program.python)).lexically_normal().string()};
}

RunContext context_of_run(const DeviceInfo& device, const std::string& name, const Program& program) {
  RunContext context = describe_run(device, name, program.command_line);
  for (const LoadedPlugin& p : program.plugins) {
    PluginInfo info{p.path, p.digest, {}, p.versions};
    for (const Kernel* k : p.kernels) info.kernels.push_back(k->name);
    context.plugins.push_back(std::move(info));
  }
  return context;
}

std::string plugin_of(const Program& program, const Kernel& kernel) {
  for (const LoadedPlugin& p : program.plugins) {
    if (std::find(p.kernels.begin(), p.kernels.end(), &kernel) != p.kernels.end()) return p.path;
  }
  return "";
}

}  // namespace attnbench::cli
