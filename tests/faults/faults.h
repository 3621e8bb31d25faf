// Deliberately wrong kernels: each is the cpu attention kernel with one change.
#pragma once

#include <vector>

#include "kernels/registry.h"

namespace attnbench::faults {

/// The built-in kernels, then the faulty ones, then the examples for authors. The kernels live as long as the
/// program.
std::vector<const Kernel*> table_with_faults();

}  // namespace attnbench::faults
