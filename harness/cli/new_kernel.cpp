#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "harness/cli/cli.h"
#include "harness/cli/common.h"
#include "harness/cli/installed.h"
#include "harness/cli/option.h"
#include "harness/cli/usage_error.h"
#include "harness/launch/python.h"
#include "harness/results/files.h"
#include "harness/results/text.h"

namespace attnbench::cli {

/// The text of an example kernel (cmake/KernelStarts.cmake). The word "example" in it is the kernel's name.
namespace starts {
extern const std::string_view kNumpy, kTorch, kTriton, kCpp, kCuda;
}

namespace {

namespace fs = std::filesystem;

struct Start {
  const char* flag;
  const char* extension;
  const char* device;  ///< the one on which the printed commands run it; empty: the default device
  const char* what;
  const std::string_view* text;
};

/// The first row of an extension is the one that is written without a flag.
constexpr Start kStarts[] = {
    {"--torch", ".py", "", "PyTorch operations, for the CPU or a GPU (default for a .py file)",
     &starts::kTorch},
    {"--numpy", ".py", "cpu", "NumPy, for the CPU", &starts::kNumpy},
    {"--triton", ".py", "cuda", "Triton, for a GPU", &starts::kTriton},
    {"--cpp", ".cpp", "cpu", "C++, for the CPU (default for a .cpp file)", &starts::kCpp},
    {"--cuda", ".cu", "cuda", "CUDA C++, for a GPU (default for a .cu file)", &starts::kCuda},
};

/// The name of a kernel names a namespace or a function too. A file of Python must not have the name of a module
/// that it imports.
constexpr std::string_view kTaken =
    " alignas alignof and as assert asm async attnbench auto await bool break case catch char class concept "
    "const consteval constexpr constinit continue decltype def default del delete do double elif else enum "
    "except explicit export extern false finally float for friend from global goto if import in inline int is "
    "lambda long mutable namespace new noexcept nonlocal not nullptr numpy operator or pass private protected "
    "public raise register requires return short signed sizeof static std struct switch template this throw "
    "torch triton true try typedef typeid typename union unsigned using virtual void volatile while with xor "
    "yield ";

UsageError refused(const fs::path& file, const std::string& why) {
  return UsageError(fmt::format("{}: {}", file.string(), why));
}

const Start& start_of(const fs::path& file, const std::string& flag) {
  const std::string extension = file.extension().string();
  const auto row = std::find_if(std::begin(kStarts), std::end(kStarts), [&](const Start& s) {
    return flag.empty() ? s.extension == extension : s.flag == flag;
  });
  if (row == std::end(kStarts)) throw refused(file, "the file's name must end in .py, .cpp or .cu");
  if (row->extension != extension) {
    throw refused(file, fmt::format("{} writes a {} file; name it {}", flag, row->extension,
                                    fs::path(file).replace_extension(row->extension).string()));
  }
  return *row;
}

/// The nearest name in snake_case.
std::string snake_case(const std::string& name) {
  std::string out;
  bool after_small = false;
  for (const char c : name) {
    const bool small = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'), capital = c >= 'A' && c <= 'Z';
    if (capital && after_small) out += '_';
    if (small || capital) {
      out += static_cast<char>(capital ? c - 'A' + 'a' : c);
    } else if (!out.empty() && out.back() != '_') {
      out += '_';
    }
    after_small = small;
  }
  if (out.empty() || (out[0] >= '0' && out[0] <= '9')) out.insert(0, "kernel_");
  while (out.ends_with('_')) out.pop_back();
  return out;
}

/// The name of the kernel in the file. Throws UsageError if it can be none.
std::string checked_name(const fs::path& file, KernelTable kernels) {
  std::string name = file.stem().string();
  const auto named = [&](const std::string& other) {
    return fs::path(file).replace_filename(other + file.extension().string()).string();
  };
  const bool snake = name == snake_case(name);
  const std::string mend = named(snake ? "my_" + name : snake_case(name));
  if (!snake) {
    throw refused(file, fmt::format("the kernel is named after the file, so the name must be in snake_case; "
                                    "name it {}",
                                    mend));
  }
  if (kTaken.find(" " + name + " ") != kTaken.npos) {
    throw refused(file, fmt::format("{} means something else in C++ or Python; name it {}", name, mend));
  }
  if (std::ranges::any_of(kernels, [&](const Kernel* k) { return k->name == name; })) {
    throw refused(file, fmt::format("attnbench has a kernel named {}; name it {}", name, mend));
  }
  return name;
}

/// The start's text with the name in place of "example".
std::string renamed(std::string_view text, const std::string& name) {
  constexpr std::string_view kExample = "example";
  std::string out;
  for (;;) {
    const std::size_t at = text.find(kExample);
    out += text.substr(0, at);
    if (at == text.npos) return out;
    out += name;
    text.remove_prefix(at + kExample.size());
  }
}

/// The command that compiles the file to `plugin`.
std::string build_command(const fs::path& file, const std::string& plugin) {
  const std::string headers = header_folder();
  return fmt::format("{} -I {} {} -o {}{}\n",
                     file.extension() == ".cu" ? "nvcc -std=c++20 -O3 -arch=native -Xcompiler -fPIC -shared"
                                               : "g++ -std=c++20 -O3 -fPIC -shared",
                     headers.empty() ? "DIR" : shell_word(headers), shell_word(file.string()),
                     shell_word(plugin),
                     headers.empty() ? "    # DIR: the folder that holds kernels/contract" : "");
}

int new_kernel(const fs::path& file, const std::string& flag, KernelTable kernels) {
  const Start& start = start_of(file, flag);
  const std::string name = checked_name(file, kernels);
  std::error_code ec;
  if (fs::exists(fs::symlink_status(file, ec))) throw refused(file, "the file exists; name another one");
  write_file_atomically(file, renamed(*start.text, name));

  const bool compiled = !is_python(file.string());
  const std::string plugin = compiled ? fs::path(file).replace_extension(".so").string() : file.string();
  const std::string rest = fmt::format("--plugin {} --kernel {}{}{}", shell_word(plugin), name,
                                       *start.device != '\0' ? " --device " : "", start.device);
  std::cout << fmt::format("wrote {}: a kernel in {}; next:\n", file.string(),
                           std::string_view(start.what).substr(0, std::string_view(start.what).find(" (")));
  if (compiled) std::cout << "  " << build_command(file, plugin);
  std::cout << fmt::format(
      "  attnbench run --case '{{kv: packed, batch: q100s300_q1s500, heads: 4/2, mask: causal}}' {0}\n"
      "  attnbench fuzz --cases 200 {0}    # is it correct for random cases?\n",
      rest);
  return 0;
}

}  // namespace

void add_new_kernel(CLI::App& app, Program& program) {
  auto* command = app.add_subcommand("new-kernel", "Write a kernel to start from, which passes at once");
  auto file = std::make_shared<std::string>();
  auto flag = std::make_shared<std::string>();
  path_option(*command, "file", *file, "FILE",
              "File to write, in .py, .cpp or .cu; the kernel is named after it. It must not exist yet")
      ->required();
  for (const Start& s : kStarts) {
    command->add_flag_callback(
        s.flag,
        [=] {
          if (!flag->empty())
            throw CLI::ValidationError(*flag + " and " + s.flag, "contradict each other: give one of them");
          *flag = s.flag;
        },
        s.what);
  }
  command->footer(
      "Examples:\n  attnbench new-kernel mine.py --triton\n  attnbench new-kernel mine.cu\n"
      "Python: harness/python/README.md. C++ and CUDA: kernels/README.md.");
  command->callback([=, &program] {
    program.chosen = [=, &program] { return new_kernel(*file, *flag, program.kernels); };
  });
}

}  // namespace attnbench::cli
