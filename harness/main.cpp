#include "harness/cli/cli.h"

int main(int argc, char** argv) {
  return attnbench::cli::main_with_kernels(argc, argv, attnbench::builtin_kernels());
}
