// `attnbench report` as a user calls it. html_report_test.cpp tests the page in a browser.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using ::testing::HasSubstr;

const std::string kQuickstart = "results/baselines/cpu/quickstart.json";

TEST(CliReport, WritesOneFile) {
  const Scratch scratch;
  const Outcome o =
      run_attnbench(scratch, {"report", source_path(kQuickstart), "-o", "new/folder/page.html"});
  if (o.exit_code == 2 && o.err.find("built without Chart.js") != std::string::npos) GTEST_SKIP() << o.err;
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("report: new/folder/page.html"));
  EXPECT_THAT(read_text(scratch.dir() / "new/folder/page.html"), HasSubstr("</html>"));
}

TEST(CliReport, AFileGivenTwiceCountsOnce) {
  const Scratch scratch;
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {
        "run", "--case", "{batch: q5, heads: 2, head_dim: 8}", "--device", "cpu", "--no-time", "-q"};
    args.insert(args.end(), more.begin(), more.end());
    return run_attnbench(scratch, args);
  };
  ASSERT_EQ(run({"--out", "r1"}).exit_code, 0);
  const Outcome once = run_attnbench(scratch, {"report", "r1", "-o", "once.html"});
  if (once.err.find("built without Chart.js") != std::string::npos) GTEST_SKIP() << once.err;
  ASSERT_EQ(once.exit_code, 0) << once.err;
  const Outcome o = run_attnbench(scratch, {"report", "r1", "r1/results.json", "-o", "twice.html"});
  EXPECT_EQ(o.exit_code, 0);
  EXPECT_THAT(o.err, HasSubstr("note: r1/results.json is given twice; it counts once\n"));
  EXPECT_EQ(read_text(scratch.dir() / "once.html"), read_text(scratch.dir() / "twice.html"));
}

TEST(CliReport, WritesPlots) {
  const Scratch scratch;
  const Outcome o =
      run_attnbench(scratch, {"report", source_path(kQuickstart), "--format", "svg", "-o", "plots"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(read_text(scratch.dir() / "plots/roofline.svg"), HasSubstr("</svg>"));
  EXPECT_THAT(read_text(scratch.dir() / "plots/decode_latency.svg"), HasSubstr("keys per sequence"));
  // -o may be the folder of the results.
  std::filesystem::copy(source_path(kQuickstart), scratch.dir() / "plots" / "results.json");
  EXPECT_EQ(run_attnbench(scratch, {"report", "plots", "--format", "svg", "-o", "plots"}).exit_code, 0);
}

TEST(CliReport, SaysWhatItCannotDo) {
  const Scratch scratch;
  Outcome o = run_attnbench(scratch, {"report", "missing.json", "--format", "svg"});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("missing.json"));
  const std::string untimed = scratch.write("untimed.json", R"({"benchmarks": []})");
  EXPECT_EQ(run_attnbench(scratch, {"report", untimed, "--format", "svg"}).exit_code, 6);
  EXPECT_EQ(run_attnbench(scratch, {"report"}).exit_code, 2);
  EXPECT_EQ(run_attnbench(scratch, {"report", untimed, "--format", "pdf"}).exit_code, 2);
  o = run_attnbench(scratch, {"report", untimed, "--format", "svg", "--baseline", untimed});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("--baseline"));
}

}  // namespace
}  // namespace attnbench::testing
