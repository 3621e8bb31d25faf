#include <chrono>

#include "harness/ops/judge_ops.h"

#include "harness/ops/kv_append/judge_cache.h"
#include "harness/ops/kv_append/judge_query.h"

namespace attnbench {

Verdict verify_append(const Workload& w, const HostOutputs& outputs) {
  const auto begin = std::chrono::steady_clock::now();
  Verdict v;
  v.pass = true;
  const AppendedRows appended(w.item());
  v.method = appended.copied(false) && appended.copied(true) ? "bitwise" : "interval";
  const CaseParams& p = w.item().params;
  const int64_t rows = static_cast<int64_t>(w.plan().kv_owners.size()) * p.num_heads_kv;
  const bool queries = p.query_out != QueryOut::kNone;
  if (p.query_out == QueryOut::kE4m3) v.method = "interval";
  v.rows_total = v.rows = 2 * rows + (queries ? std::ssize(w.plan().slot_mapping) * p.num_heads_q : 0);
  check_caches(w, appended, outputs, v);
  if (queries) {
    if (const auto wrong = check_query_out(w, appended, outputs, v.worst)) {
      v.fail(detector::kQueryOut, *wrong);
      for (std::string& clue : query_clues(w, appended, outputs)) v.clues.push_back(std::move(clue));
    }
  }
  v.reference_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return v;
}

const JudgeOps ops::kv_append::kJudgeOps = {[](const Workload& w, const HostOutputs& outputs, const Numerics&,
                                               const Check&, int) { return verify_append(w, outputs); }};

}  // namespace attnbench
