#include "harness/launch/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cfenv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string_view>

#include "harness/config/near_file.h"
#include "harness/digest.h"
#include "harness/launch/description.h"
#include "harness/launch/last_words.h"
#include "harness/launch/library_file.h"
#include "harness/launch/opening_child.h"
#include "harness/ops/op.h"
#include "harness/plain_file.h"

namespace attnbench {
namespace {

constexpr const char* kStructs[kPluginStructs] = {
    "Kernel",         "OpParams",          "AttentionParams",
    "KvAppendParams", "MergeStatesParams", "AttentionBackwardParams",
    "LaunchContext",  "KernelMessage",     "Numerics",
    "KvMoveParams"};
constexpr const char* kCompileAgain = "compile it again with -I $(attnbench --include-dir)";
/// A library that takes longer to open is taken for one that hangs.
constexpr double kLoadSeconds = 60;

/// Digest of the file's 8-byte words and its length. Words, not bytes, because libraries with GPU code have
/// hundreds of megabytes.
std::string digest_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  Digest digest;
  uint64_t length = 0;
  std::vector<char> bytes(1 << 20);
  while (in.read(bytes.data(), std::ssize(bytes)) || in.gcount() > 0) {
    const auto n = static_cast<std::size_t>(in.gcount());
    std::fill(bytes.begin() + in.gcount(), bytes.end(), '\0');
    for (std::size_t i = 0; i < n; i += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data() + i, sizeof word);
      digest.add_word(word);
    }
    length += n;
  }
  if (!in.eof()) throw PluginError(fmt::format("it cannot be read: {}", std::strerror(errno)));
  digest.add_word(length);
  return fmt::format("{:016x}", digest.value());
}

/// The loader's error message, and what to do.
std::string why_not_opened(const std::string& path) {
  const char* error = dlerror();
  std::string text = error != nullptr ? error : "the system does not say why";
  if (text.starts_with(path + ": ")) text.erase(0, path.size() + 2);
  const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
  const char* mend = "";
  if (says("undefined symbol")) {
    mend = "; add the source or the library that defines it to the line that links the plug-in";
  } else if (says("cannot dynamically load")) {
    mend = "; a shared library is required, made by g++ or nvcc with -fPIC and -shared";
  } else if (says("cannot open shared object file")) {
    mend = "; name its folder in LD_LIBRARY_PATH, or by -Wl,-rpath when the plug-in is linked";
  }
  return "it cannot be loaded: " + text + mend;
}

bool is_snake_case(std::string_view name) {
  return !name.empty() && name[0] >= 'a' && name[0] <= 'z' &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
}

bool is_op(Op op) { return std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps); }
bool is_device(DeviceKind d) { return d == DeviceKind::kCpu || d == DeviceKind::kCuda; }

void check_headers(const Plugin& table) {
  if (table.magic != kPluginMagic) {
    throw PluginError(
        "its attnbench_plugin is no table of kernels; ATTNBENCH_PLUGIN(...) of "
        "kernels/contract/plugin.h makes one");
  }
  if (table.abi_version != kKernelAbiVersion) {
    throw PluginError(fmt::format("it was compiled for kernel ABI {}, and this program has {}; {}",
                                  table.abi_version, kKernelAbiVersion, kCompileAgain));
  }
  static const Kernel* const none[] = {nullptr};
  const Plugin ours = plugin_of(none);
  for (int i = 0; i < kPluginStructs; ++i) {
    if (table.struct_bytes[i] == ours.struct_bytes[i]) continue;
    throw PluginError(fmt::format(
        "it was compiled with other headers of kernel ABI {}: its {} has {} bytes, that of this program {}; "
        "{}",
        kKernelAbiVersion, kStructs[i], table.struct_bytes[i], ours.struct_bytes[i], kCompileAgain));
  }
}

constexpr uint32_t kAttendingFlags =
    kHostLengths | kServesDecode | kServesPrefill | kServesAppend | kNoIdleSequences | kNoShortKv;

/// What is missing or wrong in an entry; empty if it is complete.
std::string missing_in(const Kernel& k) {
  if (k.name == nullptr) return "has no name";
  if (!is_snake_case(k.name)) {
    return "has a name that is not snake_case: a small letter first, then small letters, digits and _";
  }
  if (k.abi_version != kKernelAbiVersion) {
    return fmt::format("says abi_version {}; {} (kKernelAbiVersion) is required", k.abi_version,
                       kKernelAbiVersion);
  }
  if (!is_op(k.op)) return fmt::format("has op {}, which is none", static_cast<int32_t>(k.op));
  if (!is_device(k.device))
    return fmt::format("has device {}, which is none", static_cast<int32_t>(k.device));
  if (!traits_of(k.op).forward() && (k.flags & (kReturnsOutputs | kNoLse | kInfEmptyLse)) != 0)
    return "has a flag that only kernels of attention may have: kReturnsOutputs, kNoLse or kInfEmptyLse";
  const OpTraits& op = traits_of(k.op);
  if (!op.attends && (k.flags & kAttendingFlags) != 0)
    return "has a flag that only kernels of attention and attention_backward may have: kHostLengths, kServesDecode, "
           "kServesPrefill, kServesAppend, kNoIdleSequences or kNoShortKv";
  if (!op.attends && !op.merges && (k.flags & (kFinitePadding | kNoEmptyRows | kDenseInputs)) != 0)
    return "has a flag that kernels of kv_append and kv_move may not have: kFinitePadding, kNoEmptyRows or kDenseInputs";
  if (k.features == 0) return "has no features: no case could be given to it";
  const char* field = k.summary == nullptr    ? "summary"
                      : k.shapes == nullptr   ? "shapes"
                      : k.supports == nullptr ? "supports"
                      : k.numerics == nullptr ? "numerics"
                      : k.launch == nullptr   ? "launch"
                                              : nullptr;
  return field == nullptr ? ""
                          : fmt::format("lacks {}; only workspace_bytes, plan and tile may be null", field);
}

