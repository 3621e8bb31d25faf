#include "harness/cli/profiler_tool.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <sstream>

#include "harness/results/text.h"

extern char** environ;

namespace attnbench::cli {
namespace {

namespace fs = std::filesystem;

bool runnable(const fs::path& path) {
  std::error_code ec;
  return fs::is_regular_file(path, ec) && access(path.c_str(), X_OK) == 0;
}

/// Folders of versions, the newest first. Their names are dates ("2025.3.1") and sort as text.
std::vector<fs::path> versions(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(folder, ec)) out.push_back(entry.path());
  std::sort(out.rbegin(), out.rend());
  return out;
}

int spawn(const std::vector<std::string>& args, posix_spawn_file_actions_t* actions, pid_t& pid) {
  std::vector<char*> argv;
  for (const std::string& a : args) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  return posix_spawnp(&pid, argv[0], actions, nullptr, argv.data(), environ);
}

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

std::optional<std::string> find_profiler(const std::string& tool) {
  std::istringstream folders(std::getenv("PATH") != nullptr ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty() && runnable(fs::path(folder) / tool)) return tool;  // PATH: the shell finds it too
  }
  std::vector<fs::path> places;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* home = std::getenv(variable)) places.push_back(fs::path(home) / "bin");
  }
  places.push_back("/usr/local/cuda/bin");
  for (const char* product : {"/opt/nvidia/nsight-compute", "/opt/nvidia/nsight-systems"}) {
    for (const fs::path& version : versions(product)) {
      places.push_back(version);
      places.push_back(version / "bin");
    }
  }
  for (const fs::path& place : places) {
    if (runnable(place / tool)) return (place / tool).string();
  }
  return std::nullopt;
}

std::vector<std::string> profiler_command(const ProfilerCall& call, const std::vector<std::string>& program) {
  std::vector<std::string> args;
  if (call.tool == "ncu") {
    args = {call.path,           "--profile-from-start", "off",  "--nvtx", "--nvtx-include",
            "attnbench@launch]", "--clock-control",      "none", "--set",  call.sections};
    if (!call.kernels.empty()) args.insert(args.end(), {"--kernel-name", "regex:" + call.kernels});
    args.insert(args.end(), {"-f", "-o", call.report.string()});
  } else {
    args = {call.path,
            "profile",
            "--capture-range=cudaProfilerApi",
            "--capture-range-end=stop",
            "--trace=cuda,nvtx",
            "--force-overwrite=true",
            "-o",
            call.report.string()};
  }
  args.insert(args.end(), program.begin(), program.end());
  return args;
}

fs::path profiler_report(const ProfilerCall& call) {
  return call.report.string() + (call.tool == "ncu" ? ".ncu-rep" : ".nsys-rep");
}

std::string shell_line(const std::vector<std::string>& args) {
  std::string line;
  for (const std::string& a : args) line += (line.empty() ? "" : " ") + shell_word(a);
  return line;
}

int run_command(const std::vector<std::string>& args) {
  pid_t pid = 0;
  return spawn(args, nullptr, pid) == 0 ? wait_for(pid) : 127;
}

int run_command(const std::vector<std::string>& args, std::string& out) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return 127;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t pid = 0;
  const int failed = spawn(args, &actions, pid);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  char bytes[65536];
  for (ssize_t n;
       failed == 0 && ((n = read(ends[0], bytes, sizeof(bytes))) > 0 || (n < 0 && errno == EINTR));) {
    if (n > 0) out.append(bytes, static_cast<std::size_t>(n));
  }
  close(ends[0]);
  return failed == 0 ? wait_for(pid) : 127;
}

}  // namespace attnbench::cli
