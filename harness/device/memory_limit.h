// How much memory this process may use.
#pragma once

#include <cstdint>
#include <string>

namespace attnbench {

struct MemoryLimit {
  int64_t bytes;      ///< in all
  int64_t free;       ///< of these, without swapping
  std::string binds;  ///< what leaves so little free: "the machine", "cgroup PATH", "ulimit -v", "ulimit -d"
};

/// The least of what the machine, ulimit and each level of the process's cgroup allow (version 1 or 2, also
/// of a container). memory.high counts as a limit, because a process above it hardly moves. `root` goes
/// before the paths of all files that are read.
MemoryLimit memory_limit(const std::string& root = "");

}  // namespace attnbench
