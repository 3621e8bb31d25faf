#include "harness/judge/rank_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <set>

#include "harness/cases/paths.h"
#include "harness/judge/case_inputs.h"
#include "harness/judge/sample.h"

namespace attnbench {
namespace {

constexpr std::size_t kMostRows = 48;
/// What tells a mistake from rounding, coarsely: whether the output is right has been judged already.
constexpr double kLseError = 0.02, kOutError = 0.1;

/// The keys of one rank.
class RankInputs final : public reference::Inputs {
 public:
  RankInputs(const Case& c, int32_t rank) : whole_(c, none_), p_(c.params), rank_(rank) {}
  void load_q(int seq, int head, int begin, int end, double* out) const override {
    whole_.load_q(seq, head, begin, end, out);
  }
  void load_k(int seq, int head, int begin, int end, double* out) const override {
    for (int i = begin; i < end; ++i, out += p_.head_dim)
      whole_.load_k(seq, head, position(i), position(i) + 1, out);
  }
  void load_v(int seq, int head, int begin, int end, double* out) const override {
    for (int i = begin; i < end; ++i, out += p_.dim_v())
      whole_.load_v(seq, head, position(i), position(i) + 1, out);
  }

 private:
  int position(int i) const { return dcp_global_pos(i, p_.dcp_ranks, p_.dcp_interleave, rank_); }
  std::vector<unsigned char> none_;
  CaseInputs whole_;
  const CaseParams& p_;
  int32_t rank_;
};

struct StateRow {
  double lse = 0;
  std::vector<double> out;
};

/// At most kMostRows rows, from all over the batch.
std::vector<reference::RowId> rows_of(const Case& c) {
  const std::vector<reference::RowId> all = sample_rows(c, c.seed);
  const std::size_t step = (all.size() + kMostRows - 1) / kMostRows;
  std::vector<reference::RowId> rows;
  for (std::size_t i = 0; i < all.size(); i += step) rows.push_back(all[i]);
  return rows;
}

class RankJudge {
 public:
  RankJudge(const Case& c, const RankStates& states)
      : c_(c), p_(c.params), states_(states), rows_(rows_of(c)) {
    int64_t token = 0;
    for (const SeqLen& s : p_.seqs) {
      first_token_.push_back(token);
      token += s.q;
    }
  }

  std::vector<std::string> clues() const {
    std::vector<std::string> wrong;
    for (int32_t r = 0; r < p_.dcp_ranks; ++r) {
      if (auto clue = clue_of(r)) wrong.push_back(*clue);
    }
    if (wrong.empty()) return {"the partial states of all ranks are right: what is made of them is at fault"};
    if (static_cast<int32_t>(wrong.size()) < p_.dcp_ranks)
      wrong.back() += "; the other ranks' states are right";
    return wrong;
  }

 private:
  /// The right rows of a rank, if it has `interleave` for its lengths.
  std::vector<StateRow> expected(int32_t rank, int32_t interleave) const {
    reference::Problem problem = problem_of(c_);
    problem.causal = false;  // a query sees all keys of its rank
    if (rank > 0) problem.sinks.clear();
    for (std::size_t b = 0; b < p_.seqs.size(); ++b)
      problem.k_lens[b] = dcp_local_len(p_.seqs[b].k, p_.dcp_ranks, interleave, rank);
    std::vector<StateRow> rows(rows_.size());
    const auto width = static_cast<std::size_t>(p_.dim_v());
    for (std::size_t i = 0; i < rows_.size(); ++i) {  // one by one: a block of rows comes in any order
      reference::attend(problem, RankInputs(c_, rank), {&rows_[i], 1}, 1, [&](const reference::RowBlock& b) {
        rows[i] = {b.lse[0], {b.o.begin(), b.o.begin() + static_cast<std::ptrdiff_t>(width)}};
      });
    }
    return rows;
  }

