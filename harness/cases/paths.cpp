#include "harness/cases/paths.h"

#include <algorithm>

namespace attnbench {
namespace {

constexpr int32_t kLeastPrefix = 256;
constexpr std::size_t kLeastSequences = 8;
constexpr int64_t kTile = 128;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

int32_t merged_states(const CaseParams& p) {
  return p.path == Path::kCascade ? 2 : p.path == Path::kDcp ? p.dcp_ranks : 0;
}

std::size_t leading_decodes(const CaseParams& p) {
  const auto longer =
      std::find_if(p.seqs.begin(), p.seqs.end(), [&](const SeqLen& s) { return s.q > p.decode_threshold; });
  return static_cast<std::size_t>(longer - p.seqs.begin());
}

bool vllm_would_cascade(const CaseParams& p, int32_t multiprocessors) {
  if (p.shared_tokens() < kLeastPrefix || p.seqs.size() < kLeastSequences) return false;
  if (p.alibi != Alibi::kNone || p.window_left >= 0 || p.window_right >= 0) return false;
  const int64_t group = p.num_heads_q / p.num_heads_kv;
  const bool decodes = std::all_of(p.seqs.begin(), p.seqs.end(), [](const SeqLen& s) { return s.q == 1; });
  if (group == 1 || !decodes) return true;
  const auto sequences = static_cast<int64_t>(p.seqs.size());
  const int64_t prefix_tiles = ceil_div(p.shared_tokens(), kTile);
  const int64_t cascade =
      ceil_div(p.num_heads_q * ceil_div(sequences, kTile), multiprocessors) * prefix_tiles;
  const int64_t split =
      ceil_div(sequences * p.num_heads_kv * ceil_div(group, kTile) * prefix_tiles, multiprocessors);
  return cascade < split;
}

}  // namespace attnbench
