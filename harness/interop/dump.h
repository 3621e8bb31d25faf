// `attnbench run --dump`: a launch as files that NumPy loads.
#pragma once

#include <string>

#include "harness/judge/expected.h"

namespace attnbench {

inline constexpr const char* kDumpScript = "worst.py";  ///< prints the worst element of each output

/// Before the launch: writes NAME.npy of each input, expected_NAME.npy of each output, case.txt, and a script that says
/// that there are no outputs. Poisons the outputs. `dir` is there and empty. Throws FileError.
void dump_inputs(const std::string& dir, Workload& workload, const Numerics& numerics, const Check& check);

/// After it: writes NAME.npy and z_NAME.npy of each output, expected_NAME.npy of the rows that `check` has compared, and then
/// the script. z is |error| in standard deviations; NaN is not compared, and inf is NaN or a wrong bit.
/// `got`: the outputs as they were judged. Throws FileError.
void dump_outputs(const std::string& dir, Workload& workload, const HostOutputs& got,
                  const Numerics& numerics, const Check& check);

}  // namespace attnbench
