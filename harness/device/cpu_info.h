// What the operating system says about the processor and its memory. Each function has an answer everywhere;
// the precise ones come from Linux's /proc and /sys.
#pragma once

#include <cstdint>
#include <string>

namespace attnbench {

/// "AMD EPYC 9654 96-Core Processor"; the architecture where the name is not to be had.
std::string cpu_model();

/// Bytes of last-level cache that this process' threads can use, all instances together: the L3 caches of the
/// processors it may run on, else what sysconf says, else 32 MiB.
int64_t cpu_cache_bytes();

/// Bytes of physical memory, or of the memory limit of this process' cgroup where that is less.
int64_t cpu_memory_bytes();

/// Bytes that can be had without swapping: MemAvailable of /proc/meminfo and what is left under the cgroup's
/// limit, whichever is less.
int64_t cpu_free_memory();

/// Hardware threads that this process may run on.
int cpu_threads();

/// How many of these were kept busy by anybody during the next `seconds`, in which this process sleeps; 0
/// where the system does not say.
double cpu_busy_threads(double seconds);

}  // namespace attnbench
