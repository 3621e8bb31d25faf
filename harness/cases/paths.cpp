#include "harness/cases/paths.h"

#include <algorithm>

namespace attnbench {

int32_t merged_states(const CaseParams& p) {
  return p.path == Path::kCascade ? 2 : p.path == Path::kDcp ? p.dcp_ranks : 0;
}

std::size_t leading_decodes(const CaseParams& p) {
  const auto longer = std::ranges::find_if(p.seqs, [&](const SeqLen& s) { return s.q > p.decode_threshold; });
  return static_cast<std::size_t>(longer - p.seqs.begin());
}

}  // namespace attnbench
