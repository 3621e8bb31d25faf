// What the operating system reports about the processor. Each function works everywhere;
// precise values come from /proc and /sys of Linux.
#pragma once

#include <cstdint>
#include <string>

namespace attnbench {

/// "AMD EPYC 9654 96-Core Processor"; the architecture if the name is unknown.
std::string cpu_model();

/// Bytes of last-level cache that the threads of this process can use, in total. These are the L3 caches of
/// the processors that the process may run on, else what sysconf says, else 32 MiB.
int64_t cpu_cache_bytes();

/// Threads of a launch by default: the hardware threads that this process may run on, or fewer by OMP_NUM_THREADS.
int cpu_threads();

/// How many of these were kept busy by anybody during the next `seconds`, in which this process sleeps; 0
/// where the system does not say.
double cpu_busy_threads(double seconds);

}  // namespace attnbench
