#include "harness/device/cuda/cublas_rate.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define ATTNBENCH_HAVE_CUBLAS_HEADER 1
#endif
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <thread>
#include <type_traits>
#include <vector>

#include "harness/device/cuda/cuda_check.h"
#include "harness/device/cuda/fill.h"

namespace attnbench {

#if ATTNBENCH_HAVE_CUBLAS_HEADER

struct Cublas::Api {
  void* library = nullptr;
  cublasLtHandle_t handle = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;

  bool find_functions() {
    const auto find = [this](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return find("cublasLtCreate", create) && find("cublasLtDestroy", destroy) &&
           find("cublasLtMatmul", matmul) && find("cublasLtMatmulAlgoGetHeuristic", heuristic) &&
           find("cublasLtMatmulDescCreate", desc_create) && find("cublasLtMatmulDescDestroy", desc_destroy) &&
           find("cublasLtMatmulDescSetAttribute", desc_set) &&
           find("cublasLtMatrixLayoutCreate", layout_create) &&
           find("cublasLtMatrixLayoutDestroy", layout_destroy) &&
           find("cublasLtMatmulPreferenceCreate", preference_create) &&
           find("cublasLtMatmulPreferenceDestroy", preference_destroy) &&
           find("cublasLtMatmulPreferenceSetAttribute", preference_set);
  }
};

namespace {

constexpr std::size_t kWorkspace = 32 << 20;  ///< bytes; what cuBLAS itself takes on sm_90

struct DeviceBuffer {
  explicit DeviceBuffer(int64_t bytes) {
    cuda_check(cudaMalloc(&data, static_cast<std::size_t>(bytes)), "cudaMalloc");
  }
  ~DeviceBuffer() { cudaFree(data); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  void* data = nullptr;
};

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

/// The types of one product. Each is the fastest that cuBLAS offers: e4m3 adds up in the tensor cores alone (fast
/// accumulation) and writes bf16, int8 writes int8.
struct ProductTypes {
  cudaDataType_t in, out;
  cublasComputeType_t sums;
};

ProductTypes types_of(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return {CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F};
    case DType::kFp16:
      return {CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F};
    case DType::kE4m3:
      return {CUDA_R_8F_E4M3, CUDA_R_16BF, CUBLAS_COMPUTE_32F};
    case DType::kInt8:
      return {CUDA_R_8I, CUDA_R_8I, CUBLAS_COMPUTE_32I};
    default:
      return {CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
  }
}

}  // namespace

/// The descriptions that cublasLtMatmul takes, of a product of two n x n matrices, and the algorithms for it.
class Cublas::Product {
 public:
  Product(const Api& api, DType dtype, int64_t n) : Product(api) {
    const ProductTypes types = types_of(dtype);
    blas_check(api_.desc_create(&desc_, types.sums, CUDA_R_32F), "cublasLtMatmulDescCreate");
    const cublasOperation_t transposed = CUBLAS_OP_T;  // 8-bit types take no other
    blas_check(api_.desc_set(desc_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)), "TRANSA");
    if (dtype == DType::kE4m3) {
      const int8_t fast = 1;
      blas_check(api_.desc_set(desc_, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof(fast)), "FAST_ACCUM");
    }
    const auto side = static_cast<uint64_t>(n);
    blas_check(api_.layout_create(&in_, types.in, side, side, n), "cublasLtMatrixLayoutCreate");
    blas_check(api_.layout_create(&out_, types.out, side, side, n), "cublasLtMatrixLayoutCreate");
    blas_check(api_.preference_create(&preference_), "cublasLtMatmulPreferenceCreate");
    blas_check(api_.preference_set(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace,
                                   sizeof(kWorkspace)),
               "MAX_WORKSPACE_BYTES");
    blas_check(api_.heuristic(api_.handle, desc_, in_, in_, out_, out_, preference_,
                              static_cast<int>(algorithms_.size()), algorithms_.data(), &count_),
               "cublasLtMatmulAlgoGetHeuristic");
    blas_check(count_ > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED, "no algorithm");
  }
  ~Product() {
    if (preference_ != nullptr) api_.preference_destroy(preference_);
    for (const cublasLtMatrixLayout_t layout : {in_, out_})
      if (layout != nullptr) api_.layout_destroy(layout);
    if (desc_ != nullptr) api_.desc_destroy(desc_);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  int algorithms() const { return count_; }

  /// c = a^T b by one of the algorithms.
  void launch(int algorithm, const void* a, const void* b, void* c, void* workspace,
              cudaStream_t stream) const {
    const float one = 1, zero = 0;
    blas_check(
        api_.matmul(api_.handle, desc_, &one, a, in_, b, in_, &zero, c, out_, c, out_,
                    &algorithms_[static_cast<std::size_t>(algorithm)].algo, workspace, kWorkspace, stream),
        "cublasLtMatmul");
  }

 private:
  // If the public constructor throws after this one, the destructor runs.
  explicit Product(const Api& api) : api_(api) {}

  const Api& api_;
  cublasLtMatmulDesc_t desc_ = nullptr;
  cublasLtMatrixLayout_t in_ = nullptr, out_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  std::array<cublasLtMatmulHeuristicResult_t, 8> algorithms_{};  ///< the fastest expected first
  int count_ = 0;
};

std::unique_ptr<Cublas> Cublas::load(cudaStream_t stream, std::string& why_not) {
  auto api = std::make_unique<Api>();
  for (const char* name : {"libcublasLt.so", "libcublasLt.so.13", "libcublasLt.so.12"}) {
    api->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (api->library != nullptr) break;
  }
  if (api->library == nullptr) {
    why_not = "cuBLAS was not found (libcublasLt.so)";
    return nullptr;
  }
  auto cublas = std::unique_ptr<Cublas>(new Cublas(std::move(api), stream));
  Api& a = *cublas->api_;
  if (!a.find_functions()) {
    why_not = "cuBLAS lacks a function that is needed";
    return nullptr;
  }
  if (const cublasStatus_t status = a.create(&a.handle); status != CUBLAS_STATUS_SUCCESS) {
    a.handle = nullptr;
    why_not = "cublasLtCreate failed with status " + std::to_string(static_cast<int>(status));
    return nullptr;
  }
  return cublas;
}

Cublas::Cublas(std::unique_ptr<Api> api, cudaStream_t stream) : api_(std::move(api)), stream_(stream) {}

Cublas::~Cublas() {
  if (api_->handle != nullptr) api_->destroy(api_->handle);
  // The library stays loaded, because its exit handlers point into it.
}

double Cublas::matmul_tflops(LaunchTimer& timer, DType dtype, int64_t n) const {
  const int64_t bytes = n * n * static_cast<int64_t>(dtype_size(dtype));
  const DeviceBuffer a(bytes), b(bytes), c(n * n * 4), workspace(kWorkspace);
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

  const Product product(*api_, dtype, n);
  constexpr int kLaunches = 3;  // of an algorithm; the first warms up
  double best_us = std::numeric_limits<double>::infinity();
  for (int algorithm = 0; algorithm < product.algorithms(); ++algorithm) {
    for (int i = 0; i < kLaunches; ++i) {
      const Sample sample =
          timer.time([&] { product.launch(algorithm, a.data, b.data, c.data, workspace.data, stream_); },
                     CacheMode::kHot);
      if (i > 0) best_us = std::min(best_us, sample.us);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  const auto side = static_cast<double>(n);
  return 2 * side * side * side / best_us * 1e-6;
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
