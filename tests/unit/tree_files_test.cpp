// The tree itself: files are short, folders have READMEs, scripts run.
#include <gtest/gtest.h>

#include "tests/unit/tree_files.h"

namespace attnbench {
namespace {

constexpr long kMaxLines = 500;

TEST(TreeFiles, NoneIsLong) {
  for (const std::string& file :
       tree::files({".h", ".cpp", ".cu", ".cuh", ".cmake", ".py", ".sh", ".js", ".yaml"})) {
    const std::string text = tree::read(tree::root() / file);
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), kMaxLines) << file;
  }
}

TEST(TreeFiles, EveryTopFolderHasAReadme) {
  for (const std::string& folder : tree::top_folders()) {
    if (folder == "cmake") continue;  // its files describe themselves
    EXPECT_TRUE(std::filesystem::exists(tree::root() / folder / "README.md")) << folder;
  }
  EXPECT_TRUE(std::filesystem::exists(tree::root() / "README.md"));
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
