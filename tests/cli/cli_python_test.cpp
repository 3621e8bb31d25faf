// Kernels written in Python, as a user runs them: what each command does with a correct one, and what is
// reported of those that go wrong. Files that cannot be loaded: cli_python_load_test.cpp.
#include <gmock/gmock.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/cli/python.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class CliPython : public PythonTest {};

TEST_F(CliPython, EachMistakeOfAKernelIsToldAndTheOthersGoOn) {
  const Outcome o = run(python_fixture("states.py"), {"--case", kPythonCase, "--timeout", "5"});
  EXPECT_EQ(o.exit_code, 5) << o.err;
  for (const char* name : {"cpu", "first", "prints", "last"})
    EXPECT_EQ(records[name]["status"], "pass") << name;

  EXPECT_EQ(records["wrong"]["status"], "fail");
  EXPECT_THAT(reason("wrong"), ContainsRegex("^O of seq 0 pos . head . channel .: got .*, expected "));
  EXPECT_THAT(records["wrong"]["check"]["clues"].at(0), HasSubstr("wrong, in O alone; their LSE is right"));
  EXPECT_EQ(records["silent"]["status"], "fail");
  EXPECT_THAT(reason("silent"), HasSubstr("is NaN, expected a finite number (what is not written is NaN"));

  EXPECT_EQ(records["unsupported"]["status"], "skip");
  EXPECT_EQ(reason("unsupported"), "unsupported: head_dim 128 required");
  EXPECT_EQ(records["only_64"]["status"], "skip");
  EXPECT_EQ(reason("only_64"), "only_64: head_dim 64, 128 required, given 8");

  const std::map<std::string, std::string> errors = {
      {"raises_in_build",
       "raises_in_build: plan failed: ValueError: no build of this \\(states.py:[0-9]+\\)"},
      {"raises_in_launch",
       "raises_in_launch: launch failed: ValueError: no launch of this \\(states.py:[0-9]+\\)"},
      {"speaks_long", "speaks_long: plan failed: ValueError: ü"},
      {"no_callable",
       "no_callable must return the launch, a function without arguments; it returned NoneType"},
      {"exits", "exits: launch failed: it called sys.exit\\(3\\) \\(states.py:[0-9]+\\)"},
      {"ends", "the worker process ended with exit code 7"},
      {"crashes", "the worker process was killed by signal 11 \\(Segmentation fault\\) in launch of crashes"},
  };
  for (const auto& [name, text] : errors) {
    EXPECT_EQ(records[name]["status"], "error") << name;
    EXPECT_THAT(reason(name), ContainsRegex(text));
  }
  EXPECT_EQ(records["loops"]["status"], "timeout");
  EXPECT_THAT(reason("loops"), HasSubstr("no result within 5 s (--timeout)"));
  // The traceback begins in the user's file.
  EXPECT_THAT(o.out, HasSubstr("| Traceback (most recent call last):\n  |   File \"" +
                               python_fixture("states.py") + "\", line "));
  EXPECT_THAT(o.err, Not(HasSubstr("Traceback"))) << "it is shown once";
  EXPECT_THAT(o.out, Not(HasSubstr("ooooo"))) << "what a kernel prints is not in the table";
  EXPECT_LT(o.out.size(), 100'000u);
}

TEST_F(CliPython, OutputsMayBeReturned) {
  const std::string file = python_fixture("returned.py");
  const std::string paged = "{batch: [1q1s5, 1q1s21], kv: paged, block_size: 16, heads: 4/2, head_dim: 8}";
  Outcome o = run(file, {"--case", kPythonCase, "--check", "full,invariants"});
  for (const char* name : {"returns", "other_layouts", "no_lse", "writes_base2", "returns_its_out"})
    EXPECT_EQ(records[name]["status"], "pass") << name << records[name];
  EXPECT_EQ(records["no_lse"]["check"]["numerics"]["no_lse"], true);
  EXPECT_EQ(records["no_lse"]["check"]["lse_max_z"], 0);
  EXPECT_THAT(o.out, HasSubstr("no_lse"));
  EXPECT_THAT(o.out, HasSubstr("acc fp32, p fp32, exp_rel_err 2^-22, no LSE"));

  const std::map<std::string, std::string> errors = {
      {"wrong_shape", "launch failed: wrong_shape returned O of shape \\(.*, .*\\); \\(.*, 2, 8\\) required"},
      {"wrong_type",
       "launch failed: wrong_type returned O in float32; bfloat16, in NumPy its bits as uint16, required"},
      {"forgets_lse", "returned no LSE; return \\(O, LSE\\), or declare lse=\"none\""},
      {"returns_nothing", "returned O as NoneType; a tensor is required"},
      {"returns_q", "returned O in the memory of its input q"},
      {"read_only", "returned O as a read-only array"},
  };
  for (const auto& [name, text] : errors) {
    EXPECT_EQ(records[name]["status"], "error") << name;
    EXPECT_THAT(reason(name), ContainsRegex(text));
  }
  EXPECT_EQ(records["natural_not_base2"]["status"], "fail");
  EXPECT_THAT(records["natural_not_base2"]["check"]["clues"].dump(), HasSubstr("base 2"));
  EXPECT_EQ(records["keeps_result"]["status"], "fail") << "it returns what the harness has overwritten";

  o = run(file,
          {"--case", "{batch: q5s3_q2_q4s0, heads: 4/2, head_dim: 8, mask: causal, allow_short_kv: true}",
           "--check", "full,invariants"});
  for (const char* name : {"returns", "no_lse", "plus_inf", "plus_inf_base2"})
    EXPECT_EQ(records[name]["status"], "pass") << name << records[name];
  EXPECT_THAT(reason("undeclared_inf"), HasSubstr("is inf, expected -inf (the row sees no key)"));
  EXPECT_THAT(reason("minus_inf"), HasSubstr("is -inf, expected inf (the row sees no key)"));

  o = run(file, {"--case", paged});
  EXPECT_EQ(records["needs_finite"]["status"], "pass") << records["needs_finite"];
  EXPECT_EQ(records["needs_finite"]["check"]["numerics"]["finite_padding"], true);
  EXPECT_EQ(records["meets_nan"]["status"], "fail");

  const std::string two = "{batch: 1q1s5_1q1s21, kv: paged, block_size: 16, heads: 4/2, head_dim: 8}";
  run(file,
      {"--case", two, "--check", "full,invariants", "--kernel", "keeps_lengths", "--kernel", "says_so"});
  EXPECT_NE(records["keeps_lengths"]["status"], "pass")
      << "replay gives it entries of the table that are junk";
  EXPECT_EQ(records["says_so"]["status"], "pass") << records["says_so"];
  EXPECT_EQ(records["says_so"]["check"]["numerics"]["host_lengths"], true);

  o = run_attnbench(scratch, {"kernels", "--plugin", file});
  EXPECT_THAT(o.out, AllOf(HasSubstr("    outputs   returned in memory of the kernel\n"),
                           HasSubstr("    limits    no LSE, finite padding\n")));
  o = run(file, {"--case", "{batch: 2q1s40, kv: paged, path: dcp, heads: 4/2, head_dim: 8, mask: none}",
                 "--kernel", "meets_nan"});
  EXPECT_THAT(o.out, HasSubstr("needs a kernel that writes O and LSE as the contract says"));
}

TEST_F(CliPython, TritonRunsInItsInterpreter) {
  // The interpreter of Triton 3.6 converts arrays of one element to numbers, which NumPy 2.5 refuses.
  constexpr const char* kHasTriton =
      "python3 -c 'import torch, triton; assert triton.__version__ >= \"3.9\"' > /dev/null 2>&1";
  if (std::system(kHasTriton) != 0) GTEST_SKIP() << "no python3 with torch and Triton 3.9";
  setenv("TRITON_INTERPRET", "1", 1);
  run(source_path("kernels/examples/triton_paged_kernel.py"),
      {"--case",
       "{kv: paged, batch: q2s19_q1s5, heads: 4/2, head_dim: 16, block_size: 16, mask: causal, dtype: fp16}"});
  unsetenv("TRITON_INTERPRET");
  EXPECT_EQ(records["triton_paged_decode"]["status"], "pass") << records["triton_paged_decode"];
}

TEST_F(CliPython, RunsInThisProcessAndInWorkers) {
  for (const char* mode : {"--in-process", "--workers=2"}) {
    const Outcome o =
        run(python_fixture("right.py"),
            {"--case", kPythonCase, "--case", "{batch: 2q3s7, heads: 4/2, head_dim: 16, dtype: fp32}",
             "--kernel", "mine", "--check", "full,invariants", mode});
    EXPECT_EQ(o.exit_code, 0) << mode << o.out << o.err;
    EXPECT_THAT(o.out, HasSubstr("2 passed, 0 failed, 0 skipped, 0 errors")) << mode;
  }
  EXPECT_EQ(plugin()["kernels"], json::array({"mine"}));
  EXPECT_THAT(plugin()["digest"].get<std::string>(), ContainsRegex("^[0-9a-f]{16}$"));
  EXPECT_THAT(plugin()["versions"]["python"].get<std::string>(), StartsWith("3."));
  EXPECT_TRUE(plugin()["versions"].contains("numpy"));
  EXPECT_EQ(run(python_fixture("wrong.py"), {"--case", kPythonCase, "--in-process"}).exit_code, 1);
}

TEST_F(CliPython, IsListedSelftestedFuzzedAndProfiled) {
  const std::string file = python_fixture("right.py");
  Outcome o = run_attnbench(scratch, {"kernels", "--plugin", file});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, AllOf(HasSubstr("mine (attention, cpu): attention in NumPy, for tests\n"),
                           HasSubstr("    from      " + file + "\n")));
  o = run_attnbench(scratch, {"list", "--case", kPythonCase, "--kernel", "mine", "--plugin", file});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("1 run on cpu"));
  EXPECT_THAT(run_attnbench(scratch, {"kernels", "--plugin", python_fixture("states.py")}).out,
              AllOf(HasSubstr("\nlast (attention, cpu): a kernel in Python\n"),
                    HasSubstr("\nlast (attention, cuda")));

  o = run_attnbench(scratch, {"selftest", "--device", "cpu", "--plugin", file, "--kernel", "mine", "--filter",
                              "^mask/causal_ignored", "--seeds", "1", "-q", "--out", "s"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("1 of 1 faults caught"));

  o = run_attnbench(scratch, {"fuzz", "--device", "cpu", "--plugin", file, "--kernel", "mine", "--cases",
                              "60", "--seed", "1", "--out", "f"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, ContainsRegex("seed 1: [1-9][0-9]* ran, [0-9]+ skipped, 0 failed"));

  const std::vector<std::string> profile = {"profile", "--case",   kPythonCase, "--device",
                                            "cpu",     "--plugin", file};
  o = run_attnbench(scratch, profile);
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("mine on cpu: 3 warm-up launches"));
  auto dry = profile;
  dry.insert(dry.end(), {"--dry-run", "--python", "python3"});
  EXPECT_THAT(run_attnbench(scratch, dry).out,
              ContainsRegex(" --plugin " + file + " --python /.*/python3\n"));
}

