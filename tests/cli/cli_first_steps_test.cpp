// What a first-time user meets: files to begin with, slips of the hand, and what a run says of itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <sstream>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string plugin_file(const std::string& name) {
  return std::string(ATTNBENCH_PLUGIN_DIR) + "/" + name + ".so";
}

TEST(CliFirstSteps, InitWritesASweepThatLists) {
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"init", "mine.yaml"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  const Outcome listed = run_attnbench(scratch, {"list", "mine.yaml", "--device", "cpu"});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(listed.out, AllOf(HasSubstr("h32-8/d128/causal/4q512 "), HasSubstr("12 cases (")));
  EXPECT_THAT(listed.err, Not(HasSubstr("note:")));
  const Outcome again = run_attnbench(scratch, {"init", "mine.yaml"});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("the file exists"));
  EXPECT_THAT(run_attnbench(scratch, {"init", "mine"}).err, HasSubstr("must end in .yaml"));
}

TEST(CliFirstSteps, ModelsStandForTheirKeys) {
  const Scratch scratch;
  scratch.write("m.yaml",
                "name: m\ndefaults: {heads: 8/8}\nsweeps:\n"
                "  - {name: list, kv: packed, batch: q64, model: [qwen2.5-7b, gpt-oss-120b]}\n"
                "  - {name: beside, kv: packed, batch: q64, model: gemma-2-9b, softcap: 0}\n");
  const Outcome o = run_attnbench(scratch, {"list", "m.yaml", "--device", "cpu"});
  EXPECT_THAT(o.out, AllOf(HasSubstr("/h28-4/d128/full/q64 "), HasSubstr("/h64-8/d64/full/sinks/q64 "),
                           HasSubstr("/h16-8/d256/full/q64 ")))
      << o.err;
  EXPECT_THAT(run_attnbench(scratch, {"list", "--models"}).out,
              HasSubstr("| `qwen2.5-7b` | `heads: 28/4, head_dim"));
  EXPECT_THAT(
      run_attnbench(scratch, {"list", "--case", "{model: gpt-oss-12b, batch: q4}"}).err,
      HasSubstr("--case:1:9: error: key 'model': unknown model 'gpt-oss-12b'; did you mean 'gpt-oss-120b'?"));
  EXPECT_THAT(run_attnbench(scratch, {"list", "m.yaml", "--set", "model=qwen3-8b"}).err,
              HasSubstr("set them one by one"));
  scratch.write("d.yaml",
                "name: m\ndefaults: {model: [qwen3-8b]}\nsweeps:\n  - {name: a, kv: packed, batch: q64}\n");
  EXPECT_THAT(run_attnbench(scratch, {"list", "d.yaml"}).err,
              HasSubstr("a list of models belongs in a sweep"));
}

TEST(CliFirstSteps, ModelsHaveOtherSpellingsAndLayers) {
  const Scratch scratch;
  const auto listed = [&](const std::string& model) {
    const Outcome o = run_attnbench(
        scratch, {"list", "--case", "{mask: causal, batch: q64, model: '" + model + "'}", "--device", "cpu"});
    return o.exit_code == 0 ? o.out.substr(0, o.out.find("  ")) : o.err;
  };
  EXPECT_THAT(listed("meta-llama/Llama-3.1-8B"), HasSubstr("/h32-8/d128/causal/"));
  for (const char* same :
       {"meta-llama/Meta-Llama-3.1-8B-Instruct", "unsloth/llama-3.1-8b-instruct", "Llama-3.1-8B"})
    EXPECT_EQ(listed(same), listed("llama-3.1-8b")) << same;
  EXPECT_EQ(listed("google/gemma-3-27b-it"), listed("gemma-3-27b"));
  EXPECT_EQ(listed("mistralai/Mistral-7B-Instruct-v0.1"), listed("mistral-7b-v0.1"));
  EXPECT_EQ(listed("mistralai/Mistral-7B-Instruct-v0.3"), listed("mistral-7b"));
  EXPECT_EQ(listed("deepseek-ai/DeepSeek-V3"), listed("deepseek-v3-mla"));
  EXPECT_EQ(listed("moonshotai/Kimi-K2-Instruct"), listed("kimi-k2"));
  EXPECT_EQ(listed("meta-llama/Llama-4-Scout-17B-16E-Instruct"), listed("llama-4-scout"));
  const std::pair<const char*, const char*> shapes[] = {
      {"qwen3-32b", "/h64-8/d128/"},
      {"gemma-3-27b", "/h32-16/d128/causal/scale0.077152/"},
      {"gemma-3-27b-local", "/window1023,-1"},
      {"gemma-2-9b-local", "/softcap50"},
      {"gpt-oss-20b", "/h64-8/d64/causal/sinks/"},
      {"gpt-oss-20b-local", "/window127,-1"},
      {"phi-4", "/h40-10/d128/"},
      {"glm-4.5", "/h96-8/d128/"},
      {"kimi-k2", "/h64-1/d576-512-v_is_k/"},
      {"llama-4-scout-local", "/chunk8192"},
      {"falcon-7b", "/h71-1/d64/"},
      {"mpt-7b", "/alibi-per_head"},
      {"stablelm-3b", "/d80/"},
  };
  for (const auto& [model, part] : shapes) EXPECT_THAT(listed(model), HasSubstr(part)) << model;
  EXPECT_THAT(listed("microsoft/Phi-4-mini-instruct"), HasSubstr("unknown model")) << "it has another shape";
}

