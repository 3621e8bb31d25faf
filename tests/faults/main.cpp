#include "harness/cli/cli.h"
#include "tests/faults/faults.h"

int main(int argc, char** argv) {
  const auto table = attnbench::faults::table_with_faults();
  return attnbench::cli::main_with_kernels(argc, argv, table);
}
