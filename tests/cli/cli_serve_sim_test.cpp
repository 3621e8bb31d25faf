// serve-sim and list --mixes, as a user calls them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using ::testing::HasSubstr;

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
  EXPECT_THAT(error_of({"sharegpt", "--block-size", "1", "--cache-tokens", "2147483647"}),
              HasSubstr("larger --block-size"));
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