TEST_F(CliPython, TheGateComparesTwoFiles) {
  const auto gate = [&](const std::string& fresh, const std::string& old) {
    return run_attnbench(scratch, {"gate", "--case", kPythonCase, "--device", "cpu", "--no-time", "-q",
                                   "--out", "g", "--plugin", fresh, "--against-plugin", old});
  };
  const std::string old = copy("right.py", "old");
  Outcome o = gate(python_fixture("right.py"), old);
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.out, HasSubstr("gate: no case incorrect or missing; exit code 0"));
  o = gate(python_fixture("wrong.py"), old);
  EXPECT_EQ(o.exit_code, 1) << o.out << o.err;
  o = gate(old, scratch.write("bad.py", "import attnbench as ab\nx = \n"));
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("--against-plugin " + scratch.path("bad.py") +
                               ": SyntaxError: invalid syntax (bad.py:2)"));
}

TEST_F(CliPython, ResumeTakesTheSameSourcesOnly) {
  const std::string file = copy("right.py", "d");
  const std::vector<std::string> resume = {"run",      "--case",   kPythonCase, "--kernel", "mine",
                                           "--device", "cpu",      "--plugin",  file,       "--no-time",
                                           "-q",       "--resume", "out"};
  ASSERT_EQ(run(file, {"--case", kPythonCase, "--kernel", "mine"}).exit_code, 0);
  const json before = plugin();
  EXPECT_EQ(run_attnbench(scratch, resume).exit_code, 0);
  std::ofstream(scratch.dir() / "d" / "attend.py", std::ios::app) << "\n";  // a module that the file imports
  const Outcome o = run_attnbench(scratch, resume);
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("the folder holds another run (plug-ins: " + file + " changed since ("));
  ASSERT_EQ(run(file, {"--case", kPythonCase, "--kernel", "mine"}).exit_code, 0);
  EXPECT_NE(plugin()["digest"], before["digest"]);
  EXPECT_EQ(plugin()["versions"], before["versions"]);
}

