#include "harness/device/cuda/cublas_rate.h"

#if __has_include(<cublas_v2.h>)
#include <cublas_v2.h>
#define ATTNBENCH_HAVE_CUBLAS_HEADER 1
#endif
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "harness/device/cuda/cuda_check.h"
#include "harness/device/cuda/fill.h"

namespace attnbench {

#if ATTNBENCH_HAVE_CUBLAS_HEADER

namespace {

// Written out because the header overloads the name. The assertion checks the type.
using GemmEx = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int m, int n, int k,
                                  const void* alpha, const void* a, cudaDataType, int lda, const void* b,
                                  cudaDataType, int ldb, const void* beta, void* c, cudaDataType, int ldc,
                                  cublasComputeType_t, cublasGemmAlgo_t);
static_assert(sizeof(static_cast<GemmEx>(&cublasGemmEx)) > 0);

}  // namespace

struct Cublas::Api {
  void* library = nullptr;
  cublasHandle_t handle = nullptr;
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  GemmEx gemm_ex = nullptr;
};

namespace {

struct DeviceBuffer {
  explicit DeviceBuffer(int64_t bytes) {
    cuda_check(cudaMalloc(&data, static_cast<std::size_t>(bytes)), "cudaMalloc");
  }
  ~DeviceBuffer() { cudaFree(data); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  void* data = nullptr;
};

template <class Function>
bool find_symbol(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

void blas_check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError(std::string(what) + ": cuBLAS status " + std::to_string(static_cast<int>(status)), false);
}

/// Fills an n x n matrix with the values that workloads use. The power that a product draws, and with it the
/// clock, depends on the data; zeros would give a rate that is too high.
void fill_matrix(void* data, DType dtype, Tensor tensor, int64_t n, const RowOwner* owners,
                 cudaStream_t stream) {
  FillJob job{};
  job.base = data;
  job.dtype = dtype;
  job.tensor = tensor;
  job.num_rows = n;
  job.block_size = n;
  job.stride_token = n;
  job.stride_head = n;
  job.num_heads = 1;
  job.head_dim = static_cast<int32_t>(n);
  job.owners = owners;
  fill_cuda(job, stream);
}

cudaDataType_t data_type(DType dtype) {
  return dtype == DType::kBf16 ? CUDA_R_16BF : dtype == DType::kFp16 ? CUDA_R_16F : CUDA_R_32F;
}

}  // namespace

std::unique_ptr<Cublas> Cublas::load(cudaStream_t stream, std::string& why_not) {
  auto api = std::make_unique<Api>();
  for (const char* name : {"libcublas.so", "libcublas.so.13", "libcublas.so.12"}) {
    api->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (api->library != nullptr) break;
  }
  if (api->library == nullptr) {
    why_not = "cuBLAS was not found (libcublas.so)";
    return nullptr;
  }
  auto cublas = std::unique_ptr<Cublas>(new Cublas(std::move(api), stream));
  Api& a = *cublas->api_;
  if (!find_symbol(a.library, "cublasCreate_v2", a.create) ||
      !find_symbol(a.library, "cublasDestroy_v2", a.destroy) ||
      !find_symbol(a.library, "cublasSetStream_v2", a.set_stream) ||
      !find_symbol(a.library, "cublasGemmEx", a.gemm_ex)) {
    why_not = "cuBLAS lacks a function that is needed";
    return nullptr;
  }
  if (const cublasStatus_t status = a.create(&a.handle); status != CUBLAS_STATUS_SUCCESS) {
    a.handle = nullptr;
    why_not = "cublasCreate failed with status " + std::to_string(static_cast<int>(status));
    return nullptr;
  }
  blas_check(a.set_stream(a.handle, stream), "cublasSetStream");
  return cublas;
}

Cublas::Cublas(std::unique_ptr<Api> api, cudaStream_t stream) : api_(std::move(api)), stream_(stream) {}

Cublas::~Cublas() {
  if (api_->handle != nullptr) api_->destroy(api_->handle);
  // The library stays loaded, because its exit handlers point into it.
}

double Cublas::matmul_tflops(LaunchTimer& timer, DType dtype, int64_t n) const {
  const int64_t bytes = n * n * static_cast<int64_t>(dtype_size(dtype));
  const DeviceBuffer a(bytes), b(bytes), c(bytes);
  {
    std::vector<RowOwner> rows(static_cast<std::size_t>(n));
    for (int64_t r = 0; r < n; ++r) rows[static_cast<std::size_t>(r)] = {0, static_cast<int32_t>(r)};
    const DeviceBuffer owners(n * static_cast<int64_t>(sizeof(RowOwner)));
    cuda_check(cudaMemcpyAsync(owners.data, rows.data(), rows.size() * sizeof(RowOwner),
                               cudaMemcpyHostToDevice, stream_),
               "cudaMemcpyAsync");
    fill_matrix(a.data, dtype, Tensor::kQ, n, static_cast<const RowOwner*>(owners.data), stream_);
    fill_matrix(b.data, dtype, Tensor::kK, n, static_cast<const RowOwner*>(owners.data), stream_);
    cuda_check(cudaStreamSynchronize(stream_), "filling the matrices");
  }

  const auto product = [&] {
    const float one = 1.0f, zero = 0.0f;
    const int size = static_cast<int>(n);
    const cudaDataType_t type = data_type(dtype);
    blas_check(
        api_->gemm_ex(api_->handle, CUBLAS_OP_T, CUBLAS_OP_N, size, size, size, &one, a.data, type, size,
                      b.data, type, size, &zero, c.data, type, size, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx");
  };
  constexpr int kWarmUps = 2;
  constexpr int kLaunches = 11;
  std::vector<double> us;
  for (int i = 0; i < kWarmUps + kLaunches; ++i) {
    const Sample sample = timer.time(product, CacheMode::kHot);
    if (i >= kWarmUps) us.push_back(sample.us);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const auto side = static_cast<double>(n);
  return 2 * side * side * side / *std::min_element(us.begin(), us.end()) * 1e-6;
}

#else

struct Cublas::Api {};
std::unique_ptr<Cublas> Cublas::load(cudaStream_t, std::string& why_not) {
  why_not = "built without the cuBLAS header";
  return nullptr;
}
Cublas::Cublas(std::unique_ptr<Api> api, cudaStream_t stream) : api_(std::move(api)), stream_(stream) {}
Cublas::~Cublas() = default;
double Cublas::matmul_tflops(LaunchTimer&, DType, int64_t) const { return 0; }

#endif

}  // namespace attnbench
