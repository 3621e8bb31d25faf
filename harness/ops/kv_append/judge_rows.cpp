#include "harness/ops/kv_append/judge_rows.h"

#include <algorithm>
#include <vector>

#include "harness/judge/interval.h"
#include "harness/tensors/descales.h"
#include "reference/rotary.h"

namespace attnbench {

bool AppendedRows::copied(bool is_v) const {
  return (is_v || case_->params.rotary == Rotary::kNone) && !case_->params.rounds_new(is_v);
}

void AppendedRows::row(bool is_v, RowOwner owner, int head, std::span<double> x, std::span<double> slack,
                       RowTurn turn) const {
  const CaseParams& p = case_->params;
  float values[512];
  value_row({case_->seed, p.data}, is_v ? Tensor::kNewV : Tensor::kNewK, static_cast<uint32_t>(owner.seq),
            static_cast<uint32_t>(owner.pos), static_cast<uint32_t>(head), p.dim_of_kv(is_v), values);
  const bool stored = p.new_as_stored && p.type_of_new(is_v) != p.dtype;
  for (std::size_t c = 0; c < x.size(); ++c) {
    x[c] = static_cast<double>(stored ? stored_value(*case_, is_v ? Tensor::kV : Tensor::kK, values[c])
                                      : round_to(p.dtype, values[c]));
  }
  std::ranges::fill(slack, 0.0);
  if (is_v || turn == RowTurn::kNone) return;
  const SeqLen& seq = p.seqs[static_cast<std::size_t>(owner.seq)];
  int position = owner.pos;
  if (turn == RowTurn::kPositionBefore) position = std::max(0, position - 1);
  if (turn == RowTurn::kPositionAfter) position = std::min(position + 1, seq.k - 1);
  if (turn == RowTurn::kFromFirstNew) position -= seq.k - seq.q;
  rotate(position, x, slack, turn);
}

void AppendedRows::query(RowOwner owner, int position, int head, std::span<double> x, std::span<double> slack,
                         RowTurn turn) const {
  const CaseParams& p = case_->params;
  float values[512];
  value_row({case_->seed, p.data}, Tensor::kQ, static_cast<uint32_t>(owner.seq),
            static_cast<uint32_t>(owner.pos), static_cast<uint32_t>(head), p.head_dim, values);
  for (std::size_t c = 0; c < x.size(); ++c) x[c] = static_cast<double>(round_to(p.dtype, values[c]));
  std::ranges::fill(slack, 0.0);
  if (turn != RowTurn::kNone) rotate(position, x, slack, turn);
}

void AppendedRows::rotate(int position, std::span<double> x, std::span<double> slack, RowTurn turn) const {
  const CaseParams& p = case_->params;
  if (p.rotary == Rotary::kNone) return;
  const std::size_t half = static_cast<std::size_t>(p.rotary_width() / 2);
  const std::size_t at = static_cast<std::size_t>(position) * half;
  std::span<const float> sine = std::span(tables_.sin).subspan(at, half);
  std::vector<float> inverse;
  for (std::size_t i = 0; turn == RowTurn::kInverse && i < half; ++i) inverse.push_back(-sine[i]);
  if (!inverse.empty()) sine = inverse;
  const bool interleaved = (p.rotary == Rotary::kInterleaved) != (turn == RowTurn::kOtherPairs);
  reference::rotate(std::span(tables_.cos).subspan(at, half), sine, interleaved, x, slack);
  for (double& s : slack) {
    if (s > 0) s = kTwoRoundings * s + kFloatQuantum;
  }
}

}  // namespace attnbench
