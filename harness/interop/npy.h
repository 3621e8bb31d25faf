// Arrays of NumPy: .npy, versions 1 to 3.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/interop/safetensors.h"

namespace attnbench {

/// A tensor on the host. Its elements are in C order.
struct HostTensor {
  Element type = Element::kF32;
  std::vector<int64_t> shape;
  std::vector<unsigned char> bytes;
};

/// Reads an array of float16, float32, float64, uint16, uint8, or of two bytes without a type (`V2`, as bfloat16 of
/// ml_dtypes is written), which becomes U16. Fortran order is turned into C order. NumPy has no bfloat16, so
/// bits of bf16 come as U16, those of 8-bit types as U8. Throws TensorFileError.
HostTensor read_npy(const std::string& path);

/// The bytes of a .npy file. Floating-point types of 8 and 16 bits become float32, because NumPy lacks some of them.
std::string npy_text(Element type, const std::vector<int64_t>& shape, const void* data);

}  // namespace attnbench
