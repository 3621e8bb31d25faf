#include "harness/judge/scored_rows.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <utility>

namespace attnbench {

std::vector<ScoredRow> scored_rows(reference::Problem problem, const reference::Inputs& inputs,
                                   std::span<const WrongRow> rows, int num_threads) {
  problem.probs = true;
  std::vector<reference::RowId> ids;
  for (const WrongRow& r : rows) ids.push_back(r.id);
  std::vector<ScoredRow> out;
  std::mutex mutex;
  const int group = problem.num_heads_q / problem.num_heads_kv;
  const auto d = static_cast<std::size_t>(problem.value_dim());
  reference::attend(problem, inputs, ids, num_threads, [&](const reference::RowBlock& b) {
    const auto keys = static_cast<std::size_t>(b.key_count);
    for (std::size_t r = 0; r < b.rows.size(); ++r) {
      const reference::RowId id = b.rows[r];
      ScoredRow s{nullptr, b.key_begin, std::vector<double>(keys), std::vector<double>(keys * d)};
      for (std::size_t j = 0; j < keys; ++j) s.scores[j] = std::log(b.probs[r * keys + j]) + b.lse[r];
      const auto begin = static_cast<int>(b.key_begin);
      inputs.load_v(id.seq, id.head / group, begin, begin + static_cast<int>(keys), s.values.data());
      const std::lock_guard lock(mutex);
      s.row = &*std::ranges::find_if(rows, [&](const WrongRow& w) { return w.id == id; });
      out.push_back(std::move(s));
    }
  });
  return out;
}

}  // namespace attnbench
