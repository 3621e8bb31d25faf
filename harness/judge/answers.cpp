#include "harness/judge/answers.h"

#include <algorithm>
#include <cstdint>

namespace attnbench {

std::vector<RowAnswer> answers(const reference::Problem& problem, const reference::Inputs& inputs) {
  std::vector<int64_t> first = {0};  // the first row of each sequence
  for (const int q : problem.q_lens) first.push_back(first.back() + int64_t{q} * problem.num_heads_q);
  std::vector<RowAnswer> out(static_cast<std::size_t>(first.back()));
  const auto d = static_cast<std::size_t>(problem.value_dim());
  reference::attend(problem, inputs, reference::all_rows(problem), 1, [&](const reference::RowBlock& b) {
    const auto keys = static_cast<std::size_t>(b.key_count);
    for (std::size_t r = 0; r < b.rows.size(); ++r) {
      const auto [seq, pos, head] = b.rows[r];
      const int64_t row = first[static_cast<std::size_t>(seq)] + int64_t{pos} * problem.num_heads_q + head;
      const auto o = b.o.subspan(r * d, d);
      RowAnswer& answer = out[static_cast<std::size_t>(row)];
      answer = {{o.begin(), o.end()}, b.lse[r], b.p_max[r], {}};
      if (!problem.probs) continue;
      answer.p.resize(static_cast<std::size_t>(problem.k_lens[static_cast<std::size_t>(seq)]));
      std::copy_n(b.probs.begin() + static_cast<std::ptrdiff_t>(r * keys), keys,
                  answer.p.begin() + static_cast<std::ptrdiff_t>(b.key_begin));
    }
  });
  return out;
}

}  // namespace attnbench
