// A condition that must hold for every input of a fuzz target.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace attnbench::fuzz {

/// Ends the process like a crash, so that the fuzzer keeps the input and a replay fails.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

}  // namespace attnbench::fuzz
