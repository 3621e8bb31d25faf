#include "harness/device/cpu_info.h"

#include <omp.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <thread>

namespace attnbench {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!file || !std::getline(file, line)) return std::nullopt;
  return line;
}

/// "32768K", "32M", "1024" to bytes; 0 if it is not a number.
int64_t size_of(const std::string& text) {
  char* end = nullptr;
  const long long n = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || n < 0) return 0;
  const int64_t unit = *end == 'K' ? 1 << 10 : *end == 'M' ? 1 << 20 : *end == 'G' ? 1 << 30 : 1;
  return n * unit;
}

/// The value of "key   123 kB" in a file such as /proc/meminfo, in the unit of the file.
std::optional<int64_t> keyed_number(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  while (file >> word) {
    int64_t n = 0;
    if (word == key && file >> n) return n;
    file.clear();
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

/// Sum over the distinct L3 caches of the processors in this process's affinity mask; 0 if /sys lists none.
int64_t l3_from_sysfs() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return 0;
  std::set<std::string> seen;  // the list of processors that share a cache identifies it
  int64_t total = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &mask)) continue;
    const std::string dir = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index3/";
    const auto shared = first_line(dir + "shared_cpu_list");
    const auto size = first_line(dir + "size");
    if (shared && size && seen.insert(*shared).second) total += size_of(*size);
  }
  return total;
}

struct CgroupMemory {
  int64_t limit = kNoLimit;
  int64_t used = 0;  ///< without file pages that the kernel can drop
};

/// Limit and use under cgroup v2 or v1, as seen from inside a container.
CgroupMemory cgroup_memory() {
  CgroupMemory memory;
  for (const auto& [limit, usage, stat, inactive] :
       {std::array<const char*, 4>{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current",
                                   "/sys/fs/cgroup/memory.stat", "inactive_file"},
        std::array<const char*, 4>{"/sys/fs/cgroup/memory/memory.limit_in_bytes",
                                   "/sys/fs/cgroup/memory/memory.usage_in_bytes",
                                   "/sys/fs/cgroup/memory/memory.stat", "total_inactive_file"}}) {
    const auto text = first_line(limit);
    const int64_t bytes = text ? size_of(*text) : 0;  // "max" is not a number: no limit
    if (bytes <= 0) continue;
    memory.limit = bytes;
    memory.used = std::max<int64_t>(
        0, size_of(first_line(usage).value_or("0")) - keyed_number(stat, inactive).value_or(0));
    break;
  }
  return memory;
}

/// Time that the processors of this process have spent on anything since the system started, in clock ticks:
/// user, nice, system, irq, softirq and steal of the "cpuN" lines of /proc/stat.
double busy_ticks() {
  cpu_set_t mine;
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) return 0;
  std::ifstream stat("/proc/stat");
  double sum = 0;
  for (std::string line; std::getline(stat, line);) {
    int cpu = 0;
    double user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, softirq = 0, steal = 0;
    const int read = std::sscanf(line.c_str(), "cpu%d %lf %lf %lf %lf %lf %lf %lf %lf", &cpu, &user, &nice,
                                 &system, &idle, &wait, &irq, &softirq, &steal);
    if (read == 9 && cpu >= 0 && cpu < CPU_SETSIZE && CPU_ISSET(cpu, &mine))
      sum += user + nice + system + irq + softirq + steal;
  }
  return sum;
}

}  // namespace

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const auto at = line.find_first_not_of(" \t", line.find(':') + 1);
    if (at != std::string::npos) return line.substr(at);
  }
  utsname name{};
  return uname(&name) == 0 ? std::string(name.machine) + " processor" : "unknown processor";
}

int64_t cpu_cache_bytes() {
  if (const int64_t bytes = l3_from_sysfs(); bytes > 0) return bytes;
#if defined(_SC_LEVEL3_CACHE_SIZE)
  if (const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE); bytes > 0) return bytes;
#endif
  return int64_t{32} << 20;
}

int64_t cpu_memory_bytes() {
  const int64_t physical = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return std::min(physical, cgroup_memory().limit);
}

int64_t cpu_free_memory() {
  int64_t available = 0;
  if (const auto kib = keyed_number("/proc/meminfo", "MemAvailable:")) {
    available = *kib * 1024;
  } else {
#if defined(_SC_AVPHYS_PAGES)
    available = static_cast<int64_t>(sysconf(_SC_AVPHYS_PAGES)) * sysconf(_SC_PAGESIZE);
#else
    available = cpu_memory_bytes() / 2;
#endif
  }
  const CgroupMemory group = cgroup_memory();
  return std::max<int64_t>(
      0, std::min(available, group.limit == kNoLimit ? kNoLimit : group.limit - group.used));
}

int cpu_threads() { return std::max(1, omp_get_num_procs()); }

double cpu_busy_threads(double seconds) {
  const double before = busy_ticks();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK)) * seconds;
  return std::max(0.0, (busy_ticks() - before) / ticks);
}

}  // namespace attnbench
