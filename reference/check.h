// Checks of what the reference is given.
#pragma once

#include <span>
#include <string>

#include "reference/reference.h"

namespace attnbench::reference {

/// Throws std::invalid_argument with the text unless the condition holds.
void require(bool holds, const std::string& what);

/// Refuses a problem that is not legal.
void check(const Problem& p);

/// Refuses rows outside of the problem.
void check(const Problem& p, std::span<const RowId> rows);

}  // namespace attnbench::reference
