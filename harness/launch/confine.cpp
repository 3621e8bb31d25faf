#include "harness/launch/confine.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iterator>

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

/// setsid, setpgid and prctl(PR_SET_PDEATHSIG) do nothing from now on, and say that they did: libraries that start
/// helper processes call them and take a failure for an error.
bool seccomp() {
  constexpr auto kCall = static_cast<uint32_t>(offsetof(seccomp_data, nr));
  constexpr auto kFirst = static_cast<uint32_t>(offsetof(seccomp_data, args));
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offsetof(seccomp_data, arch))),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 0, 6),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kCall),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setsid, 5, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setpgid, 4, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kFirst),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_PDEATHSIG, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
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
