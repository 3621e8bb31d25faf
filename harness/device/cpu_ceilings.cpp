#include "harness/device/cpu_ceilings.h"

#include <omp.h>
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <Eigen/Core>
#include <algorithm>
#include <cstring>
#include <ctime>
#include <memory>
#include <vector>

#include "harness/values/values.h"

namespace attnbench {
namespace {

/// The shortest time of several runs of `work`, in seconds: three, then more until a budget is spent. A ceiling is what the machine can do, so the least disturbed run counts.
template <class Work>
double best_seconds(TimeClock clock, Work work) {
  constexpr int kLeastRuns = 3, kMostRuns = 100;
  constexpr double kBudgetUs = 2e5;
  double best = 1e36;
  const double start = us_by(TimeClock::kWall);
  for (int i = 0; i < kLeastRuns || (i < kMostRuns && us_by(TimeClock::kWall) - start < kBudgetUs); ++i)
    best = std::min(best, us_of(clock, work));
  return 1e-6 * best;
}

/// Part `t` of `threads` of 0..n. Cuts are at multiples of 512 words, so no two threads share a page.
struct Part {
  int64_t begin, end;
};
Part part_of(int64_t n, int t, int threads) {
  const int64_t pages = (n + 511) / 512;
  return {std::min(n, pages * t / threads * 512), std::min(n, pages * (t + 1) / threads * 512)};
}

double matmul_tflops(int threads, int n, TimeClock clock) {
  // One product per thread on its own blocks. At 512^3 the packing costs little, and 3 MiB stay near the
  // core.
  const int repeats = 2 * 512 / n;
  using Matrix = Eigen::MatrixXf;
  std::vector<Matrix> a(static_cast<std::size_t>(threads)), b(a.size()), c(a.size());
  int team = 1;  // the number of threads that OpenMP really gives
#pragma omp parallel num_threads(threads)
  {
#pragma omp single
    team = omp_get_num_threads();
    const auto t = static_cast<std::size_t>(omp_get_thread_num());
    const auto seed = static_cast<uint32_t>(t);
    a[t].resize(n, n);
    b[t].resize(n, n);
    c[t].setZero(n, n);
    for (uint32_t col = 0; col < static_cast<uint32_t>(n); ++col) {
      value_row({}, Tensor::kQ, seed, col, 0, static_cast<uint32_t>(n), a[t].col(col).data());
      value_row({}, Tensor::kK, seed, col, 0, static_cast<uint32_t>(n), b[t].col(col).data());
    }
  }
  const double s = best_seconds(clock, [&] {
#pragma omp parallel num_threads(threads)
    {
      omp_set_num_threads(1);  // for this thread only: Eigen must not start a team inside this one
      const auto t = static_cast<std::size_t>(omp_get_thread_num());
      for (int i = 0; i < repeats; ++i) c[t].noalias() = a[t] * b[t];
    }
  });
  return 2.0 * n * n * n * repeats * team / s * 1e-12;
}

volatile uint64_t g_sink;  // keeps the reads from being optimised away

}  // namespace

double us_by(TimeClock clock) {
  timespec t{};
  clock_gettime(clock == TimeClock::kCpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return 1e6 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_nsec);
}

uint64_t read_all(const uint64_t* data, int64_t words, int threads) {
  uint64_t sum = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
  {
    const Part part = part_of(words, omp_get_thread_num(), omp_get_num_threads());
    for (int64_t i = part.begin; i < part.end; ++i) sum += data[i];
  }
  return sum;
}

#ifdef __x86_64__
bool can_evict() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & (1u << 23)) != 0;
}

__attribute__((target("clflushopt"))) static void evict_part(char* data, int64_t bytes) {
  constexpr int64_t kLine = 64;
  for (int64_t i = 0; i < bytes; i += kLine) _mm_clflushopt(data + i);
  if (bytes > 0) _mm_clflushopt(data + bytes - 1);
  _mm_sfence();
}
#else
bool can_evict() { return false; }
static void evict_part(char*, int64_t) {}
#endif

void evict(const void* data, int64_t bytes, int threads) {
  char* begin = static_cast<char*>(const_cast<void*>(data));
  constexpr int64_t kPart = kMiB;
#pragma omp parallel for num_threads(threads) if (bytes > kPart)
  for (int64_t at = 0; at < bytes; at += kPart) evict_part(begin + at, std::min(kPart, bytes - at));
}

void turn_cores(int threads) {
  uint64_t sum = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
  {
    auto x = static_cast<uint64_t>(omp_get_thread_num());
    for (int i = 0; i < 20000; ++i) {
      x = x * 6364136223846793005u + 1442695040888963407u;
      asm volatile("" : "+r"(x));  // each step waits for the one before, whatever the compiler does
    }
    sum += x;
  }
  g_sink = sum;
}

void hand_over(int threads) {
#pragma omp parallel num_threads(threads)
  for (int i = 0; i < 16; ++i) {
#pragma omp barrier
  }
}

int64_t cpu_flush_bytes(int64_t cache_bytes, int64_t free_bytes) {
  return std::min({2 * cache_bytes, 256 * kMiB, free_bytes / 8});
}

CpuRateSizes cpu_rate_sizes(int threads, int64_t cache_bytes, int64_t free_bytes) {
  int64_t bytes = std::clamp(4 * cache_bytes, 128 * kMiB, std::max(1024 * kMiB, 2 * cache_bytes));
  bytes = std::min(bytes, free_bytes / 2) / 16 * 16;
  int product = 512;
  // Three matrices of each thread, and two that Eigen packs.
  while (product > 64 && int64_t{5} * 4 * product * product * threads > free_bytes / 2) product /= 2;
  return {bytes < 2 * cache_bytes ? 0 : bytes, product};
}

CpuRates measure_cpu_rates(int threads, const CpuRateSizes& sizes, TimeClock clock) {
  CpuRates rates{};
  if (const int64_t bytes = sizes.buffer_bytes; bytes > 0) {
    const int64_t words = bytes / 8;
    // Not initialised here, so that the thread that reads a page is the first to touch it.
    const std::unique_ptr<uint64_t[]> buffer(new uint64_t[static_cast<std::size_t>(words)]);
#pragma omp parallel num_threads(threads)
    {
      const Part part = part_of(words, omp_get_thread_num(), omp_get_num_threads());
      for (int64_t i = part.begin; i < part.end; ++i) buffer[i] = static_cast<uint64_t>(i);
    }
    rates.read_gbs = static_cast<double>(bytes) * 1e-9 /
                     best_seconds(clock, [&] { g_sink = read_all(buffer.get(), words, threads); });

    const int64_t half = words / 2;
    rates.copy_gbs = static_cast<double>(bytes) * 1e-9 / best_seconds(clock, [&] {
#pragma omp parallel num_threads(threads)
                       {
                         const Part part = part_of(half, omp_get_thread_num(), omp_get_num_threads());
                         std::memcpy(buffer.get() + half + part.begin, buffer.get() + part.begin,
                                     static_cast<std::size_t>(part.end - part.begin) * 8);
                       }
                     });
  }
  rates.fp32_tflops = matmul_tflops(threads, sizes.product, clock);
  return rates;
}

}  // namespace attnbench
