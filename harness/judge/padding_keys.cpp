#include "harness/judge/padding_keys.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "harness/cases/visible_keys.h"

namespace attnbench {
namespace {

/// Whether the sums of all wrong rows are too large by the keys that fill the last `tile` of their sequence, each with a
/// weight of exp(0), and those of right rows that see its last key would not be. False where the sums are too large to
/// tell.
bool fills(const CaseParams& p, std::span<const RowFinding> rows, int64_t tile) {
  constexpr int kFewest = 2;
  int told = 0;
  for (const RowFinding& r : rows) {
    const SeqLen s = p.seqs[static_cast<std::size_t>(r.id.seq)];
    const auto more = static_cast<double>((tile - s.k % tile) % tile);
    const double sum = std::exp(r.lse), right = std::exp(r.expected_lse);
    // An LSE in fp32 has seven digits.
    const double error = 0.01 * more + 2e-6 * (1 + std::abs(r.expected_lse)) * right;
    if (!r.wrong()) {
      const bool sees_last = visible_keys(mask_of(p), s.q, s.k, r.id.pos).end == s.k;
      if (sees_last && more > error) return false;
      continue;
    }
    if (more == 0 || !(std::abs(sum - right - more) <= error)) return false;
    told += error < 0.25 * more;
  }
  return told >= kFewest;
}

}  // namespace

std::string padding_keys(const CaseParams& p, std::span<const RowFinding> rows) {
  std::vector<int64_t> tiles = {8, 16, 32, 64, 128, 256};
  const bool paged = p.kv == KvSource::kPaged;
  if (paged) tiles.insert(tiles.begin(), p.block_size);
  for (const int64_t tile : tiles) {
    if (tile < 2 || !fills(p, rows, tile)) continue;
    return fmt::format(
        "looks like: the zeros that fill the last {} of {} count as keys of score 0: mask them, and not only their values",
        paged && tile == p.block_size ? "page" : "tile", tile);
  }
  return "";
}

}  // namespace attnbench
