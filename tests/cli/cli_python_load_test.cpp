// Files in Python that cannot be loaded, and interpreters that cannot load them.
#include <gmock/gmock.h>

#include "tests/cli/python.h"

namespace attnbench::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CliPythonLoad : public PythonTest {
 protected:
  std::string script(const std::string& name, const std::string& text) const {
    std::string file = scratch.write(name, "#!/bin/sh\n" + text + "\n");
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    return file;
  }
};

constexpr const char* kKernel =
    "@ab.attention('packed causal bf16', device='cpu')\n"
    "def mine(c):\n"
    "    return lambda: None\n";

struct LoadMistake {
  std::string name, text;
  int exit_code;
  std::string says;
};

TEST_F(CliPythonLoad, EachMistakeIsOneSentenceWithItsPlace) {
  const LoadMistake mistakes[] = {
      {"syntax", "def f(:\n", 2, "SyntaxError: invalid syntax (syntax.py:2)"},
      {"missing", "import no_such_module\n", 2,
       "No module named 'no_such_module' (missing.py:2); install it for /"},
      {"raises", "def f():\n    raise KeyError('a\\nb')\nf()\n", 2, "KeyError: 'a\\nb' (raises.py:3)"},
      {"leaves", "import sys\nsys.exit('bye')\n", 2, "it called sys.exit('bye') (leaves.py:3)"},
      {"ends", "import os\nos._exit(3)\n", 5, "ended the process with exit code 3\n"},
      {"crashes", "import ctypes\nctypes.string_at(0)\n", 5,
       "ended the process by signal 11 (Segmentation fault); what it printed to stderr is above"},
      {"empty", "", 2,
       "it has no kernel: no function at its top level with @attnbench.attention, .attention_backward, .kv_append or .merge_states"},
      {"feature", "@ab.attention('packed casual')\ndef f(c): pass\n", 2,
       "ValueError: features='casual': did you mean 'causal'? one of alibi, append, "},
      {"device", "@ab.attention('packed', device='gpu')\ndef f(c): pass\n", 2,
       "ValueError: device='gpu': one of cpu, cuda required (device.py:2)"},
      {"type", "@ab.attention('packed', acc='int4')\ndef f(c): pass\n", 2,
       "ValueError: acc='int4': one of bf16, e2m1x2, e4m3, e5m2, fp16, fp32, int8 required (type.py:2)"},
      {"option", "@ab.attention('packed', heads=3)\ndef f(c): pass\n", 2,
       "attention() got an unexpected keyword argument 'heads' (option.py:2)"},
      {"bare", "@ab.attention\ndef f(c): pass\n", 2,
       "TypeError: attention needs features: @attnbench.attention(\"packed bf16\") (bare.py:2)"},
      {"none", "@ab.attention('', device='cpu')\ndef f(c): pass\n", 2,
       "kernel 1 (f) of its table has no features: no case could be given to it"},
      {"name", "@ab.attention('packed', name='Mine-2')\ndef f(c): pass\n", 2,
       "kernel 1 (Mine-2) of its table has a name that is not snake_case"},
      {"twice", std::string(kKernel) + kKernel, 2,
       "twice.py has a kernel mine for attention on cpu already; give one of them another name"},
      {"builtin", "@ab.attention('packed', device='cpu')\ndef cpu(c): pass\n", 2,
       "this program has a kernel cpu for attention on cpu already; give one of them another name"},
  };
  for (const LoadMistake& m : mistakes) {
    const std::string file = scratch.write(m.name + ".py", "import attnbench as ab\n" + m.text);
    const Outcome o = run(file, {"--case", kPythonCase});
    EXPECT_EQ(o.exit_code, m.exit_code) << m.name << o.err;
    EXPECT_THAT(o.err, AllOf(HasSubstr("error: --plugin " + file + ": "), HasSubstr(m.says)));
    EXPECT_FALSE(std::filesystem::exists(scratch.dir() / "out")) << m.name;
  }
}

TEST_F(CliPythonLoad, AFullDiskBehindStderrEndsNothing) {
  scratch.write("mine.py",
                "import sys\nimport attnbench as ab\nprint('hello', file=sys.stderr, flush=True)\n" +
                    std::string(kKernel) + "print('bye', file=sys.stderr)\n");
  const std::string line =
      "cd " + scratch.dir().string() + "; " + ATTNBENCH_PROGRAM + " kernels --plugin mine.py > out";
  EXPECT_EQ(std::system((line + " 2>/dev/full").c_str()), 0);
  EXPECT_EQ(std::system(("{ " + line + " || touch failed; } 2>&1 | true").c_str()), 0);
  EXPECT_FALSE(std::filesystem::exists(scratch.path("failed")));
}

