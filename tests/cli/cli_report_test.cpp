// `attnbench report` and `show` as a user calls them. html_report_test.cpp tests the page in a browser.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

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

TEST(CliShow, SortsFiltersAndChoosesColumns) {
  const Scratch scratch;
  const auto rows = [&](std::vector<std::string> args) {
    args.insert(args.begin(), {"show", source_path(kQuickstart), "--format", "json"});
    const Outcome o = run_attnbench(scratch, args);
    EXPECT_EQ(o.exit_code, 0) << o.err;
    return nlohmann::json::parse(o.out);
  };
  const auto all = rows({"--sort", "sol"});
  ASSERT_GT(all.size(), 3u);
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i]["sol"].is_null()) continue;
    EXPECT_LE(all[i - 1]["sol"].get<double>(), all[i]["sol"].get<double>());
  }
  const auto slow =
      rows({"--sort", "tail", "--descending", "--limit", "2", "--columns", "case,p50,p99,time/copies"});
  ASSERT_EQ(slow.size(), 2u);
  EXPECT_DOUBLE_EQ(slow[0]["tail"], slow[0]["p99"].get<double>() / slow[0]["p50"].get<double>());
  EXPECT_GE(slow[0]["tail"].get<double>(), slow[1]["tail"].get<double>());
  EXPECT_GE(slow[0]["time/copies"].get<int>(), 1);
  for (const auto& row : rows({"--filter", "paged64", "--columns", "case,block_size"}))
    EXPECT_EQ(row["block_size"], 64);
}

TEST(CliShow, GroupsHaveGeometricMeans) {
  const Scratch scratch;
  const std::string file = source_path(kQuickstart);
  const auto parsed = [&](const std::vector<std::string>& more) {
    std::vector<std::string> args = {"show", file, "--format", "json"};
    args.insert(args.end(), more.begin(), more.end());
    return nlohmann::json::parse(run_attnbench(scratch, args).out);
  };
  std::map<std::string, std::pair<double, int>> logs;
  for (const auto& row : parsed({"--columns", "kv,time"})) {
    auto& [sum, n] = logs[row["kv"]];
    sum += std::log(row["time"].get<double>());
    ++n;
  }
  const auto groups = parsed({"--by", "kv", "--columns", "time"});
  ASSERT_EQ(groups.size(), logs.size());
  for (const auto& g : groups) {
    EXPECT_EQ(g["kernel"], "cpu");
    EXPECT_EQ(g["cases"], logs[g["kv"]].second);
    EXPECT_NEAR(g["time"].get<double>() / std::exp(logs[g["kv"]].first / logs[g["kv"]].second), 1, 1e-9);
  }
}

TEST(CliShow, PrintsEachFormatAndNamesAnUnknownColumn) {
  const Scratch scratch;
  const std::string file = source_path(kQuickstart);
  EXPECT_THAT(run_attnbench(scratch, {"show", file}).out, HasSubstr("p99"));
  EXPECT_THAT(run_attnbench(scratch, {"show", file, "--columns", "case,time", "--format", "csv"}).out,
              ::testing::StartsWith("case,time\nattention/"));
  EXPECT_THAT(run_attnbench(scratch, {"show", file, "--columns", "case,time", "--format", "md"}).out,
              ::testing::StartsWith("| case | time |\n| --- | --- |\n| attention/"));
  EXPECT_EQ(run_attnbench(scratch, {"show", file, "--filter", "no such case"}).exit_code, 6);
  for (const char* option : {"--columns", "--sort", "--by"}) {
    const Outcome o = run_attnbench(scratch, {"show", file, option, "speed"});
    EXPECT_EQ(o.exit_code, 2) << option;
    EXPECT_THAT(o.err, HasSubstr("there is no column 'speed'")) << option;
  }
}

}  // namespace
}  // namespace attnbench::testing