TEST(CliFirstSteps, SweepsThatComeWithTheProgramGoByTheirNames) {
  const Scratch scratch;
  const auto cases = [&](const std::string& config) {
    const Outcome o = run_attnbench(scratch, {"list", config, "--device", "cpu"});
    EXPECT_EQ(o.exit_code, 0) << config << o.err;
    return o.out;
  };
  const std::string smoke = cases(source_path("configs/smoke.yaml"));
  EXPECT_EQ(cases("smoke"), smoke);
  EXPECT_EQ(cases("smoke.yaml"), smoke);
  EXPECT_EQ(cases("peers/vllm"), cases(source_path("configs/peers/vllm.yaml")));
  const Outcome unknown = run_attnbench(scratch, {"run", "smok"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("smok: error: cannot read: No such file here"),
                                 HasSubstr("did you mean 'smoke'? there are ci, dcp, gate, golden, "),
                                 HasSubstr(", peers/vllm, "), Not(HasSubstr("schema"))));
  EXPECT_THAT(
      run_attnbench(scratch, {"list", "./smoke"}).err,
      HasSubstr("./smoke: error: cannot read: No such file here; the sweep that comes with attnbench has the "
                "name 'smoke', without a folder"));
  EXPECT_THAT(run_attnbench(scratch, {"list", "configs/gate.yaml"}).err, HasSubstr("has the name 'gate'"));
  EXPECT_THAT(run_attnbench(scratch, {"list", "configs/nothing.yaml"}).err, Not(HasSubstr("comes with")));
  // What lies in the working folder comes first.
  const std::string other = "name: m\nsweeps: [{batch: q7}]\n";
  scratch.write("smoke.yaml", other);
  EXPECT_THAT(cases("smoke"), HasSubstr("/q7 "));
  scratch.write("gate", other);
  EXPECT_THAT(cases("gate"), HasSubstr("/q7 "));
}

TEST(CliFirstSteps, TheFolderOfTheHeadersIsPrinted) {
  const Outcome o = run_attnbench(Scratch(), {"--include-dir"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_TRUE(std::filesystem::exists(o.out.substr(0, o.out.find('\n')) + "/kernels/contract/plugin.h"))
      << o.out;
}

TEST(CliFirstSteps, AnOptionBeforeTheCommandIsNamed) {
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"--kernel", "cpu", "run", "x.yaml"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("option '--kernel' stands before the command"),
                           HasSubstr("write 'attnbench run --kernel ...'"), Not(HasSubstr("did you mean"))));
  EXPECT_THAT(run_attnbench(scratch, {"-q", "run", "x.yaml"}).err,
              HasSubstr("option '-q' stands before the command"));
}

