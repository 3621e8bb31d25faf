// libattnbench.so: the program as functions, for an interpreter of Python (harness/python/attnbench/_host.py).
#include "harness/cli/cli.h"
#include "harness/device/read.h"
#include "harness/launch/python.h"

extern "C" {

/// Runs the program with these arguments and returns its exit code. `program`: file of the program.
int attnbench_main(int argc, char** argv, const char* program, const attnbench::PythonHost* host) {
  attnbench::set_python_host(*host, program);
  return attnbench::cli::main_with_kernels(argc, argv, attnbench::builtin_kernels());
}

/// A function for Kernel::numerics that returns these numbers, which Python cannot make: its callbacks return no
/// struct. Null if there are too many kernels.
attnbench::Numerics (*attnbench_numerics(int32_t p_type, int32_t acc_type, double exp_rel_err,
                                         double mma_roundoff, double p_scale, int32_t head_grad_type,
                                         double input_roundoff))(const attnbench::OpParams*) {
  return attnbench::constant_numerics(
      {static_cast<attnbench::DType>(p_type), static_cast<attnbench::DType>(acc_type), exp_rel_err,
       mma_roundoff, p_scale, static_cast<attnbench::DType>(head_grad_type), input_roundoff});
}

/// Copies `bytes` from memory of the device of this launch to the host, after what its stream holds. Returns 0,
/// or another number if the device fails.
int attnbench_read(const attnbench::LaunchContext* context, void* to, const void* from, size_t bytes) {
  return attnbench::read_memory(*context, to, from, bytes);
}
}
