#include "harness/cases/draws.h"

#include <algorithm>

#include "harness/cases/case.h"
#include "harness/digest.h"
#include "kernels/contract/philox.h"

namespace attnbench {
namespace {

// These differ from the streams of lengths (config/lengths.cpp) and of the workload (tensors/plan.cpp).
constexpr uint32_t kWindowStream = 0x77696e64;  // "wind"
constexpr uint32_t kBlockStream = 0x626c6f63;   // "bloc"

int32_t below(int32_t range, uint32_t r) {
  return static_cast<int32_t>((uint64_t{r} * static_cast<uint32_t>(range)) >> 32);
}

}  // namespace

void draw_window(CaseParams& p, uint64_t seed) {
  p.window_drawn = false;
  p.window_left = p.window_right = -1;
  int32_t longest = 0;
  for (const SeqLen& s : p.seqs) longest = std::max(longest, s.k);
  if (longest == 0) return;
  Digest digest;
  digest.add_text(case_id(normalised(p)));
  const auto word = digest.value();
  const Philox4 r =
      philox4x32(kWindowStream, static_cast<uint32_t>(word), static_cast<uint32_t>(word >> 32), 0, seed);
  p.window_left = below(longest, r.x[0]);
  p.window_right = below(longest, r.x[1]);
}

void draw_repeated_blocks(CaseParams& p, uint64_t seed) {
  GivenBlocks::Ids ids;
  std::vector<int32_t> k_lens;
  int64_t needed = 0;
  for (const SeqLen& s : p.seqs) needed += (int64_t{s.k} + p.block_size - 1) / p.block_size;
  // As many blocks as places: about a third of them then stands in two or more places.
  const auto pool = static_cast<int32_t>(std::clamp<int64_t>(needed, std::max(p.pool_blocks, 1), 1 << 24));
  for (std::size_t b = 0; b < p.seqs.size(); ++b) {
    const int64_t blocks = (int64_t{p.seqs[b].k} + p.block_size - 1) / p.block_size;
    auto& row = ids.emplace_back();
    for (int64_t i = 0; i < blocks; ++i) {
      const Philox4 r = philox4x32(kBlockStream, static_cast<uint32_t>(b), static_cast<uint32_t>(i), 0, seed);
      row.push_back(below(pool, r.x[0]));
    }
    k_lens.push_back(p.seqs[b].k);
  }
  p.blocks = std::make_shared<const GivenBlocks>(std::move(ids), std::move(k_lens), p.block_size);
}

}  // namespace attnbench
