// The example that authors copy: it is right for every case that it does not refuse, and its possible faults
// are caught.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(CliExample, IsRightOrRefuses) {
  const Scratch scratch;
  const Outcome o =
      run_faulty(scratch, {"run", source_path("configs/smoke.yaml"), "--device", "cpu", "--kernel", "example",
                           "--filter", "^attention/pa.*/(bf16|fp16)/h4-2/d(3|64|96)/causal/", "--no-time",
                           "-q", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  const auto records = read_records(scratch.dir() / "out");
  const auto passed =
      std::count_if(records.begin(), records.end(), [](const json& r) { return r["status"] == "pass"; });
  EXPECT_GT(passed, 20) << o.out;
  for (const json& r : records) {
    if (r["status"] == "pass") continue;
    EXPECT_THAT(r["reason"].get<std::string>(), HasSubstr("example: ")) << r["id"];
  }
}

TEST(CliExample, WhatIsDoneToItIsCaught) {
  const Scratch scratch;
  const Outcome o = run_faulty(
      scratch, {"selftest", "--device", "cpu", "--kernel", "example", "--seeds", "1", "-q", "--out", "out"});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_GT(read_json(scratch.dir() / "out" / "selftest.json")["faults"].size(), 20u);
}

}  // namespace
}  // namespace attnbench::testing
