// Prints some hundred lines from the GPU in each launch. A nuisance; its results are right.
#include <cstdio>

#include "tests/cheats/cheat_cuda.h"

namespace attnbench::cheats {

static __global__ void print_lines() {
  printf("prints_from_device: {\"record\": \"a line like any other\"}\n");
}

static KernelStatus launch(const OpParams* op, const LaunchContext* context, KernelMessage* message) {
  print_lines<<<8, 64, 0, stream_of(context)>>>();
  return compute(op, context, message);
}

}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(prints_from_device, "prints from the GPU in each launch; its results are right",
                k.launch = attnbench::cheats::launch);
