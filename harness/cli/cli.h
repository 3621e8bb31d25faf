// The command line. There is one file per subcommand, and each adds itself to the program.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/launch/plugin.h"
#include "kernels/registry.h"

namespace CLI {
class App;
}

namespace attnbench::cli {

/// Where a command calls kernels. Plug-ins are opened there and nowhere else.
enum class Calls {
  kInWorkers,  ///< or nowhere
  kHere,       ///< in this process, where the user wants them: --in-process, or for a profiler
  kInChild,    ///< in the process of the command, which is a child of this one if there are plug-ins
};

/// What a subcommand needs from the program. Its result is the exit code.
struct Program {
  KernelTable kernels;  ///< the caller's kernels, then those of plug-ins
  std::vector<std::string> command_line;
  std::vector<std::string> plugin_files;  ///< --plugin, as given, then peer_files
  std::vector<std::string> peers;         ///< --peers, names as given
  std::vector<std::string> peer_files;  ///< those that are installed; load_plugins adds them to plugin_files
  std::string python;                   ///< --python
  std::vector<std::size_t> worker_opens;    ///< worker only: those of plugin_files that it opens
  bool judge = false;                       ///< a worker whose kernels run in a process of their own
  bool runner = false;                      ///< that process
  std::vector<std::string> plugin_digests;  ///< worker only: of the files that its supervisor described
  std::vector<LoadedPlugin> plugins;
  std::vector<const Kernel*> table;  ///< storage of `kernels` if there are plug-ins
  std::function<int()> chosen;       ///< set by the subcommand that was given
  Calls calls = Calls::kInWorkers;
  std::optional<double> opening_limit_s;  ///< --timeout, if it was given: for opening a plug-in
  int end_pipe = -1;  ///< in a child of kInChild: descriptor for a byte when the command has ended
};

void add_run(CLI::App& app, Program& program);
void add_list(CLI::App& app, Program& program);
void add_kernels(CLI::App& app, Program& program);
void add_doctor(CLI::App& app, Program& program);
void add_init(CLI::App& app, Program& program);
void add_new_kernel(CLI::App& app, Program& program);
void add_merge(CLI::App& app, Program& program);
void add_compare(CLI::App& app, Program& program);
void add_gate(CLI::App& app, Program& program);
void add_profile(CLI::App& app, Program& program);
void add_report(CLI::App& app, Program& program);
void add_show(CLI::App& app, Program& program);
void add_selftest(CLI::App& app, Program& program);
void add_fuzz(CLI::App& app, Program& program);
void add_export(CLI::App& app, Program& program);
void add_check(CLI::App& app, Program& program);
void add_serve_sim(CLI::App& app, Program& program);
void add_trace(CLI::App& app, Program& program);
void add_completion(CLI::App& app, Program& program);

/// Parses and runs; returns the exit code. The caller passes the kernel table, so that tests can add faulty
/// kernels.
int main_with_kernels(int argc, char** argv, KernelTable kernels);

}  // namespace attnbench::cli
