// Memory of a step of a replayed server.
#include <gtest/gtest.h>

#include "harness/cases/case.h"
#include "harness/tensors/plan.h"

namespace attnbench {
namespace {

Case one_step(const std::string& keys) {
  const std::string server =
      "{mix: sharegpt, step: 7, steps: 40, warmup: 10, max_sequences: 4, token_budget: 128, cache_tokens: 32k}";
  return expand(parse_sweep_text("name: t\nsweeps:\n  - {" + keys + ", batch: {serving: " + server + "}}\n",
                                 "t.yaml"))
      .cases.at(0);
}

TEST(ServedPlan, AnAppendWritesTheStepsNewTokensThroughItsTable) {
  const Case c = one_step("op: kv_append");
  const WorkloadPlan plan = plan_workload(c);
  std::size_t token = 0;
  for (std::size_t b = 0; b < c.params.seqs.size(); ++b) {
    const SeqLen& s = c.params.seqs[b];
    for (int32_t pos = s.k - s.q; pos < s.k; ++pos, ++token) {
      const int64_t block = c.params.blocks->ids()[b][static_cast<std::size_t>(pos / 16)];
      EXPECT_EQ(plan.slot_mapping[token], block * 16 + pos % 16);
    }
  }
  EXPECT_EQ(plan.slot_mapping.size(), token);
}

TEST(ServedPlan, SequencesThatShareRowsShareTheirDescales) {
  const Case c = one_step("kv: paged, kv_dtype: e4m3");
  const int32_t last = static_cast<int32_t>(c.params.seqs.size()) - 1;
  EXPECT_EQ(descale_seq(c.params, last), c.params.blocks->shared() > 0 ? 0 : last);
  CaseParams shared = c.params;
  shared.seqs = {{1, 16}, {1, 16}};
  shared.blocks =
      std::make_shared<const GivenBlocks>(GivenBlocks::Ids{{3}, {3}}, std::vector<int32_t>{16, 16}, 16);
  EXPECT_EQ(descale_seq(shared, 1), 0);
}

}  // namespace
}  // namespace attnbench
