// What a file is that was given as a shared library, from its first bytes. The system's loader says of a
// library for another machine that it does not exist, and a cut one can end the process that opens it.
#pragma once

#include <string>

namespace attnbench {

/// Why the file cannot be a shared library of this machine, and what to do; empty if it may be one.
std::string why_no_library(const std::string& file);

}  // namespace attnbench
