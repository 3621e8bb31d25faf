// A case as a file: its inputs as a launch gets them, and what is expected of the outputs. `attnbench export`
// writes it, and `attnbench check` judges outputs by it (README.md of this folder).
#pragma once

#include <string>

#include "harness/interop/case_tensors.h"
#include "harness/judge/expected.h"
#include "harness/tensors/workload.h"

namespace attnbench {

/// How the file was, or is to be, written.
struct CaseFileOptions {
  Numerics numerics{};  ///< the arithmetic that the tolerance is for
  /// Numbers that must not be read are 0 and not NaN, and junk in block_table is 0. Otherwise they are as in a
  /// run.
  bool zeros = false;
};

/// Why a case cannot be written, in words; empty if it can.
std::string why_not_exported(const Case& c, const CaseFileOptions& options);

/// What most kernels compute with: P in the type of V as far as that has 16 bits, sums in fp32, and a fast exponential.
Numerics usual_numerics(const CaseParams& p);

/// Writes the file. Throws FileError.
void write_case_file(const std::string& path, Workload& workload, const ExpectedOutputs& expected,
                     const CaseFileOptions& options, const std::string& program_version);

/// What a file says of its case: one of `attnbench export`, or captured tensors. Throws TensorFileError if it is neither,
/// or if its case reads back as another one.
struct CaseFile {
  explicit CaseFile(const std::string& path);

  /// Compares the inputs in the file with those that this program makes of the case; `workload` holds them.
  /// Throws TensorFileError, which names the first tensor that differs.
  void check_inputs(Workload& workload);

  SafetensorsFile file;
  Case item;
  CaseFileOptions options;
};

}  // namespace attnbench