/// `file` must have a slash: otherwise the loader would search for it.
std::vector<const Kernel*> open_kernels(const std::string& file) {
  // RTLD_LOCAL, because two plug-ins may have functions of the same name.
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw PluginError(why_not_opened(file));
  const void* table = dlsym(library, "attnbench_plugin");
  if (table == nullptr) {
    throw PluginError(
        "it exports no attnbench_plugin; one of its sources must say "
        "ATTNBENCH_PLUGIN(&mine::kAttention); (kernels/contract/plugin.h)");
  }
  return checked_kernels(*static_cast<const Plugin*>(table));
}

/// Whether float arithmetic of this thread, and of those that it starts, gives and takes subnormal numbers.
bool keeps_subnormals() {
  const volatile float least = std::numeric_limits<float>::min();
  const volatile float half = least / 2;
  return half + half == least;
}

/// Opens the file in this process.
LoadedPlugin opened(const std::string& file, const std::string& digest) {
  std::fenv_t before;
  const bool kept = keeps_subnormals();
  std::fegetenv(&before);
  LoadedPlugin plugin{file, digest, open_kernels(file)};
  plugin.flushed = kept && !keeps_subnormals();
  std::fesetenv(&before);
  return plugin;
}

}  // namespace

std::string checked_plugin_file(const std::string& path) {
  std::error_code ec;
  const std::filesystem::path file = std::filesystem::absolute(path, ec).lexically_normal();
  if (!std::filesystem::exists(file, ec)) throw PluginError("there is no such file" + near_file(path, ".so"));
  if (const std::string why = why_no_file(file, "a plug-in's file"); !why.empty()) throw PluginError(why);
  return file.string();
}

void check_entries(std::span<const Kernel* const> kernels) {
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (kernels[i] == nullptr) throw PluginError(fmt::format("entry {} of its table is null", i + 1));
    const std::string missing = missing_in(*kernels[i]);
    if (missing.empty()) continue;
    const bool named = kernels[i]->name != nullptr;
    throw PluginError(fmt::format("kernel {}{} of its table {}", i + 1,
                                  named ? fmt::format(" ({})", kernels[i]->name) : "", missing));
  }
}

std::vector<const Kernel*> checked_kernels(const Plugin& table) {
  check_headers(table);
  if (table.num_kernels == 0 || table.kernels == nullptr) throw PluginError("it lists no kernel");
  std::vector<const Kernel*> kernels(table.kernels, table.kernels + table.num_kernels);
  check_entries(kernels);
  return kernels;
}

LoadedPlugin load_plugin(const std::string& path) {
  const std::string file = checked_plugin_file(path);
  const std::string digest = digest_of(file);
  const KernelCall in_hand("opening", file.c_str());
  return opened(file, digest);
}

LoadedPlugin describe_plugin(const std::string& path, std::optional<double> limit_s) {
  const std::string file = checked_plugin_file(path);
  if (const std::string why = why_no_library(file); !why.empty()) throw PluginError(why);
  const std::string digest = digest_of(file);
  LoadedPlugin plugin =
      described_by_child({file, "its static initialisers", limit_s.value_or(kLoadSeconds), [&](int answer) {
                            try {
                              write_answer(answer, description_of(opened(file, digest)));
                            } catch (const PluginError& e) {
                              write_answer(answer, description_of(e));
                            }
                          }});
  plugin.digest = digest;
  return plugin;
}

std::vector<const Kernel*> table_with_plugins(KernelTable builtin, std::span<const LoadedPlugin> plugins) {
  std::vector<const Kernel*> table(builtin.begin(), builtin.end());
  std::vector<std::string> owners(table.size(), "this program");
  for (const LoadedPlugin& plugin : plugins) {
    for (const Kernel* k : plugin.kernels) {
      const auto same = [k](const Kernel* other) {
        return k->op == other->op && k->device == other->device && std::strcmp(k->name, other->name) == 0;
      };
      const auto taken = std::find_if(table.begin(), table.end(), same);
      if (taken != table.end()) {
        throw PluginError(
            fmt::format("{}: {} has a kernel {} for {} on {} already; give one of them another name",
                        plugin.path, owners[static_cast<std::size_t>(taken - table.begin())], k->name,
                        op_name(k->op), device_kind_name(k->device)));
      }
      table.push_back(k);
      owners.push_back(plugin.path);
    }
  }
  return table;
}

}  // namespace attnbench
