// A library to preload (LD_PRELOAD), which makes a program believe that it runs on another machine:
//
//   MADE_UP_CORES=N      this many processors, all of them the process's
//   MADE_UP_MEMORY=N     bytes of physical memory, as sysconf tells them
//   MADE_UP_ROOT=FOLDER  files that describe the machine (kDescriptions) are those of this folder, or absent
//
// scripts/test_machines.sh makes such folders and runs the tests under them.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

constexpr std::string_view kDescriptions[] = {
    "/sys/devices/system/cpu/", "/sys/fs/cgroup/",      "/proc/cpuinfo", "/proc/meminfo",
    "/proc/self/cgroup",        "/proc/self/mountinfo", "/proc/stat"};

/// The number in an environment variable; 0 if it is not set.
long number(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atol(text) : 0;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

/// The file to open in place of `path`.
std::string place_of(const char* path) {
  const char* root = std::getenv("MADE_UP_ROOT");
  for (const std::string_view description : kDescriptions) {
    if (root != nullptr && std::string_view(path).starts_with(description)) return std::string(root) + path;
  }
  return path;
}

template <class Set>
bool fill(Set* set, std::size_t bytes) {
  const long cores = number("MADE_UP_CORES");
  if (cores <= 0) return false;
  CPU_ZERO_S(bytes, set);
  for (long i = 0; i < cores; ++i) CPU_SET_S(static_cast<std::size_t>(i), bytes, set);
  return true;
}

}  // namespace

extern "C" {

int sched_getaffinity(pid_t pid, std::size_t bytes, cpu_set_t* set) {
  return fill(set, bytes) ? 0 : next<decltype(sched_getaffinity)>("sched_getaffinity")(pid, bytes, set);
}
int pthread_getaffinity_np(pthread_t thread, std::size_t bytes, cpu_set_t* set) {
  static auto* const real = next<decltype(pthread_getaffinity_np)>("pthread_getaffinity_np");
  return fill(set, bytes) ? 0 : real(thread, bytes, set);
}
int get_nprocs() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }
int get_nprocs_conf() { return get_nprocs(); }

long sysconf(int name) {
  const long cores = number("MADE_UP_CORES"), memory = number("MADE_UP_MEMORY");
  if ((name == _SC_NPROCESSORS_ONLN || name == _SC_NPROCESSORS_CONF) && cores > 0) return cores;
  if ((name == _SC_PHYS_PAGES || name == _SC_AVPHYS_PAGES) && memory > 0) return memory / getpagesize();
  if (name == _SC_LEVEL3_CACHE_SIZE && std::getenv("MADE_UP_ROOT") != nullptr)
    return 0;  // as on many ARM machines
  static auto* const real = next<decltype(sysconf)>("sysconf");
  return real(name);
}

std::FILE* fopen(const char* path, const char* mode) {
  static auto* const real = next<decltype(fopen)>("fopen");
  return real(place_of(path).c_str(), mode);
}
std::FILE* fopen64(const char* path, const char* mode) { return fopen(path, mode); }

int open(const char* path, int flags, ...) {
  static auto* const real = next<decltype(open)>("open");
  std::va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return real(place_of(path).c_str(), flags, mode);
}
int open64(const char* path, int flags, ...) __attribute__((alias("open")));

}  // extern "C"
