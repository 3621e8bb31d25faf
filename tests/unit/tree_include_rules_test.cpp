// Who may include whom (harness/README.md). This finds a stage that bypasses others, and a reference that
// shares code with the kernels it judges, even if they would link.
#include <gtest/gtest.h>

#include <initializer_list>
#include <map>
#include <optional>
#include <regex>
#include <set>

#include "tests/unit/tree_files.h"

namespace attnbench {
namespace {

struct Include {
  std::string path;
  bool quoted = false;
  int line = 0;
};

std::vector<Include> includes_of(const std::string& text) {
  static const std::regex pattern(R"re(^\s*#\s*include\s*([<"])([^>"]+)[>"])re");
  std::vector<Include> found;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::smatch match;
    if (std::regex_search(line, match, pattern)) found.push_back({match[2], match[1] == "\"", number});
  }
  return found;
}

bool starts_with(const std::string& s, const std::string& prefix) {
  return s.compare(0, prefix.size(), prefix) == 0;
}

/// The part of the tree of a path: "kernels/cpu", "kernels/cuda/simt", "harness/config", "reference".
std::string part_of(const std::string& path) {
  if (starts_with(path, "harness/ops/")) {
    // Files of ops/ belong to the stage that the beginning of their name tells.
    static const std::map<std::string, std::string> stages = {{"keys", "config"},     {"case", "cases"},
                                                              {"tensors", "tensors"}, {"judge", "judge"},
                                                              {"faults", "selftest"}, {"op", "ops"}};
    const std::string name = path.substr(path.rfind('/') + 1);
    return "harness/" + stages.at(name.substr(0, name.find_first_of("_.")));
  }
  const std::size_t depth = starts_with(path, "kernels/cuda/") ? 3 : starts_with(path, "reference/") ? 1 : 2;
  std::size_t end = 0;
  for (std::size_t i = 0; i < depth; ++i) {
    const std::size_t next = path.find('/', end == 0 ? 0 : end + 1);
    if (next == std::string::npos) break;
    end = next;
  }
  return path.substr(0, end);
}

/// Stages whose headers a stage may include, without itself: the links of harness/CMakeLists.txt,
/// transitively.
const std::map<std::string, std::set<std::string>>& stages_below() {
  static const std::map<std::string, std::set<std::string>> below = [] {
    std::map<std::string, std::set<std::string>> b;
    const auto above = [&](std::initializer_list<const char*> stages) {
      std::set<std::string> all;
      for (const char* stage : stages) {
        all.insert(stage);
        all.insert(b.at(stage).begin(), b.at(stage).end());
      }
      return all;
    };
    b["values"] = b["facts"] = b["ops"] = {};
    b["device"] = above({"values", "facts"});
    b["config"] = above({"values", "ops"});
    b["serving"] = above({"config"});
    b["cases"] = above({"serving"});
    b["tensors"] = above({"cases", "device"});
    b["launch"] = b["judge"] = b["timing"] = above({"tensors"});
    b["results"] = above({"cases", "facts"});
    b["compare"] = above({"results"});
    b["interop"] = above({"results", "launch", "judge"});
    b["report"] = above({"compare", "judge"});
    b["session"] = above({"interop", "timing"});
    b["selftest"] = above({"session"});
    b["fuzz"] = above({"session", "report"});
    b["cli"] = above({"selftest", "fuzz"});
    return b;
  }();
  return below;
}

bool is_cuda_header(const std::string& path) {
  for (const char* prefix :
       {"cuda", "cublas", "cub/", "thrust/", "nvtx3/", "nvml", "cupti", "mma.h", "cooperative_groups"}) {
    if (starts_with(path, prefix)) return true;
  }
  return false;
}

/// Libraries, and the parts of the tree that may see them.
const std::map<std::string, std::set<std::string>>& libraries() {
  static const std::map<std::string, std::set<std::string>> seen_by = {
      {"yaml-cpp/", {"harness/config"}},
      {"Eigen/", {"reference", "harness/device"}},
      {"benchmark/", {"harness/timing", "reference"}},
      {"CLI/", {"harness/cli"}},
      {"nlohmann/",
       {"harness/config", "harness/launch", "harness/results", "harness/compare", "harness/report",
        "harness/session", "harness/selftest", "harness/fuzz", "harness/interop", "harness/cli"}},
  };
  return seen_by;
}

