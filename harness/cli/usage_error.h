// A wrong use of the program.
#pragma once

#include "harness/error.h"

namespace attnbench::cli {

/// Printed to stderr, exit code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace attnbench::cli
