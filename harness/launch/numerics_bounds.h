// The bounds of what a kernel may declare of its arithmetic.
#pragma once

#include <optional>
#include <string>

#include "kernels/contract/kernel.h"

namespace attnbench {

/// Which field of `numerics` is out of bounds, its value and the bounds, as a sentence without a subject; nullopt:
/// none. Coarser arithmetic than these bounds exists in no hardware or kernel known here.
std::optional<std::string> out_of_bounds(const Numerics& numerics);

}  // namespace attnbench
