#include "harness/cli/installed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "harness/cli/common.h"
#include "harness/config/near_file.h"
#include "harness/config/sweep_file.h"
#include "harness/launch/python.h"

namespace attnbench::cli {
namespace {

namespace fs = std::filesystem;

/// The nearest folder around the program that holds `file`, in itself or in `installed`. Empty: there is none.
fs::path folder_around(const char* installed, const char* file) {
  std::error_code ec;
  for (fs::path folder = fs::path(program_file()).parent_path();; folder = folder.parent_path()) {
    for (const fs::path& found : {folder, folder / installed}) {
      if (fs::exists(found / file, ec)) return found;
    }
    if (folder == folder.parent_path()) return {};
  }
}

fs::path sweep_folder() {
  const fs::path found = folder_around("share/attnbench", "configs/quickstart.yaml");
  return found.empty() ? found : found / "configs";
}

bool is_file(const fs::path& path) {
  std::error_code ec;
  return fs::exists(path, ec) && !fs::is_directory(path, ec);
}

bool has_folder(const std::string& path) { return path.find('/') != path.npos; }

}  // namespace

std::string header_folder() {
  return folder_around("include/attnbench", "kernels/contract/plugin.h").string();
}

std::string sweep_path(const std::string& given) {
  if (given.empty() || given.front() == '.' || given.front() == '/') return given;
  const fs::path yaml = fs::path(given).extension() == ".yaml" ? given : given + ".yaml";
  for (const fs::path& found : {fs::path(given), yaml}) {
    if (is_file(found)) return found.string();
  }
  const fs::path installed = sweep_folder() / yaml;
  return installed.has_parent_path() && is_file(installed) ? installed.string() : given;
}

std::vector<std::string> sweep_names() {
  std::vector<std::string> names;
  std::error_code ec;
  const fs::path folder = sweep_folder();
  for (const auto& entry : fs::recursive_directory_iterator(folder, ec)) {
    if (entry.path().extension() != ".yaml") continue;
    names.push_back(fs::relative(entry.path(), folder).replace_extension().generic_string());
  }
  std::ranges::sort(names);
  return names;
}

std::string unknown_sweep(const std::string& path) {
  std::error_code ec;
  if (path.empty() || fs::exists(path, ec)) return "";
  if (const std::string near = near_file(path, ".yaml"); !near.empty())
    return fmt::format("{}: error: cannot read: No such file here{}", path, near);
  const std::vector<std::string> names = sweep_names();
  if (names.empty()) return "";
  const std::string name = fs::path(path).stem().string();
  if (!has_folder(path)) {
    return fmt::format(
        "{}: error: cannot read: No such file here, and no sweep of this name comes with attnbench; "
        "{}there are {}",
        path, did_you_mean(name, names), fmt::join(names, ", "));
  }
  const auto near = nearest_word(name, names);
  if (!near) return "";
  return fmt::format(
      "{}: error: cannot read: No such file here; the sweep that comes with attnbench has the name '{}', without a "
      "folder",
      path, *near);
}

}  // namespace attnbench::cli
