#include "harness/judge/shown_mistakes.h"

#include <vector>

#include "harness/judge/case_inputs.h"
#include "harness/judge/mistakes.h"
#include "harness/judge/sample.h"
#include "reference/plan.h"

namespace attnbench {
namespace {

/// Most keys of a row that shows a mistake. One key of n changes O by about 1/sqrt(n) of its length.
constexpr int64_t kMostKeys = 4096;

/// The keys of a range that a query of head 0 sees.
std::vector<int64_t> seen(const reference::Problem& p, const reference::KeyRange& range, int seq, int pos) {
  std::vector<int64_t> keys;
  for (int64_t key = range.begin; key < range.end; ++key) {
    if (!p.sees || p.sees(seq, pos, 0, key)) keys.push_back(key);
  }
  return keys;
}

/// Whether a query gets another result.
bool differs(const reference::Problem& right, const reference::Problem& wrong, int seq, int pos) {
  const reference::KeyRange a = reference::visible_keys(right, seq, pos);
  const reference::KeyRange b = reference::visible_keys(wrong, seq, pos);
  if (a.end - a.begin > kMostKeys || b.end - b.begin > kMostKeys) return false;
  const std::vector<int64_t> keys = seen(right, a, seq, pos);
  if (right.softmax_scale != wrong.softmax_scale)
    return keys.size() > 1 && right.softcap == 0;  // one key weighs 1
  return keys != seen(wrong, b, seq, pos);
}

/// Whether the first, a middle or the last query of some sequence gets another result.
bool shows(const reference::Problem& right, const reference::Problem& wrong) {
  for (int b = 0; b < static_cast<int>(right.q_lens.size()); ++b) {
    const int queries = right.q_lens[static_cast<std::size_t>(b)];
    for (const int pos : {0, queries / 2, queries - 1}) {
      if (queries > 0 && differs(right, wrong, b, pos)) return true;
    }
  }
  return false;
}

}  // namespace

std::set<std::string> shown_mistakes(const Case& c) {
  const CaseParams& p = c.params;
  const bool coarse = dtype_size(p.type_of_q()) == 1 || dtype_size(p.type_of_out()) == 1;
  if (coarse || p.path != Path::kOneCall || p.data != Profile::kNormal) return {};
  const std::vector<unsigned char> none_stored;
  const CaseInputs inputs(c, none_stored);
  const reference::Problem right = problem_of(c);
  std::set<std::string> shown;
  for (const Mistake& m : mistakes_of(c, right, inputs)) {
    if (!m.misreads && shows(right, m.problem)) shown.insert(m.text);
  }
  return shown;
}

}  // namespace attnbench
