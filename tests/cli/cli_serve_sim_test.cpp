// serve-sim, trace and list --mixes, as a user calls them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

Outcome simulated(const Scratch& scratch, std::vector<std::string> options) {
  options.insert(options.begin(), "serve-sim");
  return run_attnbench(scratch, options);
}

TEST(CliServeSim, CountsEveryRequestAndToken) {
  const Scratch scratch;
  const std::string file = (scratch.dir() / "sim.json").string();
  const std::string plot = (scratch.dir() / "sim.svg").string();
  const Outcome o = simulated(scratch, {"sharegpt", "--requests", "300", "--json", file, "--svg", plot});
  ASSERT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("requests       300, "));
  EXPECT_THAT(o.out, HasSubstr("cache occupied"));
  const auto written = nlohmann::json::parse(read_text(file));
  // A request with P prompt and O output tokens computes P + O - 1 tokens.
  EXPECT_EQ(written.at("query_tokens").get<int64_t>() - written.at("recomputed_tokens").get<int64_t>(),
            written.at("prompt_tokens").get<int64_t>() + written.at("output_tokens").get<int64_t>() - 300);
  int64_t steps = 0;
  for (const auto& slice : written.at("slices")) steps += slice.at("steps").get<int64_t>();
  EXPECT_EQ(steps, written.at("steps"));
  EXPECT_THAT(read_text(plot), HasSubstr("</svg>"));
}

TEST(CliServeSim, NamesTheOptionAndTheMend) {
  const Scratch scratch;
  const auto error_of = [&](const std::vector<std::string>& options) {
    const Outcome o = simulated(scratch, options);
    EXPECT_EQ(o.exit_code, 2);
    return o.err;
  };
  EXPECT_THAT(error_of({"sharegtp"}), HasSubstr("did you mean 'sharegpt'?"));
  EXPECT_THAT(error_of({"sharegpt", "--cache-tokens", "4k"}), HasSubstr("--cache-tokens"));
  EXPECT_THAT(error_of({"sharegpt", "--cache-tokens", "4096"}), HasSubstr("give 18448 or more"));
  EXPECT_THAT(error_of({"sharegpt", "--no-chunked-prefill"}), HasSubstr("give --token-budget 16384"));
  EXPECT_THAT(error_of({"sharegpt", "--acceptance", "0.5"}), HasSubstr("add --draft-tokens 3"));
  EXPECT_THAT(error_of({"sharegpt", "--rate", "1e-9"}), HasSubstr("--rate"));
  EXPECT_THAT(error_of({"sharegpt", "--block-size", "1", "--cache-tokens", "1073741824"}),
              HasSubstr("larger --block-size"));
  EXPECT_THAT(error_of({"sharegpt", "--draft-tokens", "65"}), HasSubstr("64"))
      << "the range of the key of a sweep";
}

constexpr const char* kTrace =
    "arrival,prompt,output,prefix\n0,100,10,7:64\n0.5,200,20,\n1,80,5,7:48\n1,80,-5,\n2,5000,1,\n";

TEST(CliServeSim, SimulatesATrace) {
  const Scratch scratch;
  const std::string trace = scratch.write("t.csv", kTrace);
  const std::string file = scratch.path("sim.json");
  const Outcome bad = simulated(scratch, {trace});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("t.csv:5:6: error: output is negative"));
  const Outcome o =
      simulated(scratch, {trace, "--skip-bad", "--cache-tokens", "1024", "--speed-up", "2", "--json", file});
  ASSERT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("2 lines skipped; the first: "));
  const auto written = nlohmann::json::parse(read_text(file));
  EXPECT_EQ(written.at("options").at("requests"), 3);
  EXPECT_EQ(written.at("prompt_tokens"), 380);
  EXPECT_EQ(written.at("prefix_hit_tokens"), 48);
  const auto error_of = [&](std::vector<std::string> options) {
    const Outcome wrong = simulated(scratch, std::move(options));
    EXPECT_EQ(wrong.exit_code, 2);
    return wrong.err;
  };
  EXPECT_THAT(error_of({trace, "--rate", "2"}), HasSubstr("give --speed-up"));
  EXPECT_THAT(error_of({"sharegpt", "--speed-up", "2"}), HasSubstr("give --rate"));
  EXPECT_THAT(error_of({"sharegpt", "--skip-bad"}), HasSubstr("leave it out"));
  EXPECT_THAT(error_of({"./none.csv"}), HasSubstr("./none.csv: error: cannot open"));
}

