// Kernels that a model runs between two launches of attention: matrix products, reductions, sorts.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

namespace attnbench {

/// Real kernels of cuBLAS and CCCL. They leave the caches of instructions, constants and descriptors of a GPU
/// as a model leaves them.
class ModelKernels {
 public:
  /// Allocates some 500 MB on the current device. Throws std::runtime_error.
  explicit ModelKernels(cudaStream_t stream);
  ~ModelKernels();
  ModelKernels(const ModelKernels&) = delete;
  ModelKernels& operator=(const ModelKernels&) = delete;

  /// Enqueues products of several types and shapes, reductions, scans and sorts.
  void enqueue();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace attnbench
