// Streams that are closed or full, and files that may not grow. Nothing is written to a wrong place, and
// failed writes are reported.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "harness/device/sanitized.h"
#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kRun =
    " run --case '{batch: q5, heads: 2, head_dim: 8}' --case '{batch: q7, heads: 2, head_dim: 8}' --device "
    "cpu --kernel cpu "
    "--no-time --out out";

/// Exit code of `attnbench LINE`, run by a shell in the scratch folder. stderr goes to the file err unless
/// the line redirects it.
int shell(const Scratch& scratch, const std::string& before, const std::string& line) {
  const std::string text =
      "cd " + scratch.dir().string() + "; exec 2>err; " + before + ATTNBENCH_PROGRAM + line;
  const int status = std::system(text.c_str());
  return WEXITSTATUS(status);
}

TEST(CliStreams, AFullDiskBehindStdoutIsSaid) {
  for (const char* line : {" kernels", " list --schema", " doctor", " --help", " run --help", " --version",
                           " list --case '{batch: q5}' --device cpu", kRun}) {
    const Scratch scratch;
    EXPECT_EQ(shell(scratch, "", std::string(line) + " > /dev/full"), 2) << line;
    EXPECT_THAT(read_text(scratch.dir() / "err"),
                HasSubstr("attnbench: error: cannot write to standard output"))
        << line;
    if (line == kRun) {
      EXPECT_EQ(read_records(scratch.dir() / "out").size(), 2u) << "the reports are there";
    }
  }
}

TEST(CliStreams, WhoReadsNoFurtherIsNoError) {
  const Scratch scratch;
  for (const char* line : {" kernels", " --help", kRun}) {
    EXPECT_EQ(shell(scratch, "{ ", std::string(line) + "; echo $? > code; } | head -c 1"), 0);
    const std::string code = read_text(scratch.dir() / "code");
    EXPECT_TRUE(code == "0\n" || code == "141\n") << line << code;
    EXPECT_EQ(read_text(scratch.dir() / "err").find("standard output"), std::string::npos);
  }
}

/// What a run, a gate and so on do must not depend on who reads stderr: nobody, or one who reads one character.
TEST(CliStreams, AFailedWriteToStderrEndsNothing) {
  const Scratch scratch;
  ASSERT_EQ(shell(scratch, "", kRun), 0);
  const std::string run = std::string(kRun).substr(0, std::string(kRun).find("--out"));
  const std::string gate = " gate" + run.substr(4) + "--baseline out/results.json --out new";
  const std::pair<std::string, std::string> commands[] = {
      {run + "--out new", "new/results.json"},
      {run + "--out new -v --in-process", "new/results.json"},
      {gate, "new/compare.json"},
      {" selftest --device cpu --kernel cpu --filter scores/sink_ignored --seeds 1 --out new",
       "new/selftest.json"},
      {" fuzz --device cpu --kernel cpu --workers 1 --cases 5 --seed 1 --out new", "new/fuzz.json"},
  };
  for (const auto& [line, report] : commands) {
    EXPECT_EQ(shell(scratch, "", line), 0) << line;
    EXPECT_EQ(shell(scratch, "rm -r new; ", line + " 2>/dev/full"), 0) << line;
    EXPECT_TRUE(std::filesystem::exists(scratch.path(report))) << line;
    EXPECT_EQ(shell(scratch, "rm -r new; { ", line + "; echo $? > code; } 2>&1 | head -c 1"), 0);
    EXPECT_EQ(read_text(scratch.path("code")), "0\n") << line;
    EXPECT_TRUE(std::filesystem::exists(scratch.path(report))) << line;
    std::filesystem::remove_all(scratch.path("new"));
  }
}

/// A terminal that is closed, as when ssh is cut off under nohup or setsid.
TEST(CliStreams, AClosedTerminalEndsNothing) {
  const Scratch scratch;
  const std::string file = scratch.write(
      "four.yaml", "name: four\nsweeps: [{batch: q5, heads: 2, head_dim: 8, gap_tokens: [0, 1, 2, 3]}]\n");
  const std::string out = scratch.path("out");
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_EQ(grantpt(terminal) | unlockpt(terminal), 0);
  const std::string name = ptsname(terminal);
  const pid_t pid = fork();
  if (pid == 0) {
    setsid();
    const int end = open(name.c_str(), O_RDWR | O_NOCTTY);
    for (const int fd : {0, 1, 2}) dup2(end, fd);
    close(end);
    execl(ATTNBENCH_FAULTY, ATTNBENCH_FAULTY, "run", file.c_str(), "--device", "cpu", "--kernel", "slow",
          "--no-time", "-v", "--out", out.c_str(), nullptr);
    _exit(127);
  }
  std::string text;
  char buffer[256];
  for (ssize_t n = 0; text.find("[2/4]") == text.npos && (n = read(terminal, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  close(terminal);
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(read_records(out).size(), 4u);
}

TEST(CliStreams, ClosedOnesTakeNoFilesPlace) {
  for (const char* closed : {" >&-", " 2>&-", " <&-", " <&- >&- 2>&-"}) {
    for (const char* more : {"", " --in-process"}) {
      const Scratch scratch;
      EXPECT_EQ(shell(scratch, "", std::string(kRun) + more + closed), 0) << closed;
      EXPECT_EQ(read_records(scratch.dir() / "out").size(), 2u) << closed;
      std::istringstream journal(read_text(scratch.dir() / "out" / "journal.jsonl"));
      int lines = 0;
      for (std::string line; std::getline(journal, line); ++lines) {
        EXPECT_FALSE(json::parse(line, nullptr, false).is_discarded()) << closed << line;
      }
      EXPECT_EQ(lines, 2) << closed;
    }
  }
}

TEST(CliStreams, AFileThatMayNotGrowIsAnErrorThatKeepsTheJournal) {
  if (kThreadSanitized) GTEST_SKIP() << "ThreadSanitizer itself needs files that may grow";
  const Scratch scratch;
  const std::string here = std::string(kRun) + " --in-process";  // tensors of two processes are a file, too
  EXPECT_EQ(shell(scratch, "ulimit -f 8; ", here), 2);
  EXPECT_THAT(read_text(scratch.dir() / "err"), HasSubstr("File too large"));
  EXPECT_THAT(read_text(scratch.dir() / "err"), HasSubstr("--resume"));
  EXPECT_EQ(shell(scratch, "", here.substr(0, here.find("--out")) + "--resume out --in-process"), 0);
  EXPECT_EQ(read_records(scratch.dir() / "out").size(), 2u);
}

}  // namespace
}  // namespace attnbench::testing
