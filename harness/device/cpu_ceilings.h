// The rates that the host's memory and arithmetic units reach, measured in this process.
#pragma once

#include <cstdint>

namespace attnbench {

/// Sum of the 8-byte words of a buffer, read by `threads` threads, each its own part. Reading leaves no dirty
/// lines behind, which is what a cache flush before a timed launch needs.
uint64_t read_all(const uint64_t* data, int64_t words, int threads);

/// A fixed piece of arithmetic on `threads` threads: a chain of multiplications that no compiler shortens and
/// that touches no memory, so that its time, some 20 us, tells the clock of the cores.
void turn_cores(int threads);

/// `threads` threads that do nothing but wait for each other, some times in a row: its time tells how far
/// apart the cores are. Some 5 us where they share a cache, three times that where they do not.
void hand_over(int threads);

struct CpuRates {
  double read_gbs;
  double copy_gbs;  ///< read plus written bytes
  double fp32_tflops;
  int64_t buffer_bytes;  ///< of the read test
};

/// Takes about a second. Throws std::bad_alloc where the buffers cannot be had.
CpuRates measure_cpu_rates(int threads, int64_t cache_bytes, int64_t free_bytes);

}  // namespace attnbench