TEST(CliFirstSteps, WhatDoesNothingLeavesNothing) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch.dir() / "empty");
  const Outcome resumed = run_attnbench(
      scratch, {"run", "--case", "{kv: packed, batch: q4}", "--device", "cpu", "--resume", "empty"});
  EXPECT_EQ(resumed.exit_code, 2);
  EXPECT_THAT(resumed.err, HasSubstr("the folder holds no run"));
  EXPECT_TRUE(std::filesystem::is_empty(scratch.dir() / "empty"));
  const Outcome filtered = run_attnbench(
      scratch, {"run", "--case", "{kv: packed, batch: q4}", "--device", "cpu", "--filter", "nothing"});
  EXPECT_EQ(filtered.exit_code, 6);
  EXPECT_FALSE(std::filesystem::exists(scratch.dir() / "results"));
  const Outcome named = run_attnbench(scratch, {"run", "--case", "{kv: packed, batch: q4}", "--device", "cpu",
                                                "--filter", "nothing", "--out", "named"});
  EXPECT_EQ(named.exit_code, 6);
  EXPECT_FALSE(std::filesystem::exists(scratch.dir() / "named"));
}

TEST(CliFirstSteps, ASweepIsNoResult) {
  const Scratch scratch;
  scratch.write("a.yaml", "name: a\n");
  const Outcome o = run_attnbench(scratch, {"compare", "a.yaml", "a.yaml"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, AllOf(HasSubstr("a.yaml: this is a sweep; attnbench run a.yaml makes results of it"),
                           Not(HasSubstr("JSON"))));
  for (const std::vector<std::string>& one :
       {std::vector<std::string>{"compare", "a.yaml"}, {"merge", "a.yaml", "a.yaml", "-o", "b.json"}}) {
    EXPECT_THAT(run_attnbench(scratch, one).err,
                HasSubstr("a.yaml: this is a sweep; attnbench run a.yaml makes results of it"))
        << one[0];
  }
}

TEST(CliFirstSteps, IndentationIsExplained) {
  const Scratch scratch;
  scratch.write("a.yaml", "name: a\nsweeps:\n  - name: x\n     kv: packed\n    batch: q4\n");
  EXPECT_THAT(
      run_attnbench(scratch, {"list", "a.yaml"}).err,
      HasSubstr(
          "a.yaml:4:8: error: YAML syntax: a 'key: value' cannot stand here; indent it like the other"));
}

TEST(CliFirstSteps, KeysWithoutEffectAreNoted) {
  const Scratch scratch;
  scratch.write("a.yaml",
                "name: a\ndefaults: {page_layout: contiguous}\nsweeps:\n"
                "  - {name: packed, kv: packed, batch: q4, block_size: 32}\n"
                "  - {name: paged, kv: paged, batch: q4, block_size: 32}\n"
                "  - {name: both, kv: [packed, paged], batch: q8, block_size: 32}\n");
  const Outcome o = run_attnbench(scratch, {"list", "a.yaml", "--device", "cpu"});
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_THAT(o.err, HasSubstr("a.yaml:4:55: note: block_size changes no case of sweep 'packed'"));
  EXPECT_THAT(o.err,
              AllOf(Not(HasSubstr("page_layout")), Not(HasSubstr("'paged'")), Not(HasSubstr("'both'"))));
  const auto set = [&](const char* of) {
    return run_attnbench(scratch, {"list", "a.yaml", "--set", of, "--device", "cpu"}).err;
  };
  EXPECT_THAT(set("cache_batch_idx=identity"),
              HasSubstr("note: --set cache_batch_idx=identity changes no case; see"));
  EXPECT_THAT(set("block_size=16,64"), Not(HasSubstr("--set")));
}

TEST(CliFirstSteps, DrawnBatchesAreReproducedByTheirMapping) {
  const Scratch scratch;
  std::string lengths = "1";
  for (int i = 2; i <= 300; ++i) lengths += ", " + std::to_string(i);
  scratch.write("a.yaml",
                "name: a\nseed: 7\nsweeps:\n  - name: x\n    kv: packed\n    batch:\n"
                "      - {lengths: {uniform: [1, 64]}, count: 4096}\n      - {lengths: [" +
                    lengths + "]}\n");
  const Outcome o = run_attnbench(scratch, {"run", "a.yaml", "--device", "cpu", "--dry-run"});
  EXPECT_THAT(o.out, HasSubstr("batch: {lengths: {uniform: [1, 64]}, count: 4096}}' --seed 7 "));
  EXPECT_THAT(o.out, HasSubstr("attnbench run a.yaml --case attention/packed/bf16/h32-8/d128/full/300seqs-"));
  const auto id_of = [](const std::string& listed) { return listed.substr(0, listed.find(' ')); };
  const std::string drawn = id_of(run_attnbench(scratch, {"list", "a.yaml", "--filter", "4096seqs"}).out);
  EXPECT_EQ(id_of(run_attnbench(scratch, {"list", "--seed", "7", "--case",
                                          "{kv: packed, batch: {lengths: {uniform: [1, 64]}, count: 4096}}"})
                      .out),
            drawn);
  // What --set has changed is not what the file says.
  const Outcome set =
      run_attnbench(scratch, {"run", "a.yaml", "--device", "cpu", "--dry-run", "--set", "dtype=fp16"});
  EXPECT_THAT(set.out, Not(HasSubstr("run a.yaml")));
}

TEST(CliFirstSteps, WithoutATerminalEachCaseHasOneLine) {
  const Scratch scratch;
  const std::vector<std::string> run = {"run",      "--case",    "{kv: packed, batch: q4, heads: 4/2}",
                                        "--device", "cpu",       "--kernel",
                                        "cpu",      "--no-time", "--out",
                                        "out"};
  const Outcome o = run_attnbench(scratch, run);
  EXPECT_THAT(o.err, AllOf(HasSubstr("[1/1] pass  attention/"), Not(HasSubstr("attnbench run --case"))));
  std::vector<std::string> verbose = run;
  verbose.push_back("-v");
  EXPECT_THAT(run_attnbench(scratch, verbose).err, HasSubstr("[1/1] attnbench run --case"));
}

TEST(CliFirstSteps, LastFailedRunsWhatFailed) {
  const Scratch scratch;
  const std::vector<std::string> run = {"run",
                                        "--case",
                                        "{kv: packed, batch: q64, mask: causal, heads: 4/2}",
                                        "--case",
                                        "{kv: packed, batch: q1, mask: causal, heads: 4/2}",
                                        "--device",
                                        "cpu",
                                        "--no-time",
                                        "--plugin",
                                        plugin_file("wrong"),
                                        "--out",
                                        "out"};
  EXPECT_EQ(run_attnbench(scratch, run).exit_code, 1);
  const auto failed = [&] {
    std::size_t n = 0;
    for (const auto& r : read_records(scratch.dir() / "out")) n += r["status"] == "fail";
    return n;
  };
  const std::size_t before = failed();
  ASSERT_LT(before, read_records(scratch.dir() / "out").size());
  std::vector<std::string> again = run;
  again.push_back("--last-failed");
  std::vector<std::string> dry = again;
  dry.push_back("--dry-run");
  EXPECT_THAT(run_attnbench(scratch, dry).out, HasSubstr("\n" + std::to_string(before) + " run"));
  EXPECT_EQ(run_attnbench(scratch, again).exit_code, 1);
  EXPECT_EQ(read_records(scratch.dir() / "out").size(), before);
  EXPECT_EQ(failed(), before);
  const Outcome none = run_attnbench(
      scratch, {"run", "--case", "{kv: packed, batch: q4}", "--device", "cpu", "--last-failed"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("has no run of 'case'"));
}

TEST(CliFirstSteps, RunsThatBeginAtOnceGetFoldersOfTheirOwn) {
  const Scratch scratch;
  constexpr int kRuns = 4;
  std::vector<Running> runs;
  for (int i = 0; i < kRuns; ++i) {
    runs.emplace_back(scratch, ATTNBENCH_PROGRAM,
                      std::vector<std::string>{"run", "--case", "{batch: q4}", "--device", "cpu", "--kernel",
                                               "cpu", "--no-time"});
  }
  for (Running& r : runs) {
    const Outcome o = r.wait();
    EXPECT_EQ(o.exit_code, 0) << o.err;
  }
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scratch.dir() / "results" / "runs")) {
    ++folders;
    EXPECT_TRUE(std::filesystem::exists(entry.path() / "results.json")) << entry.path();
  }
  EXPECT_EQ(folders, kRuns);
}