bool quoted_is_allowed(const std::string& file, const std::string& target) {
  const std::string from = part_of(file);
  const std::string to = part_of(target);
  if (from == to || to == "kernels/contract") return true;
  if (from == "kernels") return starts_with(target, "kernels/");  // the registry
  if (from == "kernels/common" || from == "kernels/contract" || from == "reference") return false;
  // This kernel runs two kernels side by side in one launch.
  if (from == "kernels/cuda/sm90_mixed" &&
      (to == "kernels/cuda/sm90_decode" || to == "kernels/cuda/sm90_prefill")) {
    return true;
  }
  if (starts_with(from, "kernels/")) {
    return to == "kernels/common" || (starts_with(from, "kernels/cuda/") && to == "kernels/cuda/common");
  }
  if (target == "kernels/registry.h")
    return from == "harness/launch" || from == "harness/session" || starts_with(from, "harness/cli");
  if (to == "reference") return from == "harness/judge";
  if (target == "attnbench_version.h") return from == "harness/results";
  if (file == "harness/main.cpp") return to == "harness/cli";
  if (file == "harness/library.cpp") return starts_with(to, "harness/");
  for (const char* common :
       {"harness/digest.h", "harness/error.h", "harness/gigabytes.h", "harness/plain_file.h"}) {
    if (target == common) return starts_with(from, "harness/");
  }
  const auto stage = stages_below().find(from.substr(from.find('/') + 1));
  return stage != stages_below().end() && starts_with(to, "harness/") &&
         stage->second.count(to.substr(8)) > 0;
}

bool angled_is_allowed(const std::string& file, const std::string& header) {
  const std::string from = part_of(file);
  if (is_cuda_header(header))
    return starts_with(file, "kernels/cuda/") || starts_with(file, "harness/device/cuda/");
  if (from == "kernels/contract" || from == "kernels/common") {
    return header.find_first_of("./") == std::string::npos;  // only std
  }
  for (const auto& [library, parts] : libraries()) {
    if (starts_with(header, library)) return parts.count(from) > 0;
  }
  return !starts_with(from, "kernels/") || header.find('/') == std::string::npos;
}

/// The violations in the include lines of a file, "path:line: ..." each.
std::vector<std::string> violations(const std::string& file, const std::string& text) {
  std::vector<std::string> wrong;
  for (const Include& include : includes_of(text)) {
    const bool allowed =
        include.quoted ? quoted_is_allowed(file, include.path) : angled_is_allowed(file, include.path);
    if (!allowed)
      wrong.push_back(file + ":" + std::to_string(include.line) + ": may not include " + include.path);
  }
  return wrong;
}

TEST(TreeIncludeRules, HoldInEverySource) {
  int seen = 0;
  for (const std::string& file : tree::files({".h", ".cpp", ".cu", ".cuh"})) {
    if (starts_with(file, "tests/")) continue;
    ++seen;
    for (const std::string& wrong : violations(file, tree::read(tree::root() / file))) ADD_FAILURE() << wrong;
  }
  EXPECT_GT(seen, 50);
}

TEST(TreeIncludeRules, QuotedPathsAreFromTheRootAndExist) {
  for (const std::string& file : tree::files({".h", ".cpp", ".cu", ".cuh"})) {
    for (const Include& include : includes_of(tree::read(tree::root() / file))) {
      if (!include.quoted || include.path == "attnbench_version.h") continue;
      EXPECT_TRUE(std::filesystem::exists(tree::root() / include.path))
          << file << ":" << include.line << ": " << include.path;
    }
  }
}

struct Bad {
  const char* file;
  const char* line;
};

