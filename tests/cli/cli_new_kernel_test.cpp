// attnbench new-kernel: each start passes as it is written, and names that would fail later are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "harness/device/sanitized.h"
#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Whether a shell command succeeds; its output is dropped.
bool works(const std::string& command) { return std::system((command + " >/dev/null 2>&1").c_str()) == 0; }

/// Runs the first cases of smoke.yaml; a case passes, or the kernel refuses it.
void expect_passes(const Scratch& scratch, const std::string& plugin, const std::string& kernel) {
  const Outcome o = run_attnbench(
      scratch,
      {"run", source_path("configs/smoke.yaml"), "--device", "cpu", "--plugin", plugin, "--kernel", kernel,
       "--filter", "^attention/pa.*/(bf16|fp16)/h4-2/d(3|64|96)/causal/", "--no-time", "-q", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  const auto records = read_records(scratch.dir() / "out");
  const auto passed =
      std::count_if(records.begin(), records.end(), [](const json& r) { return r["status"] == "pass"; });
  EXPECT_GT(passed, 20) << o.out;
  for (const json& r : records) EXPECT_THAT(r["status"], ::testing::AnyOf("pass", "skip")) << r["id"];
}

/// The printed command that begins with this word, up to a remark.
std::string command_of(const std::string& printed, const std::string& first) {
  const std::size_t at = printed.find("\n  " + first + " ");
  if (at == printed.npos) return "";
  const std::string line = printed.substr(at + 3, printed.find('\n', at + 1) - at - 3);
  return line.substr(0, line.find("    #"));
}

/// Runs the printed compiler's command, with this compiler and with the headers of this source tree.
std::string compile(const Scratch& scratch, const std::string& printed, const std::string& compiler,
                    const std::string& by) {
  std::string line = command_of(printed, compiler);
  if (line.empty()) return "no command in: " + printed;
  line.replace(0, compiler.size(), by);
  const std::size_t include = line.find(" -I ") + 4;
  line.replace(include, line.find(' ', include) - include, source_path(""));
  return works("cd " + scratch.dir().string() + " && " + line) ? "" : line;
}

class CliNewKernelPython : public ::testing::TestWithParam<const char*> {};

TEST_P(CliNewKernelPython, PassesAsWritten) {
  if (kSanitized) GTEST_SKIP() << "an interpreter without the sanitizer cannot load libattnbench.so";
  setenv("PYTHONDONTWRITEBYTECODE", "1", 1);  // tests write to the build folder only
  const std::string module = GetParam();
  const char* venv = std::getenv("VIRTUAL_ENV");
  const std::string python = venv != nullptr && *venv != '\0' ? std::string(venv) + "/bin/python" : "python3";
  if (!works(python + " -c 'import " + module + "'")) GTEST_SKIP() << "Python has no " << module;
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"new-kernel", "mine.py", "--" + module});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("wrote mine.py"), HasSubstr("--plugin mine.py --kernel mine")));
  expect_passes(scratch, "mine.py", "mine");
}

TEST(CliNewKernel, PInTheTypeOfTheInputsFollowsTheCase) {
  if (kSanitized || !works("python3 -c 'import numpy'")) GTEST_SKIP() << "no python3 with NumPy";
  unsetenv("VIRTUAL_ENV");
  const Scratch scratch;
  EXPECT_EQ(run_attnbench(scratch, {"new-kernel", "a.py", "--numpy"}).exit_code, 0);
  std::string text = read_text(scratch.path("a.py"));
  const std::string p = "p=\"fp32\"";
  ASSERT_THAT(text, HasSubstr(p));
  scratch.write("a.py", text.replace(text.find(p), p.size(), "p=\"input\""));
  const auto run = [&](const std::string& dtype) {
    return run_attnbench(
        scratch,
        {"run", "--case", "{batch: q5, heads: 2, head_dim: 8, dtype: " + dtype + "}", "--device", "cpu",
         "--plugin", "a.py", "--kernel", "a", "--no-time", "-q", "--require", "p=fp32", "--out", "out"});
  };
  EXPECT_THAT(run("bf16").out, HasSubstr("the kernel declares P in bf16"));
  EXPECT_THAT(run("fp16").out, HasSubstr("the kernel declares P in fp16"));
  EXPECT_EQ(run("fp32").exit_code, 0);
}