TEST(CliFirstSteps, LastFailedFindsTheNewestOfOneSecond) {
  namespace fs = std::filesystem;
  const Scratch scratch;
  const fs::path runs = scratch.dir() / "results" / "runs";
  const std::vector<std::string> run = {"run", "--case",   "{batch: q4}",       "--device",
                                        "cpu", "--kernel", "scale_0_1_percent", "--no-time"};
  EXPECT_EQ(run_faulty(scratch, run).exit_code, 1);
  const fs::path first = *fs::directory_iterator(runs);
  for (const char* name : {"20990101-000000-case", "20990101-000000-case-2", "20990101-000000-case-10"})
    fs::copy(first, runs / name);
  std::vector<std::string> again = run;
  again.insert(again.end(), {"--last-failed", "--dry-run"});
  EXPECT_THAT(run_faulty(scratch, again).err, HasSubstr("20990101-000000-case-10: 1 run failed"));
  scratch.write("c.yaml", "name: case-3\nsweeps: [{batch: q4}]\n");
  const fs::path other = runs / "20990101-000001-case-3";
  EXPECT_EQ(
      run_attnbench(scratch, {"run", "c.yaml", "--device", "cpu", "--no-time", "--out", other}).exit_code, 0);
  EXPECT_THAT(run_faulty(scratch, again).err, HasSubstr("20990101-000000-case-10: 1 run failed"))
      << "the later one is of a sweep named case-3";
}

