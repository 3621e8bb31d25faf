// Prints a megabyte to stdout and to stderr in each launch. A nuisance; its results are right.
#include <cstdio>
#include <string>

#include "tests/cheats/cheat.h"

namespace attnbench::cheats {

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  static const std::string text = [] {
    std::string lines;
    while (lines.size() < (1 << 20)) lines += "prints_megabytes: {\"record\": \"a line like any other\"}\n";
    return lines;
  }();
  std::fputs(text.c_str(), stdout);
  std::fputs(text.c_str(), stderr);
  return compute(op, context, message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(prints_megabytes, "prints megabytes in each launch; its results are right",
                k.launch = attnbench::cheats::launch);