TEST(CliServeSim, RatesIncludeIdleTime) {
  const Scratch scratch;
  const std::string file = scratch.path("sim.json");
  const Outcome o = simulated(
      scratch, {scratch.write("t.csv", "arrival,prompt,output\n0,100,10\n1000,100,10\n2000,100,10\n"),
                "--json", file});
  ASSERT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("model time     2000 s, 0.4565 s of it busy"));
  EXPECT_THAT(o.out, ContainsRegex("\nrates  .* 0.0015 requests/s"));
  EXPECT_THAT(o.out, ContainsRegex("\nwhile busy  .* 6.571 requests/s"));
  const auto written = nlohmann::json::parse(read_text(file));
  EXPECT_NEAR(written.at("model_s").get<double>(), 2000.1522, 1e-3);
  EXPECT_NEAR(written.at("busy_s").get<double>(), 0.4565, 1e-3);
  const Outcome full = simulated(scratch, {"sharegpt", "--requests", "20"});
  EXPECT_THAT(full.out, Not(HasSubstr("busy"))) << "all requests wait from the start";
}

TEST(CliServeSim, ReadsColumnsThatTheUserNames) {
  const Scratch scratch;
  const std::string trace = scratch.write("t.csv", "when,images,in,out\n0,2,100,10\n1,0,100,10\n");
  const std::string columns = "arrival=when,prompt=in,output=out", file = scratch.path("t.json");
  for (const char* command : {"serve-sim", "trace"}) {
    const Outcome o = run_attnbench(scratch, {command, trace, "--columns", columns, "--json", file});
    ASSERT_EQ(o.exit_code, 0) << o.err;
    EXPECT_THAT(o.out, HasSubstr("2, 200 prompt and 20 output tokens"));
    EXPECT_THAT(o.err, HasSubstr("columns not read: images"));
    EXPECT_THAT(read_text(file), HasSubstr("columns not read: images"));
    const Outcome wrong = run_attnbench(scratch, {command, trace, "--columns", "tokens=in"});
    EXPECT_EQ(wrong.exit_code, 2);
    EXPECT_THAT(wrong.err, HasSubstr("--columns: 'tokens=in' is no name of a column"));
  }
  const Outcome mix = simulated(scratch, {"sharegpt", "--columns", columns});
  EXPECT_EQ(mix.exit_code, 2);
  EXPECT_THAT(mix.err, HasSubstr("--columns is for traces"));
}

TEST(CliTrace, DescribesATrace) {
  const Scratch scratch;
  const std::string trace = scratch.write("t.csv", kTrace);
  const std::string file = scratch.path("t.json"), plot = scratch.path("t.svg"),
                    page = scratch.path("t.html");
  const Outcome o =
      run_attnbench(scratch, {"trace", trace, "--skip-bad", "--json", file, "--svg", plot, "--html", page});
  ASSERT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("1 line skipped; the first: "));
  EXPECT_THAT(o.out, HasSubstr("requests     4, 5,380 prompt and 36 output tokens"));
  EXPECT_THAT(o.out, HasSubstr("4,096 to      8,191"));
  const auto written = nlohmann::json::parse(read_text(file));
  EXPECT_EQ(written.at("found_tokens"), 48);
  EXPECT_EQ(written.at("duration_s"), 2);
  EXPECT_THAT(read_text(plot), HasSubstr("</svg>"));
  const std::string html = read_text(page);
  for (const char* part : {"4, 5,380 prompt and 36 output tokens", "1 line skipped; the first: ",
                           "<td>prompt tokens</td>", "prefix reuse", "</svg>", "</html>"})
    EXPECT_THAT(html, HasSubstr(part));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(run_attnbench(scratch, {"trace", trace}).err, HasSubstr("t.csv:5:6: error"));
  EXPECT_EQ(run_attnbench(scratch, {"trace", scratch.write("e.csv", "arrival,prompt,output\n")}).exit_code,
            2);
}

TEST(CliServeSim, ListsMixes) {
  const Scratch scratch;
  const Outcome o = run_attnbench(scratch, {"list", "--mixes"});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("## agent_append"));
  EXPECT_THAT(o.out, HasSubstr("P50 1469"));
}

}  // namespace
}  // namespace attnbench::testing
