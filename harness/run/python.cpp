#include "harness/run/python.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "harness/run/last_words.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

/// A file that takes longer to load is taken for one that hangs. Importing a large library from a slow disk
/// takes a minute.
constexpr int kImportSeconds = 120;
/// A file of the package's folder, the peers' folder and the library, seen from the program's folder: in a build, and installed.
/// An installed program may lie beside an interpreter, whose name is that of the folder.
constexpr const char* kPackageFiles[] = {"python/__main__.py", "../lib/attnbench/python/__main__.py"};
constexpr const char* kPeerFolders[] = {"peers", "../lib/attnbench/peers"};
constexpr const char* kLibraries[] = {"libattnbench.so", "../lib/attnbench/libattnbench.so"};

std::optional<PythonHost> g_host;
std::set<const Kernel*> g_kernels;  ///< of files that this process has loaded
std::string g_program;

/// A described kernel, and the texts that it refers to.
struct Described {
  std::string name, summary, shapes;
  Kernel kernel;
};

KernelStatus takes_all(const OpParams*, const LaunchContext*, KernelMessage*) { return KernelStatus::kOk; }
Numerics plain_numerics(const OpParams*) { return {DType::kFp32, DType::kFp32, 0}; }
KernelStatus not_here(const OpParams*, const LaunchContext*, KernelMessage* message) {
  return refuse(message, KernelStatus::kUnsupported, "a kernel in Python runs in a worker process only");
}

std::array<Numerics, kMostKernels> g_numerics;
std::size_t g_num_numerics = 0;

using NumericsFunction = Numerics (*)(const OpParams*);

Numerics numerics_of(Numerics n, const OpParams& op) {
  if (op.op == Op::kAttentionBackward) {
    for (DType* t : {&n.p_type, &n.head_grad_type})
      if (*t == kTypeOfV) *t = op.attention_backward.dtype;
    return n;
  }
  if (n.p_type != kTypeOfV) return n;
  const AttentionParams& p = op.attention;
  const DType base = p.features & kBf16 ? DType::kBf16 : p.features & kFp16 ? DType::kFp16 : DType::kFp32;
  n.p_type = p.dtype_v == DType::kInt8 ? base : p.dtype_v;
  return n;
}

template <std::size_t... I>
std::array<NumericsFunction, sizeof...(I)> numerics_functions(std::index_sequence<I...>) {
  return {[](const OpParams* op) { return numerics_of(g_numerics[I], *op); }...};
}

std::string first_existing(const fs::path& folder, std::span<const char* const> names, const char* what) {
  std::error_code ec;
  for (const char* name : names) {
    const fs::path file = folder / name;
    if (fs::exists(file, ec)) return file.lexically_normal().string();
  }
  throw PluginError(fmt::format(
      "{} is not beside the program: {} was looked for; in a build folder, 'cmake --build {}' makes it", what,
      (folder / names[0]).string(), folder.lexically_normal().string()));
}

std::string package_folder() {
  const fs::path folder = fs::path(program_file()).parent_path();
  return fs::path(first_existing(folder, kPackageFiles, "the Python package")).parent_path().string();
}

/// Absolute path of a program of PATH; empty if there is none.
std::string found_in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string rest = path != nullptr ? path : "";
  while (!rest.empty()) {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    std::string file = rest.substr(0, colon) + "/" + name;
    if (access(file.c_str(), X_OK) == 0) return file;
    rest.erase(0, std::min(colon + 1, rest.size()));
  }
  return "";
}

[[noreturn]] void become(const std::vector<std::string>& words, int answer) {
  std::vector<char*> argv;
  for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  fcntl(answer, F_SETFD, 0);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);  // the file prints again in each worker; stderr is shown
  }
  execv(argv[0], argv.data());
  _exit(127);
}

/// Reads until the other end is closed; false: it is not closed in time.
bool read_all(int fd, std::string& text) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(kImportSeconds);
  char buffer[1 << 14];
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd p{fd, POLLIN, 0};
    if (poll(&p, 1, static_cast<int>(left.count())) <= 0) continue;
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

/// What a process that runs these words writes to its descriptor `fd`, which stands for {} in a word.
std::string answer_of(std::vector<std::string> words) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) throw PluginError(fmt::format("no pipe: {}", std::strerror(errno)));
  for (std::string& w : words) {
    if (w == "{}") w = std::to_string(fds[1]);
  }
  const pid_t pid = fork();
  if (pid == 0) become(words, fds[1]);
  close(fds[1]);
  if (pid < 0) {
    close(fds[0]);
    throw PluginError(fmt::format("a process to load it in cannot be started: {}", std::strerror(errno)));
  }
  std::string text;
  const bool ended = read_all(fds[0], text);
  close(fds[0]);
  if (!ended) kill(pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) throw LoadCrash(fmt::format("loading it did not end within {} s", kImportSeconds));
  if (WIFSIGNALED(status)) {
    throw LoadCrash(fmt::format("loading it ended the interpreter by signal {} ({})", WTERMSIG(status),
                                strsignal(WTERMSIG(status))));
  }
  if (text.empty() && WEXITSTATUS(status) == 127) throw PluginError(words[0] + " cannot be run");
  if (text.empty()) {
    throw LoadCrash(
        fmt::format("{} ended with exit code {} while it loaded the file; what it wrote to stderr is above",
                    words[0], WEXITSTATUS(status)));
  }
  return text;
}

