// Files of the source tree, for tests of the tree itself.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace attnbench::tree {

inline std::filesystem::path root() { return ATTNBENCH_SOURCE_DIR; }

inline std::string read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// Folders of the project in the root: neither hidden nor a build folder.
inline std::vector<std::string> top_folders() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(root())) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && name[0] != '.' && name.rfind("build", 0) != 0) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

/// Paths, relative to the root, of the files with one of these extensions, without results/runs.
inline std::vector<std::string> files(const std::vector<std::string>& extensions) {
  std::vector<std::string> paths;
  const auto take = [&](const std::filesystem::directory_entry& entry) {
    const std::string extension = entry.path().extension().string();
    const std::string path = entry.path().lexically_relative(root()).generic_string();
    if (!entry.is_regular_file() || path.rfind("results/runs/", 0) == 0) return;
    if (std::find(extensions.begin(), extensions.end(), extension) != extensions.end()) paths.push_back(path);
  };
  for (const auto& entry : std::filesystem::directory_iterator(root())) take(entry);
  for (const std::string& folder : top_folders()) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root() / folder)) take(entry);
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace attnbench::tree
