// How long the threads of this process waited for a core although they could run.
#pragma once

#include <optional>
#include <vector>

namespace attnbench {

/// Watches the threads that exist when it is made. Linux counts their waits: the second number of
/// /proc/self/task/*/schedstat, in ns. A virtual machine's own waits for its host are not among them.
class CoreWaits {
 public:
  CoreWaits();
  ~CoreWaits();
  CoreWaits(const CoreWaits&) = delete;
  CoreWaits& operator=(const CoreWaits&) = delete;

  /// Waits before this call count no more.
  void start();
  /// The longest wait of a thread since the watch was made or started again, in seconds. nullopt if the system does not count waits.
  std::optional<double> longest() const;

 private:
  struct Thread {
    int file;
    double before;
  };
  std::vector<Thread> threads_;
};

}  // namespace attnbench
