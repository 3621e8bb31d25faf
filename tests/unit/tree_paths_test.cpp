// Files that READMEs and comments name exist.
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "tests/unit/tree_files.h"

namespace attnbench {
namespace {

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// Paths of the tree that a text names and that do not exist. Patterns ("configs/*.yaml", "<gpu>") do not
/// count, nor do paths that the reader creates.
std::vector<std::string> missing_paths(const std::string& text) {
  static const std::regex pattern(
      R"re((^|[\s`"'(\[])(\./)?((kernels|reference|harness|configs|scripts|tests|results|cmake)/[A-Za-z0-9_./-]*\.(cpp|cuh|cu|h|yaml|json|sh|md|cmake|txt))\b)re");
  std::vector<std::string> missing;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
    const std::string path = (*it)[3];
    const bool is_readers = path.rfind("results/runs/", 0) == 0 || path.rfind("kernels/mine/", 0) == 0 ||
                            path.rfind("kernels/cuda/mine/", 0) == 0;
    const bool exists = std::filesystem::exists(tree::root() / path) ||
                        std::filesystem::exists(tree::root() / "harness" / path);  // its results/
    if (!is_readers && !exists) missing.push_back(path);
  }
  return missing;
}

const std::vector<std::string> kSources = {".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".cmake"};

/// The paths of all sources and their tails: "harness/cli/cli.h", "cli/cli.h", "cli.h".
const std::set<std::string>& source_names() {
  static const std::set<std::string> names = [] {
    std::set<std::string> all;
    for (const std::string& path : tree::files(kSources)) {
      all.insert(path);
      for (std::size_t i = path.find('/'); i != std::string::npos; i = path.find('/', i + 1))
        all.insert(path.substr(i + 1));
    }
    return all;
  }();
  return names;
}

/// Sources that a comment names by a path or the end of a path, and that do not exist. Files of other
/// projects are written in <> or as a URL.
std::vector<std::string> missing_sources(const std::string& comment) {
  static const std::regex pattern(
      R"re((^|[\s`"'(\[,;=])(\./)?([A-Za-z0-9_][A-Za-z0-9_./-]*\.(cpp|cuh|cu|h|py|sh|cmake))(?![\w/]))re");
  std::vector<std::string> missing;
  for (std::sregex_iterator it(comment.begin(), comment.end(), pattern), end; it != end; ++it) {
    const std::string name = (*it)[3];
    if (source_names().count(name) == 0 && name != "mine.py") missing.push_back(name);  // the reader's file
  }
  return missing;
}

/// The comments of a source, line by line: the text after // in C++ and CUDA and after # elsewhere, and
/// Python's docstrings.
std::string comments_of(const std::string& file, const std::string& text) {
  const bool slashes =
      ends_with(file, ".h") || ends_with(file, ".cpp") || ends_with(file, ".cu") || ends_with(file, ".cuh");
  const std::string mark = slashes ? "//" : "#";
  std::istringstream lines(text);
  std::string comments;
  bool in_docstring = false;
  for (std::string line; std::getline(lines, line);) {
    const bool was_in_docstring = in_docstring;
    if (ends_with(file, ".py")) {
      for (std::size_t at = line.find("\"\"\""); at != std::string::npos; at = line.find("\"\"\"", at + 3))
        in_docstring = !in_docstring;
    }
    std::size_t at = line.find(mark);
    while (at != std::string::npos && at > 0 && line[at - 1] == ':') at = line.find(mark, at + 1);  // a URL
    if (was_in_docstring || in_docstring || line.find("\"\"\"") != std::string::npos) {
      comments += line + '\n';
    } else if (at != std::string::npos) {
      comments += line.substr(at + mark.size()) + '\n';
    }
  }
  return comments;
}

TEST(TreePaths, ReadmesNameWhatExists) {
  for (const std::string& file : tree::files({".md"})) {
    for (const std::string& path : missing_paths(tree::read(tree::root() / file)))
      ADD_FAILURE() << file << " names " << path;
  }
}

TEST(TreePaths, CommentsNameWhatExists) {
  std::vector<std::string> files = tree::files(kSources);
  for (const std::string& file : tree::files({".txt"})) {
    if (ends_with(file, "CMakeLists.txt")) files.push_back(file);
  }
  for (const std::string& file : files) {
    const std::string comments = comments_of(file, tree::read(tree::root() / file));
    std::set<std::string> missing;
    for (const std::string& path : missing_sources(comments)) missing.insert(path);
    for (const std::string& path : missing_paths(comments)) missing.insert(path);
    for (const std::string& path : missing) ADD_FAILURE() << file << ": a comment names " << path;
  }
}

TEST(TreePaths, MissingPathsAreFound) {
  EXPECT_EQ(
      missing_paths("run `configs/no_such.yaml`, see tests/unit/nothing_test.cpp and (harness/x/y.h)").size(),
      3u);
  EXPECT_TRUE(
      missing_paths("CMake: cmake/Cuda.cmake, ./scripts/test.sh, results/runs/a/results.json, configs/*.yaml")
          .empty());
}

TEST(TreePaths, MissingSourcesAreFound) {
  EXPECT_EQ(missing_sources("as in nothing.cuh; see cli/nothing.h, `scripts/nothing.py` and no_such.sh."),
            (std::vector<std::string>{"nothing.cuh", "cli/nothing.h", "scripts/nothing.py", "no_such.sh"}));
  EXPECT_TRUE(missing_sources("harness/cli/cli.h, cli/cli.h:12, cli.h. <cuda_runtime.h>, *_test.cpp, "
                              "https://github.com/a/b/c.cuh")
                  .empty());
  EXPECT_EQ(comments_of("a.h", "int a;  // b\nhttps://c\n/// d\n"), " b\n/ d\n");
  EXPECT_EQ(comments_of("a.cmake", "# a\nset(b)  # c\n"), " a\n c\n");
  EXPECT_EQ(comments_of("a.py", "\"\"\"a\nb\"\"\"\nc\nd  # e\n\"\"\"f\"\"\"\ng\n"),
            "\"\"\"a\nb\"\"\"\n e\n\"\"\"f\"\"\"\n");
}

}  // namespace
}  // namespace attnbench
