// Makes a failing draft smaller as long as it fails. Sequences are dropped as in Zeller, Hildebrandt:
// Simplifying and Isolating Failure-Inducing Input, IEEE TSE 2002. Then keys, sizes and lengths change one by
// one.
#pragma once

#include <functional>

#include "harness/fuzz/draft.h"

namespace attnbench {

struct Shrunk {
  Draft draft;
  int tries = 0;
};

/// fails(draft) returns whether a draft is a case that fails as the given one did. It is called at most
/// `most_tries` times, and not for the given draft. Each step leaves fewer sequences, fewer keys or smaller
/// numbers.
Shrunk shrink(Draft draft, int most_tries, const std::function<bool(const Draft&)>& fails);

}  // namespace attnbench
