#include "harness/device/cpu_info.h"

#include <omp.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <thread>

namespace attnbench {
namespace {

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

int cpu_threads() { return std::clamp(omp_get_max_threads(), 1, std::max(1, omp_get_num_procs())); }

double cpu_busy_threads(double seconds) {
  const double before = busy_ticks();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK)) * seconds;
  return std::max(0.0, (busy_ticks() - before) / ticks);
}

}  // namespace attnbench
