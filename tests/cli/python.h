// Tests of kernels in Python: what they need, and how they start the program.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "harness/device/sanitized.h"
#include "tests/cli/program.h"

namespace attnbench::testing {

inline constexpr const char* kPythonCase = "{batch: q5, heads: 2, head_dim: 8, mask: causal}";

inline std::string python_fixture(const std::string& name) { return source_path("tests/python/" + name); }

/// Skips without python3 and NumPy. The interpreter is python3 of PATH.
class PythonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "python3 has no sanitizer, which a library that is built with one needs";
    unsetenv("VIRTUAL_ENV");
    setenv("PYTHONDONTWRITEBYTECODE", "1", 1);  // tests write to the build folder only
    static const bool numpy = std::system("python3 -c 'import numpy' > /dev/null 2>&1") == 0;
    if (!numpy) GTEST_SKIP() << "no python3 with NumPy (Debian: python3 python3-numpy)";
  }

  /// Runs `run --device cpu --plugin FILE --no-time -q --out out ...` and fills `records`.
  Outcome run(const std::string& file, const std::vector<std::string>& more) {
    std::vector<std::string> args = {"run",       "--device", "cpu",   "--plugin", file,
                                     "--no-time", "-q",       "--out", "out"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome o = run_attnbench(scratch, args);
    records.clear();
    if (!std::filesystem::exists(scratch.dir() / "out" / "results.json")) return o;
    for (const nlohmann::json& r : read_records(scratch.dir() / "out")) records[r["kernel"]] = r;
    return o;
  }

  std::string reason(const std::string& kernel) { return records[kernel].value("reason", "none"); }
  /// What the context of the last run says of its plug-in.
  nlohmann::json plugin() const {
    return read_json(scratch.dir() / "out" / "results.json")["context"]["attnbench"]["plugins"].at(0);
  }
  /// Copies a fixture and the module that it imports to a folder, and returns its path.
  std::string copy(const std::string& name, const std::string& folder) const {
    std::filesystem::create_directories(scratch.dir() / folder);
    for (const std::string& file : {name, std::string("attend.py")}) {
      std::filesystem::copy_file(python_fixture(file), scratch.dir() / folder / file,
                                 std::filesystem::copy_options::overwrite_existing);
    }
    return scratch.path(folder + "/" + name);
  }

  const Scratch scratch;
  std::map<std::string, nlohmann::json> records;  ///< of the last run, by kernel
};

}  // namespace attnbench::testing
