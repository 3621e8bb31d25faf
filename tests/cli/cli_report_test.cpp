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