TEST_F(CliPythonLoad, ATracebackBeginsInTheFileAndACrashNamesItsLine) {
  Outcome o =
      run(scratch.write("raises.py", "def f():\n    raise KeyError('a')\nf()\n"), {"--case", kPythonCase});
  EXPECT_THAT(o.err, StartsWith("Traceback (most recent call last):\n  File \"" + scratch.path("raises.py") +
                                "\", line 3, in <module>\n"));
  o = run(scratch.write("crashes.py", "import ctypes\nctypes.string_at(0)\n"), {"--case", kPythonCase});
  EXPECT_THAT(o.err, HasSubstr("File \"" + scratch.path("crashes.py") + "\", line 2 in <module>"));
}

TEST_F(CliPythonLoad, CommandsThatRunInTheInterpreterSayTheSame) {
  const std::string crashes = scratch.write("crashes.py", "import ctypes\nctypes.string_at(0)\n");
  const std::string ends = scratch.write("ends.py", "import os\nos._exit(0)\n");
  for (const std::string& file : {crashes, ends}) {
    Outcome o = run_attnbench(scratch, {"list", "--case", kPythonCase, "--plugin", file});
    EXPECT_EQ(o.exit_code, 5);
    EXPECT_THAT(o.err, HasSubstr("error: --plugin " + file + ": "));
    o = run(file, {"--case", kPythonCase, "--in-process"});
    EXPECT_EQ(o.exit_code, 5);
    EXPECT_THAT(o.err, HasSubstr("error: --plugin " + file + ": "));
  }
}

TEST_F(CliPythonLoad, WhatAFilePrintsIsNoPartOfItsDescription) {
  const std::string file =
      scratch.write("prints.py", std::string("import sys\nimport attnbench as ab\n"
                                             "print('o' * 3_000_000)\n"
                                             "print('e' * 3_000_000, file=sys.stderr)\n") +
                                     kKernel);
  const Outcome o = run(file, {"--case", kPythonCase, "--kernel", "mine"});
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_THAT(reason("mine"), HasSubstr("what is not written is NaN"));
  EXPECT_LT(o.out.size(), 10'000u);
}

TEST_F(CliPythonLoad, TwoFilesMayNotHaveAKernelOfOneName) {
  const Outcome o =
      run(python_fixture("right.py"), {"--case", kPythonCase, "--plugin", python_fixture("wrong.py")});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("--plugin " + python_fixture("wrong.py") + ": " + python_fixture("right.py") +
                               " has a kernel mine for attention on cpu already"));
  EXPECT_EQ(run("nowhere.py", {"--case", kPythonCase}).exit_code, 2);
}

TEST_F(CliPythonLoad, TheInterpreterIsChosenAndNamedInErrors) {
  const std::string file = python_fixture("right.py");
  const auto with = [&](const std::string& python) {
    return run(file, {"--case", kPythonCase, "--python", python});
  };
  for (const char* nowhere : {"no_such_python", "./no_such_python"}) {
    const Outcome o = with(nowhere);
    EXPECT_EQ(o.exit_code, 2);
    EXPECT_THAT(o.err, HasSubstr(std::string("--python ") + nowhere + ": there is no such program"));
  }
  Outcome o = with("/bin/false");
  EXPECT_EQ(o.exit_code, 5);
  EXPECT_THAT(
      o.err,
      HasSubstr("opening it, which runs its top level in /bin/false, ended the process with exit code 1\n"));
  o = with(script("bare_python", "exec python3 -S \"$@\""));  // without site-packages
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("No module named 'numpy' (right.py:3)"), HasSubstr("; install it for /"),
                           HasSubstr(", or name another interpreter by --python")));

  // The interpreter of a virtual environment precedes python3 of PATH. A missing one is passed over.
  std::filesystem::create_directories(scratch.dir() / "venv" / "bin");
  setenv("VIRTUAL_ENV", scratch.path("venv").c_str(), 1);
  EXPECT_EQ(run(file, {"--case", kPythonCase, "--kernel", "mine"}).exit_code, 0);
  script("venv/bin/python", "exit 9");
  o = run(file, {"--case", kPythonCase});
  unsetenv("VIRTUAL_ENV");
  EXPECT_THAT(o.err, HasSubstr(scratch.path("venv/bin/python") + ", ended the process with exit code 9"));
}

TEST_F(CliPythonLoad, NamesThatAreNoUtf8OfTheLocaleAreRead) {
  const std::string file = copy("right.py", "ü");
  setenv("LC_ALL", "C", 1);
  setenv("PYTHONUTF8", "0", 1);
  setenv("PYTHONCOERCECLOCALE", "0", 1);
  EXPECT_EQ(run(file, {"--case", kPythonCase, "--kernel", "mine"}).exit_code, 0);
  const Outcome o = run(scratch.write("ö.py", "raise ValueError('ä')\n"), {"--case", kPythonCase});
  for (const char* name : {"LC_ALL", "PYTHONUTF8", "PYTHONCOERCECLOCALE"}) unsetenv(name);
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("ValueError: ä ("));
}

}  // namespace
}  // namespace attnbench::testing
