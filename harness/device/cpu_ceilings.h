// Rates that the host's memory and arithmetic units reach, measured in this process.
#pragma once

#include <cstdint>

namespace attnbench {

/// Returns the sum of the 8-byte words of a buffer. Each of `threads` threads reads its own part. Reading
/// leaves no dirty lines, as a cache flush before a timed launch needs.
uint64_t read_all(const uint64_t* data, int64_t words, int threads);

/// Runs a fixed piece of arithmetic on `threads` threads: a chain of multiplications that no compiler
/// shortens and that touches no memory. Its time, about 20 us, shows the clock of the cores.
void turn_cores(int threads);

/// `threads` threads wait for each other several times in a row. The time shows how far apart the cores are:
/// about 5 us if they share a cache, three times that if not.
void hand_over(int threads);

struct CpuRates {
  double read_gbs;
  double copy_gbs;  ///< read plus written bytes
  double fp32_tflops;
  int64_t buffer_bytes;  ///< size of the buffer of the read test
};

/// Takes about a second. Throws std::bad_alloc if the buffers cannot be allocated.
CpuRates measure_cpu_rates(int threads, int64_t cache_bytes, int64_t free_bytes);

}  // namespace attnbench
