// Steps of a server as ids, records and messages have them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "harness/config/serving_spec.h"

namespace attnbench {
namespace {

ServedStep step_of_trace(const std::string& path, const std::string& digest = "0123abcd") {
  return {.trace = path, .digest = digest, .replay = "{steps: 40, seed: 1}", .step = 7, .steps = 40};
}

TEST(ServedStep, JsonReadsBackWhatItWrites) {
  ServedStep mix{
      .mix = "sharegpt", .replay = "{mix: sharegpt, seed: 1}", .step = 3, .steps = 9, .output_tokens = 5};
  ServedStep trace = step_of_trace("more/t.csv");
  for (ServedStep* step : {&mix, &trace}) {
    EXPECT_EQ(served_from_json(served_json(*step)), *step);
    step->stratum = 2;
    step->stratum_steps = 4;
    step->drawn = 8;
    EXPECT_EQ(served_from_json(served_json(*step)), *step);
  }
}

TEST(ServedStep, TheLabelOfATraceHasItsContentAndNotItsFolder) {
  const std::string label = step_of_trace("more/My-trace.csv").label();
  EXPECT_EQ(label.find("My_trace-0123abcd-"), 0u) << label;
  EXPECT_TRUE(label.ends_with("-step7")) << label;
  EXPECT_EQ(step_of_trace("/else/where/My-trace.csv").label(), label);
  EXPECT_NE(step_of_trace("more/My-trace.csv", "0123abce").label(), label);
}

TEST(ServedStep, TheMappingOfATraceHasItsPath) {
  EXPECT_EQ(serving_batch_text(step_of_trace("more/t.csv")),
            "{serving: {trace: more/t.csv, steps: 40, seed: 1, step: 7}}");
  EXPECT_EQ(serving_batch_text(step_of_trace("1e5")),
            "{serving: {trace: \"1e5\", steps: 40, seed: 1, step: 7}}");
}

}  // namespace
}  // namespace attnbench
