// What a process that runs kernels gives up, by means that need no privilege.
#pragma once

#include <string>
#include <vector>

namespace attnbench {

/// From now on this process and its descendants
/// - write files below `folders` only, send signals to and trace only each other (Landlock; signals: Linux 6.12),
/// - stay in their process group, and die with their parent if they were told to (seccomp).
/// Call it while there is one thread. Returns what the system has of this: "landlock, seccomp", "landlock without
/// signals, no seccomp".
std::string confine(const std::vector<std::string>& folders);

/// TMPDIR, /dev, and where compilers that run in a launch keep their results: variables of the environment name these
/// folders, or they lie below $HOME.
std::vector<std::string> working_folders();

}  // namespace attnbench
