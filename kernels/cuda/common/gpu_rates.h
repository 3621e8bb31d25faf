// What a GPU can do at most, by its published clocks and widths. Kernels choose by it how they divide work.
#pragma once

#include <cstdint>

namespace attnbench::hopper {

struct GpuRates {
  double memory_bytes_per_us;  ///< peak of the memory bus
  double tensor_flop_per_us;   ///< peak of dense bf16 products at the highest clock
};

/// clock_khz and memory_khz are the highest clocks, bus_bits the width of the memory bus. A multiprocessor of
/// compute capability 9.0 does 4,096 operations of bf16 products per clock; memory moves data twice per clock.
constexpr GpuRates rates_of(int multiprocessors, double clock_khz, double memory_khz, int bus_bits) {
  return {2 * memory_khz * 1e-3 * bus_bits / 8, 4096.0 * multiprocessors * clock_khz * 1e-3};
}

}  // namespace attnbench::hopper
