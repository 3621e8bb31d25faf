// Rates that the host's memory and arithmetic units reach, measured in this process.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "harness/facts/device_info.h"

namespace attnbench {

/// The time of a clock. Only differences mean something.
double us_by(TimeClock clock);
/// What `work` takes.
template <class Work>
double us_of(TimeClock clock, const Work& work) {
  const double begin = us_by(clock);
  work();
  return us_by(clock) - begin;
}

inline constexpr int64_t kMiB = int64_t{1} << 20;

/// Returns the sum of the 8-byte words of a buffer. Each of `threads` threads reads its own part. Reading
/// leaves no dirty lines, as a cache flush before a timed launch needs.
uint64_t read_all(const uint64_t* data, int64_t words, int threads);

/// True if this CPU has an instruction that takes a line out of all caches (x86: CLFLUSHOPT).
bool can_evict();
/// Takes the lines of `bytes` out of all caches, some 10 GB/s per thread. Requires can_evict().
void evict(const void* data, int64_t bytes, int threads);

/// Runs a fixed piece of arithmetic on `threads` threads: a chain of multiplications that no compiler
/// shortens and that touches no memory. Its time, about 20 us, shows the clock of the cores.
void turn_cores(int threads);

/// `threads` threads wait for each other several times in a row. The time shows how far apart the cores are:
/// about 5 us if they share a cache, three times that if not.
void hand_over(int threads);

/// Bytes to read where tensors cannot be evicted: twice the caches', at most 256 MiB and an eighth of what is free.
int64_t cpu_flush_bytes(int64_t cache_bytes, int64_t free_bytes = std::numeric_limits<int64_t>::max());

/// What is measured with. Never takes more than half of the free memory.
struct CpuRateSizes {
  int64_t buffer_bytes;  ///< of read and copy; 0: half of the free memory is less than twice the caches
  int product;           ///< n of the n^3 product of each thread
};
CpuRateSizes cpu_rate_sizes(int threads, int64_t cache_bytes, int64_t free_bytes);

struct CpuRates {
  std::optional<double> read_gbs, copy_gbs;  ///< copy: read plus written bytes. None without a buffer
  double fp32_tflops;
};

/// Takes about a second. Throws std::bad_alloc if the buffers cannot be allocated.
CpuRates measure_cpu_rates(int threads, const CpuRateSizes& sizes, TimeClock clock);

}  // namespace attnbench
