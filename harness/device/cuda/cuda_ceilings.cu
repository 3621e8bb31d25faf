#include "harness/device/cuda/cuda_ceilings.cuh"

#include <algorithm>
#include <memory>

#include "harness/device/cuda/cublas_rate.h"
#include "harness/device/cuda/cuda_check.h"
#include "harness/device/cuda/mma_rate.h"

namespace attnbench {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

__global__ void tiny_kernel() {}

/// The median of `count` timings of `launch`, in microseconds.
double median_us(LaunchTimer& timer, const std::function<void()>& launch, CacheMode cache, int count) {
  std::vector<double> us(static_cast<std::size_t>(count));
  timer.time(launch, cache);  // loads the code
  for (double& u : us) u = timer.time(launch, cache).us;
  std::nth_element(us.begin(), us.begin() + count / 2, us.end());
  return us[static_cast<std::size_t>(count / 2)];
}

double least_us(LaunchTimer& timer, const std::function<void()>& launch, CacheMode cache, int count) {
  timer.time(launch, cache);
  double best = 1e30;
  for (int i = 0; i < count; ++i) best = std::min(best, timer.time(launch, cache).us);
  return best;
}

}  // namespace

const Ceilings& CudaCeilings::of(const std::vector<DType>& dtypes, const std::string& note) {
  if (adopted_) return ceilings_;
  if (!memory_measured_) measure_memory();
  measure_matmul(dtypes);
  ceilings_.note = memory_note_ + "; " + matmul_note_ + note;
  return ceilings_;
}

void CudaCeilings::measure_memory() {
  ceilings_.floor_us = median_us(
      timer_, [this] { tiny_kernel<<<1, 1, 0, stream_>>>(); }, CacheMode::kHot, 21);
  int64_t bytes = std::min(2048 * kMiB, device_.free_memory() / 4) / 32 * 32;
  try {
    const auto buffer =
        std::shared_ptr<void>(device_.allocate(bytes), [this](void* p) { device_.release(p); });
    auto* data = static_cast<char*>(buffer.get());
    device_.set_bytes(data, 0x5a, bytes);
    const double gigabytes = static_cast<double>(bytes) * 1e-9;
    // The best of ten: a ceiling is what no kernel exceeds.
    const double read_us = least_us(
        timer_, [&] { read_cuda(data, bytes, sink_, device_.info().multiprocessors, stream_); },
        CacheMode::kColdData, 10);
    ceilings_.read_gbs = gigabytes / read_us * 1e6;
    const double copy_us = least_us(
        timer_,
        [&] {
          cuda_check(cudaMemcpyAsync(data + bytes / 2, data, static_cast<std::size_t>(bytes / 2),
                                     cudaMemcpyDeviceToDevice, stream_),
                     "cudaMemcpyAsync");
        },
        CacheMode::kColdData, 10);
    ceilings_.copy_gbs = gigabytes / copy_us * 1e6;
    // Reads a quarter of the cache many times in one launch. The first pass fetches it.
    const int64_t part = std::min(device_.info().cache_bytes / 4, bytes) / 16 * 16;
    constexpr int kPasses = 64;
    if (part >= kMiB) {
      const double cache_us = least_us(
          timer_, [&] { reread_cuda(data, part, kPasses, sink_, device_.info().multiprocessors, stream_); },
          CacheMode::kHot, 10);
      ceilings_.cache_gbs = static_cast<double>(part) * kPasses * 1e-9 / cache_us * 1e6;
    }
    memory_note_ = "read and copy over " + std::to_string(bytes / kMiB) + " MiB, best of 10 single launches";
  } catch (const OutOfMemory&) {
    memory_note_ = "read and copy not measured: out of memory";
  }
  memory_measured_ = true;
}

void CudaCeilings::measure_matmul(const std::vector<DType>& dtypes) {
  std::vector<DType> missing;
  for (const DType t : dtypes) {
    const bool measurable = t == DType::kBf16 || t == DType::kFp16 || t == DType::kFp32 ||
                            t == DType::kInt8 ||
                            (t == DType::kE4m3 && device_.info().compute_capability >= 89);
    const bool known = std::find(matmul_tried_.begin(), matmul_tried_.end(), t) != matmul_tried_.end();
    if (measurable && !known) {
      missing.push_back(t);
      matmul_tried_.push_back(t);
    }
  }
  if (missing.empty()) return;
  std::string why_not;
  const std::unique_ptr<Cublas> cublas = Cublas::load(stream_, why_not);
  matmul_note_ = cublas != nullptr
                     ? "matrix product: cuBLAS, best algorithm and single launch of 4096^3 and 8192^3 "
                       "(fp32: 4096^3, no tensor cores)"
                     : "matrix product: own loop of mma.sync (fp32: FMA), because " + why_not;
  if (cublas == nullptr && device_.info().compute_capability >= 90) {
    matmul_note_ += "; what warp groups reach on this GPU is more";
  }
  for (const DType t : missing) {
    if (cublas == nullptr && dtype_size(t) == 1)
      continue;  // %SOL then counts such products by the 16-bit rate
    try {
      double best = 0;
      if (cublas == nullptr) {
        const double flop = mma_flop(device_.info().multiprocessors, t);
        best = flop * 1e-6 /
               least_us(
                   timer_,
                   [&] {
                     mma_cuda(t, reinterpret_cast<float*>(sink_), device_.info().multiprocessors, stream_);
                   },
                   CacheMode::kHot, 10);
      } else {
        // Short bursts on a cool chip, and long ones. Which is faster depends on the power limit.
        for (const int64_t n : {4096, 8192}) {
          if (n == 4096 || t != DType::kFp32) best = std::max(best, cublas->matmul_tflops(timer_, t, n));
        }
      }
      ceilings_.matmul.push_back({t, best});
    } catch (const DeviceError& error) {
      if (error.lost) throw;
      matmul_note_ += std::string("; ") + dtype_name(t) + " failed: " + error.what();
    }
  }
}

}  // namespace attnbench
