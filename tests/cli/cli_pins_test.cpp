// Wrong kernels: what their records say of them stays as it is.
#include <gtest/gtest.h>

#include <regex>

#include "tests/cli/pins.h"
#include "tests/cli/program.h"

namespace attnbench::testing {
namespace {

using nlohmann::json;

TEST(CliPins, WrongKernelsAreToldAsBefore) {
  const Scratch scratch;
  const std::string sweep = scratch.write("wrong.yaml", R"(name: wrong
defaults: {heads: 4/2, head_dim: 64}
sweeps:
  - {name: packed, batch: [2q5_q40, 3q1s70], mask: [none, causal]}
  - {name: paged, batch: [q40_q17s30_q1s50, 5q1s99], kv: paged, block_size: 16, mask: causal, sinks: [false, true]}
  - {name: window, batch: q9s80_q3s40, window: '7,0', alibi: per_sequence}
)");
  const std::string kernels =
      "drop_last_key,one_key_short,scale_0_1_percent,maximum_from_0,ignores_alibi,takes_slopes_of_sequence_0,"
      "ignores_sinks,unwritten_row,nan_row,past_the_end,overwrites_input,throws_status";
  const Outcome o = run_faulty(scratch, {"run", sweep, "--device", "cpu", "--no-time", "--check",
                                         "full,invariants", "--out", "out", "--kernel", kernels});
  EXPECT_EQ(o.exit_code, 5) << o.err;
  std::vector<std::string> lines;
  const std::regex number("[0-9]+\\.[0-9]+(e[+-][0-9]+)?");  // differs in last digits from machine to machine
  for (const json& r : read_records(scratch.dir() / "out")) {
    json line = {r["id"], r["kernel"], r["status"]};
    // Clues have tests of their own: experiments end when their time does.
    if (r["check"].is_object()) line.push_back(r["check"]["failed_by"]);
    lines.push_back(std::regex_replace(line.dump(), number, "#"));
  }
  EXPECT_GT(lines.size(), 80u);
  expect_pinned("wrong_kernels", lines);
}

}  // namespace
}  // namespace attnbench::testing
