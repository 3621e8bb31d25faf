// Runs the cases of a run, in worker processes or in this process.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/cli/cli.h"
#include "harness/cli/run_options.h"
#include "harness/session/supervisor.h"

namespace attnbench::cli {

/// The command line of a worker that opens this plug-in (empty: none) and what merges the states of its kernels: that
/// of this process with the worker flag and `more` options.
/// `judge`: it opens nothing itself, and its kernels run in the process of runner_command.
std::vector<std::string> worker_command(const Program& program, const std::string& plugin,
                                        std::vector<std::string> more, bool judge = false);

/// In a judge: the command line of its runner; empty in other workers.
std::vector<std::string> runner_of(const Program& program);

/// Adds the hidden options that worker_command passes.
void add_worker_options(CLI::App& command, bool& worker, Program& program);

class Executor {
 public:
  /// Opens the device or the devices. `check_of_file`: the checks of the sweep file, if the command line
  /// gives none. `known`: ceilings of the first device, which it then does not measure. Throws UsageError if a
  /// device cannot be opened or options contradict each other.
  Executor(const RunOptions& options, const Program& program, const SessionOptions& session,
           const std::vector<std::string>& check_of_file,
           const std::optional<Ceilings>& known = std::nullopt);

  /// The first device. Further devices are the same model.
  const DeviceInfo& info() const { return info_; }

  /// Runs until all is done or an event says stop.
  void run(const std::vector<WorkItem>& work, const RunEvents& events);

  /// Why work was left over although no stop was requested.
  const std::string& lost() const { return lost_; }

  /// nullopt where no ceilings were needed yet.
  std::optional<Ceilings> ceilings();

 private:
  void open_workers(const RunOptions& options, const Program& program,
                    const std::vector<std::string>& check_of_file, const std::optional<Ceilings>& known);

  const SessionOptions& session_;
  DeviceInfo info_;
  std::unique_ptr<Device> device_;  ///< for a run in this process
  bool has_ceilings_ = false;       ///< of device_
  std::unique_ptr<Supervisor> supervisor_;
  std::string lost_;
};

}  // namespace attnbench::cli
