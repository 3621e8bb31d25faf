// The two passes of the backward reference: over rows of queries, and over keys.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <vector>

#include "reference/backward.h"
#include "reference/plan.h"
#include "reference/score_terms.h"
#include "reference/tile.h"

namespace attnbench::reference {

/// The facts and error variances of query rows, by sequence, head and position. Threads write different rows.
class RowTable {
 public:
  struct Row {
    RowFacts facts;
    PairErrors errors;
  };
  explicit RowTable(const Problem& problem)
      : problem_(&problem), rows_(problem.q_lens.size() * problem.num_heads_q) {}
  /// Makes room for the rows of a head. Not while threads use the table.
  void add(int seq, int head) {
    std::vector<Row>& rows = rows_[at(seq, head)];
    if (rows.empty()) rows.resize(static_cast<size_t>(problem_->q_lens[seq]));
  }
  Row& row(const RowId& id) { return rows_[at(id.seq, id.head)][static_cast<size_t>(id.pos)]; }
  const Row& row(const RowId& id) const { return rows_[at(id.seq, id.head)][static_cast<size_t>(id.pos)]; }

 private:
  size_t at(int seq, int head) const {
    return static_cast<size_t>(seq) * static_cast<size_t>(problem_->num_heads_q) + static_cast<size_t>(head);
  }
  const Problem* problem_;
  std::vector<std::vector<Row>> rows_;
};

/// Computes tiles of query rows: facts, and dq where it is wanted. Each thread has one.
class RowPass {
 public:
  RowPass(const Problem& problem, const BackwardInputs& inputs, const PairErrorModel& errors)
      : problem_(problem), inputs_(inputs), errors_(errors), terms_(problem) {}

  /// The results of `tile`, valid until the next call; without `gradients` only rows and facts.
  QueryGrads compute(const Plan& plan, const Tile& tile, bool gradients);
  std::span<const PairErrors> errors() const { return row_errors_; }

 private:
  void reserve(int64_t rows, int64_t keys);
  void load_rows(const RowId* rows);
  void multiply(int seq, int kv_head, int64_t key_begin);
  void weigh(const RowId* rows, const KeyRange* visible, const KeyRange& keys);
  void add_outputs(int seq, int kv_head, const KeyRange* visible, int64_t key_begin);
  void end_facts(const KeyRange* visible, int64_t key_begin);
  void add_gradients(int seq, int kv_head, const KeyRange* visible, int64_t key_begin);
  void find_variances(const KeyBlock& block, const KeyRange* visible, int64_t key_begin);

  double* row_of(Eigen::VectorXd& strip, int64_t r, int64_t key_begin) {
    return strip.data() + r * stride_ - key_begin;
  }

  const Problem& problem_;
  const BackwardInputs& inputs_;
  const PairErrorModel& errors_;
  const ScoreTerms terms_;
  int64_t num_rows_ = 0, stride_ = 0;
  std::vector<KeyBlock> blocks_;
  std::vector<RowFacts> facts_;
  std::vector<PairErrors> row_errors_;
  // Strips (rows, stride): scores, then p; dP; what dropout multiplies weights by; c of the softcap.
  Eigen::VectorXd p_, dp_, kept_, slope_;
  Eigen::VectorXd key_norm_, value_norm_, few_, sum_;
  RowMajor<double> q_, d_out_, k_, v_, o_;
  RowMajor<double> ds_, cp_, x_, w_;             ///< (rows, block): dS, c p, variance of dS, weights
  RowMajor<double> dq_, variance_, projection_;  ///< (rows, D)
};

/// Rows of dk and dv that are computed together: keys first..last-1 of KeyPass::keys.
struct KeyTile {
  int64_t first = 0, last = 0;
  double cost = 0.0;  ///< in visible pairs
};

/// Computes tiles of keys, for which the rows that see them must be in the table. Each thread has one.
class KeyPass {
 public:
  KeyPass(const Problem& problem, const BackwardInputs& inputs, const RowTable& table)
      : problem_(problem), inputs_(inputs), table_(table), terms_(problem) {}

  /// keys: of one sequence and KV head, by rising position.
  KeyGrads compute(std::span<const KeyId> keys);

 private:
  struct Seen {
    RowId row;
    int64_t lo, hi;  ///< of the tile's keys
  };
  void reserve(std::span<const KeyId> keys);
  void add_rows(std::span<const KeyId> keys);
  void find_terms(std::span<const KeyId> keys);

  const Problem& problem_;
  const BackwardInputs& inputs_;
  const RowTable& table_;
  const ScoreTerms terms_;
  std::vector<Seen> seen_;  ///< rows of the present chunk
  RowMajor<double> q_, d_out_, k_, v_;
  RowMajor<double> s_, dp_;       ///< (rows, keys): scores, then dS; dP, then w
  RowMajor<double> dk_x_, dv_x_;  ///< (rows, keys): variances of dS and w
  RowMajor<double> dk_, dk_var_, dv_, dv_var_;
  RowMajor<double> dk_head_, dk_heads_, dv_head_, dv_heads_;  ///< one head's part; sum of squares of parts
  Eigen::VectorXd q_norm_, d_out_norm_;
  Eigen::ArrayXd dk_sum_, dk_few_, dv_sum_, dv_few_;
  std::vector<int64_t> rows_;
};

}  // namespace attnbench::reference