  StateRow got(int32_t rank, const reference::RowId& id) const {
    const MergeStatesParams& m = states_.layout;
    const int64_t token = first_token_[static_cast<std::size_t>(id.seq)] + id.pos;
    StateRow row{states_.lse[static_cast<std::size_t>(rank * m.lse_stride_state + token * m.lse_stride_token +
                                                      id.head * m.lse_stride_head)],
                 {}};
    const int64_t at =
        rank * m.partial_stride_state + token * m.partial_stride_token + id.head * m.partial_stride_head;
    for (int32_t i = 0; i < m.head_dim; ++i)
      row.out.push_back(static_cast<double>(load_float(m.dtype_partial, states_.out.data(), at + i)));
    return row;
  }

  static bool same_lse(double a, double b) { return a == b || std::abs(a - b) <= kLseError; }
  static bool same_out(const StateRow& got, const StateRow& right) {
    if (right.lse == -INFINITY) return true;  // its O has no weight
    double error = 0, norm = 0;
    for (std::size_t i = 0; i < right.out.size(); ++i) {
      error += (got.out[i] - right.out[i]) * (got.out[i] - right.out[i]);
      norm += right.out[i] * right.out[i];
    }
    return error <= kOutError * kOutError * norm;
  }

  std::optional<std::string> clue_of(int32_t rank) const {
    const std::vector<StateRow> right = expected(rank, p_.dcp_interleave);
    std::vector<StateRow> rows;
    std::vector<std::size_t> wrong;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      rows.push_back(got(rank, rows_[i]));
      if (!same_lse(rows[i].lse, right[i].lse) || !same_out(rows[i], right[i])) wrong.push_back(i);
    }
    if (wrong.empty()) return std::nullopt;
    const reference::RowId& id = rows_[wrong.front()];
    return fmt::format(
        "rank {}: {} of {} rows of its state are wrong (seq {} pos {} head {}: LSE {:.4g}, {:.4g} "
        "expected){}",
        rank, wrong.size(), rows_.size(), id.seq, id.pos, id.head, rows[wrong.front()].lse,
        right[wrong.front()].lse, guess(rank, rows, right));
  }

  std::string guess(int32_t rank, const std::vector<StateRow>& rows,
                    const std::vector<StateRow>& right) const {
    const auto all = [&](const auto& holds) {
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (!holds(rows[i], right[i])) return false;
      }
      return true;
    };
    if (all([](const StateRow& r, const StateRow& e) {
          return same_lse(r.lse, e.lse * std::numbers::log2e) && same_out(r, e);
        }))
      return ": its LSE is in base 2, and must be a natural logarithm";
    if (all([](const StateRow& r, const StateRow&) { return std::isnan(r.lse); }))
      return ": it wrote nothing";
    for (const int32_t other : std::set<int32_t>{1, p_.block_size, p_.dcp_interleave * 2}) {
      if (other == p_.dcp_interleave) continue;
      const bool longer = std::ranges::any_of(p_.seqs, [&](const SeqLen& s) {
        return dcp_local_len(s.k, p_.dcp_ranks, other, rank) >
               dcp_local_len(s.k, p_.dcp_ranks, p_.dcp_interleave, rank);
      });
      if (longer) continue;  // it would have met poison
      const std::vector<StateRow> as_if = expected(rank, other);
      std::size_t same = 0;
      for (std::size_t i = 0; i < rows.size(); ++i)
        same += same_lse(rows[i].lse, as_if[i].lse) && same_out(rows[i], as_if[i]) ? 1 : 0;
      if (same == rows.size())
        return fmt::format(": its lengths are those of dcp_interleave {}, not {}", other, p_.dcp_interleave);
    }
    return "";
  }

  const Case& c_;
  const CaseParams& p_;
  const RankStates& states_;
  std::vector<reference::RowId> rows_;
  std::vector<int64_t> first_token_;
};

}  // namespace

std::vector<std::string> rank_clues(const Case& c, const RankStates& states) {
  return RankJudge(c, states).clues();
}

}  // namespace attnbench