INSTANTIATE_TEST_SUITE_P(Starts, CliNewKernelPython, ::testing::Values("numpy", "torch"),
                         [](const auto& row) { return std::string(row.param); });

TEST(CliNewKernel, APythonFileIsAStartInTorchWithoutAFlag) {
  const Scratch scratch;
  EXPECT_EQ(run_attnbench(scratch, {"new-kernel", "a.py"}).exit_code, 0);
  EXPECT_THAT(read_text(scratch.path("a.py")), AllOf(HasSubstr("import torch\n"), HasSubstr("def a(c):")));
  EXPECT_EQ(run_attnbench(scratch, {"new-kernel", "b.py", "--triton"}).exit_code, 0);
  EXPECT_THAT(read_text(scratch.path("b.py")), AllOf(HasSubstr("import triton\n"), HasSubstr("def b(c):")));
}

TEST(CliNewKernel, CppPassesAsWritten) {
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"new-kernel", "mine.cpp"});
  ASSERT_EQ(o.exit_code, 0) << o.err;
  ASSERT_EQ(compile(scratch, o.out, "g++", ATTNBENCH_CXX), "");
  expect_passes(scratch, "./mine.so", "mine");
  const std::string run = command_of(o.out, "attnbench");
  ASSERT_THAT(run, HasSubstr(" --plugin mine.so --kernel mine --device cpu"));
  EXPECT_TRUE(
      works("cd " + scratch.dir().string() + " && " + ATTNBENCH_PROGRAM + run.substr(9) + " --no-time"))
      << run;
}

TEST(CliNewKernel, CudaCompilesAsWritten) {
  if (!works("command -v nvcc")) GTEST_SKIP() << "no nvcc";
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"new-kernel", "mine.cu"});
  ASSERT_EQ(o.exit_code, 0) << o.err;
  ASSERT_EQ(compile(scratch, o.out, "nvcc", "nvcc"), "");
  EXPECT_THAT(run_attnbench(scratch, {"kernels", "--plugin", "./mine.so"}).out, HasSubstr("mine"));
}

TEST(CliNewKernel, RefusesWhatWouldFailLater) {
  const Scratch scratch;
  const auto refusal = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "new-kernel");
    const Outcome o = run_attnbench(scratch, words);
    EXPECT_EQ(o.exit_code, 2) << words[1];
    return o.err;
  };
  scratch.write("mine.py", "# mine\n");
  EXPECT_THAT(refusal({"mine.py"}), HasSubstr("mine.py: the file exists; name another one"));
  EXPECT_EQ(read_text(scratch.path("mine.py")), "# mine\n");
  EXPECT_THAT(refusal({"MyKernel-2.py"}), HasSubstr("in snake_case; name it my_kernel_2.py"));
  EXPECT_THAT(refusal({"sub/3d.cu"}), HasSubstr("name it sub/kernel_3d.cu"));
  EXPECT_THAT(refusal({"torch.py"}),
              HasSubstr("torch means something else in C++ or Python; name it my_torch.py"));
  EXPECT_THAT(refusal({"cpu.cpp"}), HasSubstr("attnbench has a kernel named cpu; name it my_cpu.cpp"));
  EXPECT_THAT(refusal({"mine"}), HasSubstr("must end in .py, .cpp or .cu"));
  EXPECT_THAT(refusal({"mine.cpp", "--cuda"}), HasSubstr("--cuda writes a .cu file; name it mine.cu"));
  EXPECT_THAT(refusal({"a.py", "--numpy", "--torch"}), HasSubstr("contradict each other: give one of them"));
  EXPECT_THAT(refusal({"no_folder/a.py"}), HasSubstr("no_folder/a.py: error: cannot write"));
}

}  // namespace
}  // namespace attnbench::testing
