#include "harness/launch/python.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "harness/launch/description.h"
#include "harness/launch/last_words.h"
#include "harness/launch/opening_child.h"
#include "harness/ops/op.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

/// A file that takes longer to load is taken for one that hangs. Importing a large library from a slow disk
/// takes a minute.
constexpr double kImportSeconds = 120;
/// A file of the package's folder, the peers' folder and the library, seen from the program's folder: in a build, and installed.
/// An installed program may lie beside an interpreter, whose name is that of the folder.
constexpr const char* kPackageFiles[] = {"python/__main__.py", "../lib/attnbench/python/__main__.py"};
constexpr const char* kPeerFolders[] = {"peers", "../lib/attnbench/peers"};
constexpr const char* kLibraries[] = {"libattnbench.so", "../lib/attnbench/libattnbench.so"};

std::optional<PythonHost> g_host;
std::set<const Kernel*> g_kernels;  ///< of files that this process has loaded
std::string g_program;

std::array<Numerics, kMostKernels> g_numerics;
std::size_t g_num_numerics = 0;

using NumericsFunction = Numerics (*)(const OpParams*);

Numerics numerics_of(Numerics n, const OpParams& op) {
  if (traits_of(op.op).gradients) {
    for (DType* t : {&n.p_type, &n.head_grad_type})
      if (*t == kTypeOfV) *t = op.attention_backward.dtype;
    return n;
  }
  if (!traits_of(op.op).forward()) return n;
  const AttentionParams& p = op.attention;
  const DType base = p.features & kBf16 ? DType::kBf16 : p.features & kFp16 ? DType::kFp16 : DType::kFp32;
  if (base != DType::kFp32) n.input_roundoff = 0;
  if (n.p_type != kTypeOfV && n.p_type != kTypeOfQ) return n;
  const DType like = n.p_type == kTypeOfV ? p.dtype_v : p.dtype_q;
  n.p_type = like == DType::kInt8 ? base : like;
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

void note_python_kernel(const Kernel& kernel) { g_kernels.insert(&kernel); }

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

LoadedPlugin describe_python_plugin(const std::string& file, const std::string& python,
                                    std::optional<double> limit_s) {
  const std::string path = checked_plugin_file(file), interpreter = python_file(python),
                    package = package_folder();
  const auto open = [&](int answer) {
    fcntl(answer, F_SETFD, 0);
    const std::string descriptor = std::to_string(answer);
    execl(interpreter.c_str(), interpreter.c_str(), package.c_str(), "describe", path.c_str(),
          descriptor.c_str(), static_cast<char*>(nullptr));
    write_answer(
        answer,
        description_of(PluginError(fmt::format("{} cannot be run: {}", interpreter, std::strerror(errno)))));
  };
  LoadedPlugin plugin =
      described_by_child({path, "its top level in " + interpreter, limit_s.value_or(kImportSeconds), open});
  if (plugin.kernels.empty()) {
    throw PluginError(
        "it has no kernel: no function at its top level with @attnbench.attention, .attention_backward, .kv_append or "
        ".merge_states");
  }
  return plugin;
}

}  // namespace attnbench
