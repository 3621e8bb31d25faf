#include "harness/cli/misplaced.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace attnbench::cli {
namespace {

namespace fs = std::filesystem;

enum class FileKind { kUnknown, kPlugin, kResults, kSweepFile, kProgram, kSource, kOutputs };

/// The kind by the ending, which need not be that of a file that exists.
constexpr std::pair<std::string_view, FileKind> kEndings[] = {
    {".so", FileKind::kPlugin},     {".py", FileKind::kPlugin},      {".json", FileKind::kResults},
    {".jsonl", FileKind::kResults}, {".yaml", FileKind::kSweepFile}, {".yml", FileKind::kSweepFile},
    {".cpp", FileKind::kSource},    {".cc", FileKind::kSource},      {".cu", FileKind::kSource},
    {".npy", FileKind::kOutputs},
};

/// What options and arguments take. A name takes no file.
constexpr std::pair<const char*, FileKind> kTakes[] = {
    {"config", FileKind::kSweepFile},
    {"results", FileKind::kResults},
    {"base", FileKind::kResults},
    {"new", FileKind::kResults},
    {"case", FileKind::kUnknown},
    {"--baseline", FileKind::kResults},
    {"--against", FileKind::kProgram},
    {"--plugin", FileKind::kPlugin},
    {"--against-plugin", FileKind::kPlugin},
    {"--kernel", FileKind::kUnknown},
    {"--against-kernel", FileKind::kUnknown},
};

FileKind kind_of_file(const fs::path& path) {
  const std::string name = path.filename().string(), end = path.extension().string();
  for (const auto& [ending, kind] : kEndings) {
    if (end == ending) return kind;
  }
  if (name.find(".so.") != name.npos) return FileKind::kPlugin;
  std::error_code ec;
  if (fs::is_directory(path, ec)) {
    const bool run = fs::exists(path / "results.json", ec) || fs::exists(path / "journal.jsonl", ec);
    return run ? FileKind::kResults : FileKind::kUnknown;
  }
  char head[4] = {};
  if (fs::is_regular_file(path, ec)) std::ifstream(path, std::ios::binary).read(head, sizeof head);
  const std::string_view bytes(head, sizeof head);
  return bytes == "\177ELF" || bytes.starts_with("#!") ? FileKind::kProgram : FileKind::kUnknown;
}

/// Whether the command has this option, or argument, and shows it.
bool has_named(const CLI::App& command, const std::string& name) {
  const CLI::Option* option = command.get_option_no_throw(name);
  return option != nullptr && !option->get_group().empty();
}

/// What the file is, and where it goes.
std::string place_for(FileKind kind, const CLI::App& command, const std::string& option,
                      const std::string& file) {
  const bool old = option == "--against" || option == "--baseline" || option == "--against-kernel";
  switch (kind) {
    case FileKind::kPlugin:
      return "a plug-in; " + (!has_named(command, "--plugin")
                                  ? "attnbench gate CONFIG --plugin NEW --against-plugin OLD compares two"
                              : old && has_named(command, "--against-plugin")
                                  ? "give it as --against-plugin " + file + ", and the new one as --plugin"
                                  : "give it as --plugin " + file);
    case FileKind::kResults:
      return "a file or folder of results; " +
             (has_named(command, "--against") ? "give it as --baseline " + file
                                              : "attnbench compare BASE NEW and attnbench report read it");
    case FileKind::kSweepFile:
      return "a sweep; " +
             (has_named(command, "config")
                  ? fmt::format("give it without an option: attnbench {} {}", command.get_name(), file)
                  : fmt::format("attnbench run {} makes results of it", file));
    case FileKind::kProgram:
      return fmt::format("a program; {} {} compares with another build of attnbench",
                         has_named(command, "--against") ? "--against" : "attnbench gate CONFIG --against",
                         file);
    case FileKind::kOutputs:
      return "an array; attnbench check CASE.safetensors OUT.npy judges outputs, attnbench run takes .safetensors";
    default:
      return "source code; compile it as a plug-in, which --plugin FILE.so takes (attnbench new-kernel --help)";
  }
}

constexpr const char* kIgnored = "of run; ignored";

/// The options that a repro line may have, except --case, --seed and --set.
constexpr const char* kReproOptions[] = {
    "--device",   "--kernel",  "--plugin",  "--python",   "--check",      "--require",    "--repeats",
    "--no-time",  "--cache",   "--clock",   "--graph",    "--trust",      "--seed-order", "--no-ceilings",
    "--counters", "--threads", "--timeout", "--min-time", "--max-samples"};

}  // namespace

std::string place_of_file(const CLI::App& command, const std::string& file, const std::string& option) {
  const FileKind kind = kind_of_file(file);
  return kind == FileKind::kUnknown ? "" : "this is " + place_for(kind, command, option, file);
}

std::string misplaced_file(const CLI::App& command) {
  for (const auto& [name, takes] : kTakes) {
    const CLI::Option* option = command.get_option_no_throw(name);
    if (option == nullptr || option->get_description() == kIgnored) continue;
    for (const std::string& file : option->results()) {
      if (takes == FileKind::kUnknown && file.find_first_of("./") == file.npos)
        continue;  // the name of a kernel
      const FileKind kind = kind_of_file(file);
      if (kind == FileKind::kUnknown || kind == takes) continue;
      // --plugin itself has more to say about these.
      const bool program = kind == FileKind::kProgram && !has_named(command, "--against");
      if (takes == FileKind::kPlugin && (kind == FileKind::kSource || program)) continue;
      const bool dashed = name[0] == '-';
      return fmt::format("{}{}{}: {}", dashed ? name : "", dashed ? " " : "", file,
                         place_of_file(command, file, name));
    }
  }
  return "";
}

void ignore_repro_options(const CLI::App& app, CLI::App& command) {
  for (const char* name : kReproOptions) {
    if (command.get_option_no_throw(name) != nullptr) continue;
    const bool flag = app.get_subcommand("run")->get_option(name)->get_expected_max() == 0;
    CLI::Option* option = flag ? command.add_flag(name) : command.add_option(name)->take_last();
    option->description(kIgnored)->group("");
  }
}

std::string ignored_options(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_description() == kIgnored && option->count() > 0)
      names.push_back("--" + option->get_lnames()[0]);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace attnbench::cli
