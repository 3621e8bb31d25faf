#include "harness/cases/served.h"

#include "harness/cases/case.h"

namespace attnbench {

void ServedSteps::settle(CaseParams& p) {
  if (!p.serving) return;
  const ServingSpec& spec = *p.serving->spec;
  const auto [at, is_new] = steps_.try_emplace({serving_text(spec, true), p.block_size});
  if (is_new) at->second = replay_steps(spec, p.block_size);
  const ReplayedStep& step = at->second[static_cast<std::size_t>(p.serving->index)];
  p.serving.reset();
  p.seqs = step.seqs;
  p.served = step.served;
  const bool paged = p.kv == KvSource::kPaged || p.op == Op::kKvAppend;
  if (paged && p.op != Op::kMergeStates && p.page_layout == PageLayout::kServed) give_blocks(p, step.blocks);
}

}  // namespace attnbench