const Kernel* described(const nlohmann::json& j) {
  static std::deque<Described> all;  // kernels live until the process ends
  Described& d = all.emplace_back();
  d.name = j.at("name").get<std::string>();
  d.summary = j.at("summary").get<std::string>();
  d.shapes = j.at("shapes").get<std::string>();
  Kernel& k = d.kernel;
  k.abi_version = kKernelAbiVersion;
  k.flags = j.at("flags").get<uint32_t>();
  k.name = d.name.c_str();
  k.summary = d.summary.c_str();
  k.shapes = d.shapes.c_str();
  k.op = static_cast<Op>(j.at("op").get<int32_t>());
  k.device = static_cast<DeviceKind>(j.at("device").get<int32_t>());
  k.min_compute_capability = 0;
  k.features = j.at("features").get<uint64_t>();
  k.supports = takes_all;
  k.numerics = plain_numerics;
  k.workspace_bytes = nullptr;
  k.plan = nullptr;
  k.launch = not_here;
  return &k;
}

}  // namespace

void set_python_host(const PythonHost& host, const std::string& program) {
  g_host = host;
  g_program = program;
}

Numerics (*constant_numerics(const Numerics& n))(const OpParams*) {
  static const auto functions = numerics_functions(std::make_index_sequence<kMostKernels>());
  if (g_num_numerics == kMostKernels) return nullptr;
  g_numerics[g_num_numerics] = n;
  return functions[g_num_numerics++];
}

bool in_python() { return g_host.has_value(); }

bool is_python_kernel(const Kernel& kernel) { return g_kernels.contains(&kernel); }

bool is_python(const std::string& file) { return fs::path(file).extension() == ".py"; }

std::string program_file() {
  if (!g_program.empty()) return g_program;
  std::error_code ec;
  const fs::path self = fs::read_symlink("/proc/self/exe", ec);
  if (ec) throw Error("cannot find this program's own file (/proc/self/exe)", kExitFailure);
  return self.string();
}

std::string peers_folder() {
  return first_existing(fs::path(program_file()).parent_path(), kPeerFolders, "the folder of peers");
}

std::string python_file(const std::string& given) {
  if (!given.empty()) {
    std::string file = given.find('/') == std::string::npos ? found_in_path(given) : given;
    if (!file.empty() && access(file.c_str(), X_OK) == 0) return file;
    throw PluginError(fmt::format("--python {}: there is no such program", given));
  }
  if (const char* venv = std::getenv("VIRTUAL_ENV"); venv != nullptr && *venv != '\0') {
    std::string file = std::string(venv) + "/bin/python";
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  const fs::path folder =
      fs::path(program_file()).parent_path();  // bin/ of an environment that is not active?
  if (fs::exists(folder.parent_path() / "pyvenv.cfg") && access((folder / "python").c_str(), X_OK) == 0)
    return folder / "python";
  std::string file = found_in_path("python3");
  if (file.empty()) throw PluginError("no python3 in PATH; --python FILE names an interpreter");
  return file;
}

std::vector<std::string> python_command(const std::string& python, const std::vector<std::string>& argv) {
  const std::string program = program_file();
  const std::string library =
      first_existing(fs::path(program).parent_path(), kLibraries, "the library of the program");
  std::vector<std::string> words = {python, package_folder(), "host", library, program};
  words.insert(words.end(), argv.begin(), argv.end());
  return words;
}

LoadedPlugin load_python_plugin(const std::string& file) {
  LoadedPlugin plugin{checked_plugin_file(file), std::string(16, '0'), {}};
  KernelMessage message{};
  char digest[17] = {};
  const KernelCall in_hand("loading", plugin.path.c_str());
  const Plugin* table = g_host->load(plugin.path.c_str(), digest, &message);
  if (table == nullptr) throw PluginError(message.text[0] != '\0' ? message.text : "it cannot be loaded");
  plugin.digest = digest;
  plugin.kernels = checked_kernels(*table);
  g_kernels.insert(plugin.kernels.begin(), plugin.kernels.end());
  return plugin;
}

LoadedPlugin describe_python_plugin(const std::string& file, const std::string& python) {
  LoadedPlugin plugin{checked_plugin_file(file), "", {}};
  const std::string text = answer_of({python_file(python), package_folder(), "describe", plugin.path, "{}"});
  try {
    const auto answer = nlohmann::json::parse(text);
    if (answer.contains("error")) {
      const auto error = answer.at("error").get<std::string>(),
                 absent = answer.at("absent").get<std::string>();
      if (!absent.empty()) throw PluginAbsent(error, absent);
      throw PluginError(error);
    }
    plugin.digest = answer.at("digest").get<std::string>();
    for (const auto& kernel : answer.at("kernels")) plugin.kernels.push_back(described(kernel));
    for (const auto& [name, version] : answer.at("versions").items())
      plugin.versions.emplace_back(name, version.get<std::string>());
  } catch (const nlohmann::json::exception& e) {
    throw PluginError(fmt::format("its description cannot be read: {}", e.what()));
  }
  if (plugin.kernels.empty()) {
    throw PluginError(
        "it has no kernel: no function at its top level with @attnbench.attention, .attention_backward, .kv_append or "
        ".merge_states");
  }
  check_entries(plugin.kernels);
  return plugin;
}

}  // namespace attnbench
