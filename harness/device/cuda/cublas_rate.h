// The dense matrix rate that cuBLAS reaches: the ceiling for tensor-core kernels.
#pragma once

#include <memory>
#include <string>

#include "harness/device/cuda/launch_timer.h"
#include "kernels/contract/dtype.h"

namespace attnbench {

/// cuBLAS, found at run time (dlopen), so that it is needed neither to build nor to start.
class Cublas {
 public:
  /// Returns null if cuBLAS cannot be loaded; `why_not` then gives the reason in one line.
  static std::unique_ptr<Cublas> load(cudaStream_t stream, std::string& why_not);
  ~Cublas();

  /// TFLOP/s (int8: TOP/s) of n x n x n products, by the fastest of up to eight algorithms. fp32 takes no tensor
  /// cores. Sums are fp32 (int8: int32). Single launches have gaps between them, so that the power limit does
  /// not set in. Throws OutOfMemory, and DeviceError where cuBLAS or the GPU lacks such a product.
  double matmul_tflops(LaunchTimer& timer, DType dtype, int64_t n) const;

 private:
  struct Api;
  class Product;
  Cublas(std::unique_ptr<Api> api, cudaStream_t stream);
  std::unique_ptr<Api> api_;
  cudaStream_t stream_;
};

}  // namespace attnbench
