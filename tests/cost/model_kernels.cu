#include "tests/cost/model_kernels.h"

#include <cublas_v2.h>

#include <cub/device/device_histogram.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_run_length_encode.cuh>
#include <cub/device/device_scan.cuh>
#include <stdexcept>
#include <string>

namespace attnbench {
namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string(what) + ": cuBLAS status " +
                             std::to_string(static_cast<int>(status)));
}

struct Shape {
  int m, n, k;
};
/// Projections of models with 4,096 channels for 16 to 1,024 tokens, and two odd ones.
constexpr Shape kShapes[] = {{4096, 16, 4096},  {6144, 64, 4096},   {1024, 256, 4096}, {4096, 512, 1024},
                             {2048, 1024, 512}, {1000, 1000, 1000}, {128, 128, 8192}};

struct Type {
  cudaDataType_t data, result;
  cublasComputeType_t compute;
};
constexpr Type kTypes[] = {{CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F},
                           {CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F},
                           {CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F},
                           {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32},
                           {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F}};

/// Holds the largest matrix of kShapes in fp32.
constexpr std::size_t kMatrixBytes = std::size_t{128} << 20;
constexpr int kItems = 1 << 18;

}  // namespace

struct ModelKernels::State {
  cudaStream_t stream = nullptr;
  cublasHandle_t blas = nullptr;
  void *a = nullptr, *b = nullptr, *c = nullptr, *scratch = nullptr;

  void enqueue_sorts() const {
    std::size_t bytes = kMatrixBytes;
    auto* words = static_cast<unsigned*>(a);
    auto* sorted = static_cast<unsigned*>(c);
    auto* floats = static_cast<float*>(b);
    check(cub::DeviceRadixSort::SortPairs(scratch, bytes, words, sorted, words + kItems, sorted + kItems,
                                          kItems, 0, 32, stream),
          "SortPairs");
    check(cub::DeviceReduce::Sum(scratch, bytes, floats, floats + kItems, kItems, stream), "Sum");
    check(cub::DeviceReduce::Max(scratch, bytes, words, sorted, kItems, stream), "Max");
    check(cub::DeviceScan::InclusiveSum(scratch, bytes, words, sorted, kItems, stream), "InclusiveSum");
    auto* keys = static_cast<unsigned long long*>(a);
    auto* out = static_cast<unsigned long long*>(c);
    check(cub::DeviceRadixSort::SortKeysDescending(scratch, bytes, keys, out, kItems, 0, 64, stream),
          "SortKeysDescending");
    check(cub::DeviceRunLengthEncode::Encode(scratch, bytes, words, sorted, sorted + kItems,
                                             sorted + 2 * kItems, kItems, stream),
          "Encode");
    check(cub::DeviceHistogram::HistogramEven(scratch, bytes, floats, static_cast<int*>(c), 257, 0.0f, 1.0f,
                                              kItems, stream),
          "HistogramEven");
  }
};

ModelKernels::ModelKernels(cudaStream_t stream) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.stream = stream;
  for (void** matrix : {&s.a, &s.b, &s.c, &s.scratch}) {
    check(cudaMalloc(matrix, kMatrixBytes), "cudaMalloc");
    check(cudaMemsetAsync(*matrix, 0, kMatrixBytes, stream), "cudaMemsetAsync");
  }
  check(cublasCreate(&s.blas), "cublasCreate");
  check(cublasSetStream(s.blas, stream), "cublasSetStream");
}

ModelKernels::~ModelKernels() {
  if (state_->blas != nullptr) cublasDestroy(state_->blas);
  for (void* matrix : {state_->a, state_->b, state_->c, state_->scratch}) cudaFree(matrix);
}

void ModelKernels::enqueue() {
  const State& s = *state_;
  const float one = 1, zero = 0;
  for (const Type& type : kTypes) {
    for (const Shape& shape : kShapes) {
      check(cublasGemmEx(s.blas, CUBLAS_OP_T, CUBLAS_OP_N, shape.m, shape.n, shape.k, &one, s.a, type.data,
                         shape.k, s.b, type.data, shape.k, &zero, s.c, type.result, shape.m, type.compute,
                         CUBLAS_GEMM_DEFAULT),
            "cublasGemmEx");
    }
  }
  s.enqueue_sorts();
}

}  // namespace attnbench
