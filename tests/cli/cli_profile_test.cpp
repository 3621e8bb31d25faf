// `attnbench profile` with a stand-in for ncu: a script that runs its arguments, writes a report, and prints
// a table on request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<std::string> kProfiledCase = {"profile", "--case", "{batch: q5, heads: 2, head_dim: 8}",
                                                "--device", "cpu"};

/// Writes the stand-in; `last` is what it does after the program has run.
std::string stand_in(const Scratch& scratch, const std::string& last) {
  std::string path = scratch.write("ncu", R"sh(#!/bin/sh
echo "$@" >> calls
if [ "$1" = --import ]; then
  printf 'ID,Kernel Name,Grid Size,dram__bytes_read.sum,dram__bytes_write.sum,gpu__time_duration.sum\n'
  printf ',,,byte,byte,nsecond\n0,attend,"(1, 1, 1)",640,320,12500\n'
  exit 0
fi
while [ "$1" != -o ]; do shift; done
report=$2
shift 2
"$@" || exit 9
)sh" + last + "\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

std::vector<std::string> with(std::vector<std::string> more) {
  std::vector<std::string> args = kProfiledCase;
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(CliProfileTool, RunsItReadsItBackAndPrintsTheFigures) {
  const Scratch scratch;
  const std::string ncu = stand_in(scratch, ": > $report.ncu-rep");
  const Outcome o = run_attnbench(scratch, with({"--tool", "ncu", "--tool-path", ncu, "--out", "here",
                                                 "--device-kernels", "att.*", "--launches", "2"}));
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out,
              AllOf(HasSubstr("2 in the profiled range"),
                    HasSubstr("report: here/attention-packed-bf16-h2-2-d8"), HasSubstr("attend\n"),
                    HasSubstr("a launch: 6.250 us"), HasSubstr("times the least that the model says")));
  const std::string calls = read_text(scratch.dir() / "calls");
  EXPECT_THAT(calls, AllOf(HasSubstr("--profile-from-start off --nvtx --nvtx-include attnbench@launch]"),
                           HasSubstr("--clock-control none"), HasSubstr("--kernel-name regex:att.*"),
                           HasSubstr("--csv --page raw")));
}

TEST(CliProfileTool, TakesAStepOfAServer) {
  const Scratch scratch;
  const std::string ncu = stand_in(scratch, ": > $report.ncu-rep");
  const std::string item =
      "{kv: paged, heads: 2, head_dim: 8, batch: {serving: {mix: sharegpt, step: 3, steps: 9, warmup: 0}}}";
  const Outcome o = run_attnbench(scratch, {"profile", "--case", item, "--device", "cpu", "--tool", "ncu",
                                            "--tool-path", ncu, "--out", "here"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
}

TEST(CliProfileTool, NoReportIsFive) {
  const Scratch scratch;
  for (const char* last : {"exit 0", "exit 1"}) {
    const Outcome o = run_attnbench(scratch, with({"--tool", "ncu", "--tool-path", stand_in(scratch, last)}));
    EXPECT_EQ(o.exit_code, 5) << o.out;
    EXPECT_THAT(o.err, HasSubstr("ERR_NVGPUCTRPERM"));
  }
}

TEST(CliProfileTool, AToolThatIsNotThereIsTwo) {
  const Scratch scratch;
  if (std::system("command -v nsys >/dev/null 2>&1") == 0 ||
      std::filesystem::exists("/opt/nvidia/nsight-systems") ||
      std::filesystem::exists("/usr/local/cuda/bin/nsys")) {
    GTEST_SKIP() << "nsys is installed here";
  }
  const Outcome o = run_attnbench(scratch, with({"--tool", "nsys"}));
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("install NVIDIA Nsight"));
  EXPECT_THAT(o.out, HasSubstr("nsys profile --capture-range=cudaProfilerApi"));
}

TEST(CliProfileTool, NcuOnACpuNamesACommandThatWorksThere) {
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, with({"--tool", "ncu"}));
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err,
              AllOf(HasSubstr("on a CPU take perf: OMP_WAIT_POLICY=passive perf record "),
                    HasSubstr(" profile --case "), HasSubstr("--device cpu"), HasSubstr("--tool none")));
}

}  // namespace
}  // namespace attnbench::testing
