// Pipes, sockets, devices and folders in place of files: an error in words, and never a wait.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using ::testing::HasSubstr;

/// `attnbench LINE` in the scratch folder; a program that waits is killed. stderr goes to the file err.
int shell(const Scratch& scratch, const std::string& line) {
  const std::string text = "cd " + scratch.dir().string() + "; timeout -s KILL 20 " + ATTNBENCH_PROGRAM +
                           " " + line + " >out 2>err";
  return WEXITSTATUS(std::system(text.c_str()));
}

TEST(CliPipes, AreReadByNoCommand) {
  const Scratch scratch;
  for (const char* name : {"p", "p.npy", "p.safetensors", "p.so", "p.py", "p.jsonl", "p.csv", "p.noise.json"})
    ASSERT_EQ(mkfifo(scratch.path(name).c_str(), 0600), 0);
  for (const char* folder : {"run", "resumed", "gate"})
    std::filesystem::create_directory(scratch.dir() / folder);
  for (const char* name : {"run/results.json", "resumed/journal.jsonl", "gate/gate.jsonl"})
    ASSERT_EQ(mkfifo(scratch.path(name).c_str(), 0600), 0);
  ASSERT_EQ(shell(scratch, "export '{batch: q4, heads: 1, head_dim: 8}' -o case.safetensors"), 0);
  scratch.write("t.yaml", "name: t\nsweeps: [{batch: {serving: {trace: p.csv}}}]\n");
  for (const char* line :
       {"list p", "run p --device cpu", "run p.safetensors --device cpu", "compare p p", "compare run run",
        "report p --format svg -o x", "merge p -o x.json", "trace p", "trace p.jsonl", "serve-sim ./p.csv",
        "check p.safetensors p.npy", "check case.safetensors p.npy", "check case.safetensors p.safetensors",
        "kernels --plugin ./p.so", "kernels --plugin ./p.py",
        "run --case '{batch: q4}' --device cpu --no-time --resume run",
        "run --case '{batch: q4}' --device cpu --no-time --resume resumed",
        "gate --case '{batch: q4}' --device cpu --no-time --baseline p --out g"}) {
    EXPECT_EQ(shell(scratch, line), 2) << line;
    EXPECT_THAT(read_text(scratch.path("err")), HasSubstr("a pipe")) << line;
  }
  EXPECT_EQ(shell(scratch, "list /dev/fd/0 < /dev/zero"), 2);
  EXPECT_THAT(read_text(scratch.path("err")), HasSubstr("this is a device; a sweep file is required"));
  EXPECT_EQ(shell(scratch, "list /dev/stdin < t.yaml"), 2);
  EXPECT_THAT(read_text(scratch.path("err")), HasSubstr("/dev/p.csv"));
}

TEST(CliPipes, AreWrittenOnlyWhereSomeoneReads) {
  const Scratch scratch;
  for (const char* name : {"p", "p.yaml", "p.safetensors"})
    ASSERT_EQ(mkfifo(scratch.path(name).c_str(), 0600), 0);
  for (const char* folder : {"run", "journal", "gate", "dir.safetensors"})
    std::filesystem::create_directory(scratch.dir() / folder);
  for (const char* name : {"run/results.json", "journal/journal.jsonl", "gate/gate.jsonl"})
    ASSERT_EQ(mkfifo(scratch.path(name).c_str(), 0600), 0);
  const std::string a_case = " --case '{batch: q4, heads: 1, head_dim: 8}' --device cpu --no-time ";
  const std::string to_a_pipe = "export '{batch: q4}' -o p.safetensors";
  for (const std::string& line :
       {"run" + a_case + "--out run", "run" + a_case + "--out journal",
        "gate" + a_case + "--baseline none.json --update-baseline --out gate", std::string("init p.yaml"),
        to_a_pipe, std::string("export '{batch: q4}' -o dir.safetensors")}) {
    EXPECT_EQ(shell(scratch, line), 2) << line;
    EXPECT_THAT(read_text(scratch.path("err")), HasSubstr("name a")) << line;
  }
  ASSERT_EQ(shell(scratch, "run" + a_case + "--out good"), 0);
  const int reader = open(scratch.path("p").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  EXPECT_EQ(shell(scratch, "merge good -o p"), 0) << read_text(scratch.path("err"));
  char begin[2] = {};
  EXPECT_EQ(read(reader, begin, 1), 1);
  EXPECT_STREQ(begin, "{");
  close(reader);
}

}  // namespace
}  // namespace attnbench::testing
