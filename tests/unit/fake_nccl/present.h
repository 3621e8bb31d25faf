// Whether the library for tests that stands for NCCL is there: it is not where a test alone has been copied to.
#pragma once

#include <filesystem>
#include <string>

namespace attnbench::test {

/// Why tests that open it cannot run; empty if they can.
inline std::string no_fake_nccl() {
  if (std::filesystem::exists(ATTNBENCH_FAKE_NCCL)) return "";
  return "there is no " ATTNBENCH_FAKE_NCCL ": build the target fake_nccl here";
}

}  // namespace attnbench::test
