// Sizes of memory, as users see them everywhere: in GB of 10^9 bytes.
#pragma once

#include <fmt/format.h>

#include <string>

namespace attnbench {

/// "24.13 GB".
inline std::string gigabytes(double bytes) { return fmt::format("{:.2f} GB", bytes * 1e-9); }

}  // namespace attnbench
