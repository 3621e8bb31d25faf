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
    std::vector<unsigned char> right;
    if (const auto wrong = check_query_out(w, appended, outputs, v.worst, right)) {
      v.fail(detector::kQueryOut, *wrong);
      for (std::string& clue : query_clues(w, appended, outputs)) v.clues.push_back(std::move(clue));
    }
  }
  v.reference_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return v;
}

namespace ops::kv_append {
namespace {

void expect(const Workload& w, const HostOutputs& got, const Numerics&, const Check&, int,
            ExpectedOutputs& e) {
  const AppendedRows appended(w.item());
  expect_caches(w, appended, got, e);
  if (got.out.empty()) return;
  WorstElement worst;
  std::vector<unsigned char> right;
  check_query_out(w, appended, got, worst, right);
  const DType type = w.params().kv_append.dtype_query_out;
  e.tensors.push_back(
      not_compared("query_out", {std::ssize(got.out) / static_cast<int64_t>(dtype_size(type))}));
  put_bits(e.tensors.back(), type, right.data(), got.out.data());
}

}  // namespace

const JudgeOps kJudgeOps = {[](const Workload& w, const HostOutputs& outputs, const Numerics&, const Check&,
                               int) { return verify_append(w, outputs); },
                            expect};

}  // namespace ops::kv_append
}  // namespace attnbench
