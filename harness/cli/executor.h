// Where the cases of a run are run: in worker processes, or in this one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/cli/cli.h"
#include "harness/cli/run_options.h"
#include "harness/session/supervisor.h"

namespace attnbench::cli {

/// The command line of a worker: this one, told to be a worker, and more options.
std::vector<std::string> worker_command(const Program& program, std::vector<std::string> more);

class Executor {
 public:
  /// Opens the device or the devices. Throws UsageError where one cannot be opened, and where options do not
  /// go together.
  /// `check_of_file`: what the sweep file says of checks, where the command line says nothing.
  Executor(const RunOptions& options, const Program& program, const SessionOptions& session,
           const std::vector<std::string>& check_of_file);

  /// The first device; the others, if any, are like it.
  const DeviceInfo& info() const { return info_; }

  /// Runs until all is done or an event says stop.
  void run(const std::vector<WorkItem>& work, const RunEvents& events);

  /// Why work was left over, where no stop was asked for.
  const std::string& lost() const { return lost_; }

  /// nullopt where none were measured and none can be.
  std::optional<Ceilings> ceilings();

 private:
  void open_workers(const RunOptions& options, const Program& program,
                    const std::vector<std::string>& check_of_file);

  const SessionOptions& session_;
  DeviceInfo info_;
  std::unique_ptr<Device> device_;  ///< in this process
  std::unique_ptr<Supervisor> supervisor_;
  std::string lost_;
};

}  // namespace attnbench::cli
