// The tree itself: files stay short, folders say what they hold, and what READMEs name exists.
#include <gtest/gtest.h>

#include <regex>

#include "tests/unit/tree_files.h"

namespace attnbench {
namespace {

constexpr long kMaxLines = 600;

/// Paths of the tree that a text names and that do not exist. Patterns ("configs/*.yaml", "<gpu>") are no
/// paths, and what a reader makes is not there yet.
std::vector<std::string> missing_paths(const std::string& text) {
  static const std::regex pattern(
      R"re((^|[\s`"'(\[])(\./)?((kernels|reference|harness|configs|scripts|tests|results|cmake)/[A-Za-z0-9_./-]*\.(cpp|cuh|cu|h|yaml|json|sh|md|cmake|txt))\b)re");
  std::vector<std::string> missing;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
    const std::string path = (*it)[3];
    const bool is_readers = path.rfind("results/runs/", 0) == 0 || path.rfind("kernels/mine/", 0) == 0 ||
                            path.rfind("kernels/cuda/mine/", 0) == 0;
    if (!is_readers && !std::filesystem::exists(tree::root() / path)) missing.push_back(path);
  }
  return missing;
}

TEST(TreeFiles, NoneIsLong) {
  for (const std::string& file : tree::files({".h", ".cpp", ".cu", ".cuh", ".cmake", ".sh", ".yaml"})) {
    const std::string text = tree::read(tree::root() / file);
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), kMaxLines) << file;
  }
}

TEST(TreeFiles, EveryTopFolderHasAReadme) {
  for (const std::string& folder : tree::top_folders()) {
    if (folder == "cmake") continue;  // its files say it themselves
    EXPECT_TRUE(std::filesystem::exists(tree::root() / folder / "README.md")) << folder;
  }
  EXPECT_TRUE(std::filesystem::exists(tree::root() / "README.md"));
}

TEST(TreeFiles, ReadmesNameWhatExists) {
  for (const std::string& file : tree::files({".md"})) {
    for (const std::string& path : missing_paths(tree::read(tree::root() / file)))
      ADD_FAILURE() << file << " names " << path;
  }
}

TEST(TreeFiles, MissingPathsAreFound) {
  EXPECT_EQ(
      missing_paths("run `configs/no_such.yaml`, see tests/unit/nothing_test.cpp and (harness/x/y.h)").size(),
      3u);
  EXPECT_TRUE(
      missing_paths("CMake: cmake/Cuda.cmake, ./scripts/test.sh, results/runs/a/results.json, configs/*.yaml")
          .empty());
}

TEST(TreeFiles, ScriptsMayBeRun) {
  using std::filesystem::perms;
  for (const char* script :
       {"scripts/quickstart.sh", "scripts/test.sh", "scripts/format.sh", "scripts/lint.sh", ".ci/run"}) {
    const auto permissions = std::filesystem::status(tree::root() / script).permissions();
    EXPECT_NE(permissions & perms::owner_exec, perms::none) << script;
  }
}

}  // namespace
}  // namespace attnbench