TEST_F(CliPython, WhatFailedLastIsRepeated) {
  const std::string sweep =
      scratch.write("two.yaml", "name: two\nsweeps: [{batch: [q5, q6], heads: 2, head_dim: 8}]\n");
  const std::string file = scratch.write("odd.py",
                                         "import attnbench as ab\n"
                                         "@ab.attention('packed bf16', device='cpu')\n"
                                         "def odd(c):\n"
                                         "    return lambda: None\n");
  EXPECT_EQ(run(file, {sweep}).exit_code, 1);
  const Outcome o = run(file, {sweep, "--last-failed"});
  EXPECT_EQ(o.exit_code, 1) << o.err;
  EXPECT_THAT(o.out, HasSubstr("0 passed, 2 failed, 0 skipped, 0 errors")) << "odd alone";
}

TEST_F(CliPython, TheReproLineWorksFromAnotherFolder) {
  const std::string file = copy("wrong.py", "a b/ü'");
  scratch.write("py", "#!/bin/sh\nexec python3 \"$@\"\n");
  std::filesystem::permissions(scratch.path("py"), std::filesystem::perms::owner_all);
  const Outcome o = run("a b/ü'/wrong.py", {"--case", kPythonCase, "--python", "./py"});
  EXPECT_EQ(o.exit_code, 1) << o.err;
  const std::string line = records["mine"]["repro"];
  EXPECT_THAT(line, EndsWith(" --python " + scratch.path("py")));
  const Scratch elsewhere;
  const std::string shell = "cd " + elsewhere.dir().string() + " && " + ATTNBENCH_PROGRAM +
                            line.substr(line.find(' ')) + " -q --out again > shell.txt 2>&1";
  EXPECT_EQ(WEXITSTATUS(std::system(shell.c_str())), 1) << shell;
  const auto again = read_records(elsewhere.dir() / "again");
  ASSERT_EQ(again.size(), 1u) << shell;
  EXPECT_EQ(again[0]["check"]["max_z"], records["mine"]["check"]["max_z"]);
}