TEST(CliFirstSteps, OpsThatChosenKernelsLackAreNotPlanned) {
  const Scratch scratch;
  const Outcome o =
      run_attnbench(scratch, {"run", "--case", "{op: kv_append, kv: paged, batch: q4}", "--case",
                              "{kv: packed, batch: q4, heads: 4/2}", "--device", "cpu", "--no-time",
                              "--plugin", plugin_file("example"), "--kernel", "example", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("1 passed, 0 failed, 0 skipped"));
}

TEST(CliPages, TheirCommandsHaveTheOptionsThatTheyName) {
  const Scratch scratch;
  std::map<std::string, std::string> help;
  int commands = 0;
  for (std::filesystem::recursive_directory_iterator entry(source_path(".")), last; entry != last; ++entry) {
    const std::string name = entry->path().filename().string();
    if (entry->is_directory() && (name[0] == '.' || name == "runs" || name.rfind("build", 0) == 0))
      entry.disable_recursion_pending();
    if (entry->path().extension() != ".md") continue;
    const std::string path = entry->path().lexically_relative(source_path(".")).string();
    std::istringstream page(read_text(entry->path()));
    std::string whole;  // with lines that a backslash continues
    bool fenced = false;
    for (std::string line; std::getline(page, line);) {
      if (line.find("```") != line.npos) fenced = !fenced;
      if (!fenced && line.rfind("    ", 0) != 0) continue;
      const std::size_t begin = line.find_first_not_of(" $");
      whole += begin == line.npos ? "" : line.substr(begin);
      if (whole.ends_with('\\')) {
        whole.back() = ' ';
        continue;
      }
      static const std::regex command(R"re(^(\S*/)?attnbench ([a-z-]+) (.*))re"),
          option(R"re( (--[a-z][a-z-]*))re");
      std::smatch found;
      if (std::regex_match(whole, found, command)) {
        ++commands;
        const std::string called = found[2], rest = " " + found[3].str();
        if (!help.count(called)) help[called] = run_attnbench(scratch, {called, "--help"}).out;
        EXPECT_THAT(help[called], HasSubstr("Usage: attnbench " + called)) << path << ": " << whole;
        for (std::sregex_iterator it(rest.begin(), rest.end(), option), end; it != end; ++it)
          EXPECT_THAT(help[called], HasSubstr((*it)[1].str())) << path << ": " << whole;
      }
      whole.clear();
    }
  }
  EXPECT_GE(commands, 20);
}

}  // namespace
}  // namespace attnbench::testing
