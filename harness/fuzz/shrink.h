// Makes a failing draft smaller while it fails: Zeller, Hildebrandt: Simplifying and Isolating
// Failure-Inducing Input, IEEE TSE 2002, on sequences; then keys, sizes and lengths one by one.
#pragma once

#include <functional>

#include "harness/fuzz/draft.h"

namespace attnbench {

struct Shrunk {
  Draft draft;
  int tries = 0;
};

/// `fails(draft)`: whether it is a case, and fails as the first one did. It is asked `most_tries` times at
/// most, and not of the draft that is given. Each step leaves fewer sequences, fewer keys or smaller numbers.
Shrunk shrink(Draft draft, int most_tries, const std::function<bool(const Draft&)>& fails);

}  // namespace attnbench