TEST_F(CliPython, TwoFilesOfAFolderAndModulesOfOneNameLiveTogether) {
  const std::string right = copy("right.py", "one"), second = scratch.path("one/second.py");
  std::filesystem::copy_file(python_fixture("wrong.py"), second);
  const std::string third = copy("right.py", "two");
  for (const auto& [file, name] : {std::pair(second, "second"), std::pair(third, "third")}) {
    std::string text = read_text(file);
    text.replace(text.find("def mine"), 8, std::string("def ") + name);
    std::ofstream(file) << text;
  }
  // The third file's `attend` is another one than the first's.
  std::ofstream(scratch.dir() / "two" / "attend.py", std::ios::app)
      << "\nright = attend\n\ndef attend(c, error=0.0):\n    right(c, 1.0)\n";
  const Outcome o = run(right, {"--case", kPythonCase, "--plugin", second, "--plugin", third});
  EXPECT_EQ(o.exit_code, 1) << o.err;
  EXPECT_EQ(records["mine"]["status"], "pass");
  EXPECT_EQ(records["second"]["status"], "fail");
  EXPECT_EQ(records["third"]["status"], "fail");
}

TEST_F(CliPython, TheSourceRunsAndNotAStaleCompiledOne) {
  unsetenv("PYTHONDONTWRITEBYTECODE");
  const std::string file = copy("wrong.py", "d");
  const auto written = std::filesystem::last_write_time(file);
  EXPECT_EQ(run(file, {"--case", kPythonCase}).exit_code, 1);
  std::string text = read_text(file);
  text.replace(text.find("error=0.5"), 9, "error=0.0");  // of the same size
  std::ofstream(file) << text;
  std::filesystem::last_write_time(file, written);
  EXPECT_EQ(run(file, {"--case", kPythonCase}).exit_code, 0);
}

TEST_F(CliPython, AFileThatChangesWhileTheRunGoesOnIsAnError) {
  const std::string file = scratch.write("edits.py",
                                         "import os, time\n"
                                         "import attnbench as ab\n"
                                         "@ab.attention('packed bf16', device='cpu')\n"
                                         "def edits(c):\n"
                                         "    open('/dev/shm/attnbench_edits', 'w').close()\n"
                                         "    while os.path.exists('/dev/shm/attnbench_edits'):\n"
                                         "        time.sleep(0.01)\n"
                                         "    os._exit(1)  # the next case needs a new worker\n");
  const std::filesystem::path runs = "/dev/shm/attnbench_edits";
  std::filesystem::remove(runs);
  std::thread editor([&] {
    while (!std::filesystem::exists(runs)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::ofstream(file, std::ios::app) << "#";
    std::filesystem::remove(runs);
  });
  const Outcome o = run(file, {"--case", "{batch: [q5, q6], heads: 2, head_dim: 8}", "--kernel", "edits"});
  editor.join();
  EXPECT_EQ(o.exit_code, 5);
  EXPECT_THAT(o.err,
              HasSubstr("--plugin " + file + ": the file was changed or built anew while the run went on"));
}

}  // namespace
}  // namespace attnbench::testing
