#include "harness/cases/served.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/cases/case.h"

namespace attnbench {

void ServedSteps::settle(CaseParams& p, const std::string& place) {
  if (!p.serving) return;
  const ServingSpec& spec = *p.serving->spec;
  const std::pair key(serving_text(spec), p.block_size);
  auto at = replays_.find(key);
  if (at == replays_.end()) {
    at = replays_.emplace(key, replay_steps(spec, p.block_size)).first;
    const std::string note = fmt::format("{}: note: {}", place, at->second.note);
    // Replays with blocks of other sizes leave out the same.
    const bool is_new = std::ranges::find(notes_, note) == notes_.end();
    if (!at->second.note.empty() && is_new) notes_.push_back(note);
  }
  const ReplayedStep& step = at->second.steps[static_cast<std::size_t>(p.serving->index)];
  p.serving.reset();
  p.seqs = step.seqs;
  p.served = step.served;
  if (p.paged() && p.page_layout == PageLayout::kServed) give_blocks(p, step.blocks);
}

}  // namespace attnbench
