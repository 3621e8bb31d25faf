#include "harness/cases/cost.h"

#include <algorithm>

#include "harness/cases/tally.h"
#include "harness/cases/visible_keys.h"
#include "harness/ops/case_ops.h"

namespace attnbench {
namespace {

CaseCost cost_with(const CaseParams& p, DrawSeed seed) {
  CaseCost c;
  for (const SeqLen& s : p.seqs) {
    c.total_q += s.q;
    c.total_k += s.k;
    c.max_q = std::max(c.max_q, s.q);
    c.max_k = std::max(c.max_k, s.k);
  }
  case_ops(p.op).set_cost(p, seed, c);
  if (p.does().forward() || p.does().copies())
    c.hole_bytes += kv_row_bytes(p) * static_cast<double>(hole_rows(p));
  return c;
}

}  // namespace

CaseCost cost_of(const CaseParams& p, uint64_t seed) { return cost_with(p, seed); }

CaseCost most_cost_of(const CaseParams& p) { return cost_with(p, std::nullopt); }

double executed_flop(const CaseParams& p, const Tile& tile) {
  if (!p.does().forward() || p.path != Path::kOneCall || p.topk > 0) return 0;
  if (std::min({tile.tokens, tile.heads, tile.rows, tile.keys}) <= 0) return 0;
  const Mask mask = mask_of(p);
  int64_t blocks = 0;
  for (const SeqLen& s : p.seqs) {
    for (int64_t first = 0; first < s.q; first += tile.tokens) {
      const int64_t last = std::min<int64_t>(first + tile.tokens, s.q) - 1;
      const KeyRange seen = visible_keys(mask, s.q, s.k, first, last);
      if (!seen.empty()) blocks += (seen.end - 1) / tile.keys - seen.begin / tile.keys + 1;
    }
  }
  const double tiles_of_heads = static_cast<double>(p.num_heads_q) / tile.heads;
  return 2.0 * (p.head_dim + (p.qv ? 2 : 1) * p.dim_v()) * tiles_of_heads * tile.rows * tile.keys *
         static_cast<double>(blocks);
}

}  // namespace attnbench
