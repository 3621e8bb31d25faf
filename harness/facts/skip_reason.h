// Why a case is not run.
#pragma once

#include <string>

namespace attnbench {

/// A reason in words for the user, such as "sm90_decode: head_dim 72 not in {64,128,256}". A skip is a value.
/// Only allocations throw for a skip: TooLarge or OutOfMemory.
struct SkipReason {
  std::string text;
};

}  // namespace attnbench