TEST(TreeIncludeRules, AreBrokenByWhatTheyForbid) {
  const Bad bad[] = {
      {"kernels/contract/dtype.h", "#include \"kernels/common/mask.h\""},
      {"kernels/contract/dtype.h", "#include <cuda_runtime.h>"},
      {"kernels/contract/dtype.h", "#include <fmt/format.h>"},
      {"kernels/common/mask.h", "#include \"harness/values/values.h\""},
      {"kernels/cpu/attention.cpp", "#include \"harness/device/device.h\""},
      {"kernels/cpu/attention.cpp", "#include \"reference/reference.h\""},
      {"kernels/cpu/attention.cpp", "#include <Eigen/Core>"},
      {"kernels/cpu/attention.cpp", "#include <cuda_runtime.h>"},
      {"kernels/cuda/simt/launch.cu", "#include \"kernels/cpu/cpu_kernels.h\""},
      {"kernels/cuda/simt/launch.cu", "#include \"kernels/cuda/sm90_decode/kernel.cuh\""},
      {"reference/attend.cpp", "#include \"kernels/common/addressing.h\""},
      {"reference/attend.cpp", "#include \"harness/values/values.h\""},
      {"reference/attend.cpp", "#include \"kernels/registry.h\""},
      {"harness/values/values.h", "#include \"harness/config/keys.h\""},
      {"harness/config/keys.cpp", "#include \"harness/device/device.h\""},
      {"harness/cases/expand.cpp", "#include \"harness/tensors/plan.h\""},
      {"harness/serving/scheduler.cpp", "#include \"harness/cases/case.h\""},
      {"harness/tensors/plan.cpp", "#include \"kernels/registry.h\""},
      {"harness/tensors/plan.cpp", "#include \"harness/judge/verify.h\""},
      {"harness/launch/launcher.cpp", "#include \"harness/judge/verify.h\""},
      {"harness/launch/launcher.cpp", "#include \"kernels/cpu/cpu_kernels.h\""},
      {"harness/judge/verify.h", "  #  include   \"harness/launch/launcher.h\""},
      {"harness/timing/timing.cpp", "#include \"reference/reference.h\""},
      {"harness/timing/timing.cpp", "#include <cuda_runtime.h>"},
      {"harness/results/json.cpp", "#include \"harness/session/session.h\""},
      {"harness/results/json.cpp", "#include \"kernels/registry.h\""},
      {"harness/results/load.cpp", "#include \"harness/compare/ratio.h\""},
      {"harness/results/record.h", "#include \"harness/device/device.h\""},
      {"harness/facts/time_result.h", "#include \"harness/device/device.h\""},
      {"harness/facts/verdict.h", "#include \"harness/judge/error_model.h\""},
      {"harness/compare/noise.cpp", "#include \"harness/device/device.h\""},
      {"harness/compare/noise.cpp", "#include \"harness/judge/verify.h\""},
      {"harness/compare/join_runs.cpp", "#include \"harness/report/table.h\""},
      {"harness/session/session.cpp", "#include \"harness/report/table.h\""},
      {"harness/device/cpu_device.cpp", "#include <cuda_runtime.h>"},
      {"harness/session/session.cpp", "#include \"harness/cli/cli.h\""},
      {"harness/cases/case.h", "#include <yaml-cpp/yaml.h>"},
      {"harness/main.cpp", "#include \"harness/session/session.h\""},
  };
  for (const Bad& b : bad) {
    const auto found = violations(b.file, std::string("// a comment\n") + b.line + "\n");
    ASSERT_EQ(found.size(), 1u) << b.file << ": " << b.line;
    EXPECT_NE(found[0].find(":2: may not include"), std::string::npos);
  }
}

TEST(TreeIncludeRules, AllowWhatTheyShould) {
  const Bad good[] = {
      {"kernels/cpu/attention.cpp", "#include \"kernels/common/mask.h\""},
      {"kernels/cuda/simt/launch.cu", "#include <cuda_runtime.h>"},
      {"kernels/registry.cpp", "#include \"kernels/cuda/simt/simt_kernels.h\""},
      {"reference/attend.cpp", "#include <Eigen/Core>"},
      {"reference/attend.cpp", "#include \"kernels/contract/kernel.h\""},
      {"harness/device/cuda/fill.cu", "#include <cuda_runtime.h>"},
      {"harness/launch/launcher.h", "#include \"kernels/registry.h\""},
      {"harness/judge/sample.h", "#include \"reference/reference.h\""},
      {"harness/cli/run.cpp", "#include \"harness/results/json.h\""},
      {"harness/main.cpp", "#include \"harness/cli/cli.h\""},
  };
  for (const Bad& g : good) EXPECT_TRUE(violations(g.file, g.line).empty()) << g.file << ": " << g.line;
}

}  // namespace
}  // namespace attnbench
