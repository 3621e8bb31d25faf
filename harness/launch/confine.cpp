#include "harness/launch/confine.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <initializer_list>
#include <vector>

#include "harness/launch/runner.h"

namespace attnbench {
namespace {

/// struct landlock_ruleset_attr as of ABI 6; headers may be older.
struct Ruleset {
  uint64_t files = 0, network = 0, scoped = 0;
};
constexpr uint64_t kScopeSignal = 1 << 1;
constexpr int kAbiOfSignals = 6;

/// The rights to change files that a version of Landlock knows.
uint64_t writing(long abi) {
  uint64_t rights = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                    LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                    LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                    LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
                    LANDLOCK_ACCESS_FS_MAKE_SYM;
  if (abi >= 2) rights |= uint64_t{1} << 13;  // REFER
  if (abi >= 3) rights |= uint64_t{1} << 14;  // TRUNCATE
  return rights;
}

/// 0: there is no Landlock; else its version.
long landlock(const std::vector<std::string>& folders) {
  const long abi = syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi < 1) return 0;
  Ruleset ruleset{writing(abi), 0, abi >= kAbiOfSignals ? kScopeSignal : 0};
  const std::size_t size = abi >= kAbiOfSignals ? sizeof ruleset : sizeof ruleset.files;
  const int rules = static_cast<int>(syscall(SYS_landlock_create_ruleset, &ruleset, size, 0));
  if (rules < 0) return 0;
  for (const std::string& folder : folders) {
    landlock_path_beneath_attr rule{};
    rule.allowed_access = ruleset.files;
    rule.parent_fd = open(folder.c_str(), O_PATH | O_CLOEXEC);
    if (rule.parent_fd < 0) continue;
    syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
    close(rule.parent_fd);
  }
  const bool done = syscall(SYS_landlock_restrict_self, rules, 0) == 0;
  close(rules);
  return done ? abi : 0;
}

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#endif

/// The calls that a kernel's process may not make.
class CallFilter {
 public:
  /// It does nothing from now on and says that it did: libraries take a failure for an error.
  void ignore(int call) {
    add({BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1), refused(0)});
  }
  /// The same if an argument is `value`.
  void ignore(int call, int argument, uint32_t value) {
    add({BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 4), argument_of(argument),
         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1), refused(0), kCall});
  }
  /// It fails unless its first argument is one of two values.
  void allow_two(int call, uint32_t one, uint32_t other) {
    add({BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 5), argument_of(0),
         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, one, 2, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, other, 1, 0),
         refused(ENOSYS), kCall});
  }
  bool install() {
    add({BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)});
    const sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
  }

 private:
  static constexpr sock_filter kCall =
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offsetof(seccomp_data, nr)));
  static constexpr sock_filter refused(uint32_t error) {
    return BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error);
  }
  static constexpr sock_filter argument_of(int i) {
    return BPF_STMT(
        BPF_LD | BPF_W | BPF_ABS,
        static_cast<uint32_t>(offsetof(seccomp_data, args) + static_cast<std::size_t>(i) * sizeof(uint64_t)));
  }
  void add(std::initializer_list<sock_filter> more) { code_.insert(code_.end(), more); }

  // Calls of other architectures (int 0x80) and of x32 have other numbers; all of them fail.
  std::vector<sock_filter> code_ = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offsetof(seccomp_data, arch))),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),
      refused(ENOSYS),
      kCall,
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1),
      refused(ENOSYS)};
};

bool seccomp() {
  CallFilter filter;
  // Its processes stay in its group, which is stopped as a whole.
  filter.ignore(SYS_setsid);
  filter.ignore(SYS_setpgid);
  // SIGCONT continues a stopped process, whoever sends it. Timers of processor time do not run meanwhile.
  filter.ignore(SYS_prctl, 0, PR_SET_PDEATHSIG);
  filter.ignore(SYS_fcntl, 1, F_SETSIG);
  filter.allow_two(SYS_timer_create, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID);
  // Other work beside it is to be seen in its times.
  filter.ignore(SYS_sched_setscheduler);
  filter.ignore(SYS_sched_setattr);
  return filter.install();
}

}  // namespace

std::string confine(const std::vector<std::string>& folders) {
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  const long abi = landlock(folders);
  std::string text = abi == 0 ? "no landlock" : abi < kAbiOfSignals ? "landlock without signals" : "landlock";
  return text + (seccomp() ? ", seccomp" : ", no seccomp");
}

std::vector<std::string> working_folders() {
  std::error_code ec;
  std::vector<std::string> folders = {"/dev", std::filesystem::temp_directory_path(ec).string()};
  const auto add = [&](const char* name, const std::string& below) {
    if (const char* folder = std::getenv(name)) folders.push_back(folder + below);
  };
  for (const auto& [name, folder] : kCaches) {
    add(name, "");
    add("HOME", folder);
  }
  return folders;
}

}  // namespace attnbench
