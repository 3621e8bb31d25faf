// Stores of output elements.
#pragma once

#include <cstdint>

#include "kernels/contract/dtype.h"

namespace attnbench::cuda_simt {

/// Like store_float, but only for the output types that `supports` accepts. The full switch, inlined for each
/// channel of a thread, would take registers from the loop over keys.
__device__ inline void store_output(DType t, void* out, int64_t index, float x) {
  if (t == DType::kBf16) {
    static_cast<uint16_t*>(out)[index] = float_to_bf16(x);
  } else if (t == DType::kFp16) {
    static_cast<uint16_t*>(out)[index] = float_to_fp16(x);
  } else if (t == DType::kE4m3) {
    static_cast<uint8_t*>(out)[index] = float_to_e4m3(x);
  } else {
    static_cast<float*>(out)[index] = x;
  }
}

}  // namespace attnbench::cuda_simt
