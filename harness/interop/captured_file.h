// Captured tensors as a case: a safetensors file with q, k, v, cu_seqlens_q, and cu_seqlens_k or block_table and
// seqused_k (README.md of this folder).
#pragma once

#include <cstdint>
#include <string>

#include "harness/cases/case.h"

namespace attnbench {

/// Reads the file as a case. A file of `attnbench export` is the case that it was made of, whose seed is its
/// own. Throws TensorFileError.
Case read_tensor_case(const std::string& path, uint64_t seed);

}  // namespace attnbench
