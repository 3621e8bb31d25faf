// Kernels that leave the thread or the process in another state: the error of their case, and of no other kernel's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <thread>

#include "harness/device/sanitized.h"
#include "tests/cli/python.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string plugin_of(const std::string& name) { return ATTNBENCH_PLUGIN_DIR "/" + name + ".so"; }

/// Runs the kernels `example` and `cpu` on two cases while the plug-in does `how` (tests/plugins/ends.cpp).
std::vector<json> run_beside_cpu(const std::string& how, const std::vector<std::string>& more = {}) {
  const Scratch scratch;
  setenv("ATTNBENCH_TEST_END", how.c_str(), 1);
  std::vector<std::string> args = {"run",      "--device", "cpu",      "--plugin", plugin_of("ends"),
                                   "--kernel", "example",  "--kernel", "cpu",      "--no-time",
                                   "-q",       "--out",    "out"};
  for (const char* batch : {"q5s300", "q4s200"})
    args.insert(args.end(),
                {"--case", std::string("{batch: ") + batch + ", heads: 2, head_dim: 24, dtype: fp16}"});
  args.insert(args.end(), more.begin(), more.end());
  const Outcome o = run_attnbench(scratch, args);
  unsetenv("ATTNBENCH_TEST_END");
  EXPECT_EQ(o.exit_code, 5) << how << o.out << o.err;
  return read_records(scratch.dir() / "out");
}

TEST(CliState, WhatAKernelKeepsFromAnEarlierCaseIsSaid) {
  const Scratch scratch;
  setenv("ATTNBENCH_TEST_END", "launch keep", 1);
  const auto args = [](const std::vector<std::string>& scales) {
    std::vector<std::string> all = {"run",
                                    "--device",
                                    "cpu",
                                    "--plugin",
                                    plugin_of("ends"),
                                    "--kernel",
                                    "example",
                                    "--no-time",
                                    "-q",
                                    "--out",
                                    "out" + std::to_string(scales.size())};
    for (const std::string& scale : scales)
      all.insert(
          all.end(),
          {"--case", "{batch: q5s30, heads: 2, head_dim: 24, dtype: fp16, softmax_scale: " + scale + "}"});
    return all;
  };
  EXPECT_EQ(run_attnbench(scratch, args({"0.5"})).exit_code, 0);
  EXPECT_EQ(run_attnbench(scratch, args({"0.25", "0.5", "0.75"})).exit_code, 1);
  unsetenv("ATTNBENCH_TEST_END");
  const auto records = read_records(scratch.dir() / "out3");
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records[0]["status"], "pass");
  for (const std::size_t i : {1u, 2u}) {
    EXPECT_EQ(records[i]["status"], "fail");
    EXPECT_THAT(
        records[i]["check"]["clues"].dump(),
        StartsWith(
            "[\"the case passes alone in a new process, and so does the line that reproduces it: the kernel "
            "keeps something"));
    EXPECT_EQ(records[i]["check"]["clues"].size(), 1u);
  }
}

void expect_error(const std::vector<json>& records, const std::string& reason) {
  ASSERT_EQ(records.size(), 4u);
  for (const json& r : records) {
    if (r["kernel"] == "cpu") {
      EXPECT_EQ(r["status"], "pass") << r.value("reason", "");
    } else {
      EXPECT_EQ(r["status"], "error");
      EXPECT_THAT(r.value("reason", ""), StartsWith(reason));
    }
  }
}

TEST(CliState, WhatAKernelChangesIsItsErrorAndNoOtherKernels) {
  for (const auto& [way, words] : {
           std::pair("round", "the rounding mode (now downward)"),
           std::pair("flush", "flush to zero"),
           std::pair("umask", "umask"),
           std::pair("folder", "the working folder"),
           std::pair("signals", "the mask of signals"),
           std::pair("limit", "a limit of the process (setrlimit)"),
       }) {
    expect_error(run_beside_cpu(std::string("launch ") + way),
                 std::string("example: launch changed ") + words + " and did not change it back");
  }
}

TEST(CliState, EveryFunctionIsLookedAt) {
  for (const char* call : {"supports", "workspace_bytes", "plan", "launch", "numerics"}) {
    expect_error(run_beside_cpu(std::string(call) + " round"),
                 std::string("example: ") + call + " changed the rounding mode (now downward)");
  }
}

TEST(CliState, AWorkspaceThatNoMachineHasIsAnError) {
  expect_error(run_beside_cpu("workspace_bytes ask"),
               "example: workspace_bytes wants 1125899.91 GB; cpu has ");
}

TEST(CliState, ThreadsOfOpenMPAreLookedAt) {
#ifdef __clang__
  GTEST_SKIP() << "LLVM's OpenMP gives its threads the rounding mode of their caller";
#endif
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "OpenMP has one thread";
  for (const char* call : {"plan", "launch"}) {
    expect_error(
        run_beside_cpu(std::string(call) + " team"),
        std::string("example: ") + call + " changed the rounding mode (now downward) of OpenMP threads");
  }
}

TEST(CliState, InOneProcessTheNextKernelFindsItRestored) {
  expect_error(run_beside_cpu("launch round", {"--in-process"}), "example: launch changed the rounding mode");
}

TEST(CliState, EachPlugInHasAWorkerOfItsOwn) {
  const Scratch scratch;
  setenv("ATTNBENCH_TEST_END", "launch tell", 1);
  const Outcome o =
      run_attnbench(scratch, {"run", "--device", "cpu", "--plugin", plugin_of("ends"), "--plugin",
                              plugin_of("ends_too"), "--case", "{batch: q5, heads: 2, head_dim: 24}",
                              "--case", "{batch: q4, heads: 2, head_dim: 24}", "--kernel", "example,too,cpu",
                              "--no-time", "-q", "--out", "out"});
  unsetenv("ATTNBENCH_TEST_END");
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  std::map<std::string, std::set<std::string>> workers;
  const std::regex line("(example|too) in process ([0-9]+)");
  for (std::sregex_iterator i(o.err.begin(), o.err.end(), line), end; i != end; ++i)
    workers[(*i)[1]].insert((*i)[2]);
  ASSERT_EQ(workers["example"].size(), 1u) << o.err << "a worker is kept for its next case";
  ASSERT_EQ(workers["too"].size(), 1u) << o.err;
  EXPECT_NE(workers["example"], workers["too"]);
}

class CliStatePython : public PythonTest {};

TEST_F(CliStatePython, AKernelInPythonIsLookedAtToo) {
  copy("right.py", "k");
  scratch.write("k/rounds.py",
                "import ctypes\nimport attnbench as ab\nfrom attend import attend\n\n"
                "@ab.attention('packed causal bf16 fp32', device='cpu')\n"
                "def mine(c):\n"
                "  def launch():\n"
                "    attend(c)\n"
                "    ctypes.CDLL('libm.so.6').fesetround(0x400)\n"
                "  return launch\n");
  run(scratch.path("k/rounds.py"), {"--case", kPythonCase, "--kernel", "mine,cpu"});
  EXPECT_EQ(records["mine"]["status"], "error") << records["mine"];
  EXPECT_THAT(reason("mine"), HasSubstr("mine: launch changed the rounding mode (now downward)"));
  EXPECT_EQ(records["cpu"]["status"], "pass") << records["cpu"];
}

}  // namespace
}  // namespace attnbench::testing
