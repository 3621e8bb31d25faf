// Streams that are closed or full, and files that may not grow. Nothing is written to a wrong place, and
// failed writes are reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

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
  const Scratch scratch;
  EXPECT_EQ(shell(scratch, "ulimit -f 8; ", kRun), 2);
  EXPECT_THAT(read_text(scratch.dir() / "err"), HasSubstr("File too large"));
  EXPECT_THAT(read_text(scratch.dir() / "err"), HasSubstr("--resume"));
  const std::string resume = kRun;
  EXPECT_EQ(shell(scratch, "", resume.substr(0, resume.find("--out")) + "--resume out"), 0);
  EXPECT_EQ(read_records(scratch.dir() / "out").size(), 2u);
}

}  // namespace
}  // namespace attnbench::testing
