// Computes one tile of rows: scores, softmax, output and moments.
#pragma once

#include <Eigen/Core>
#include <cstdint>
#include <vector>

#include "reference/plan.h"
#include "reference/reference.h"
#include "reference/score_terms.h"

namespace attnbench::reference {

template <typename T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Computes tiles one after the other and keeps its buffers between them. Each thread has one.
class TileComputer {
 public:
  TileComputer(const Problem& problem, const Inputs& inputs);

  /// The results of `tile`, valid until the next call.
  RowBlock compute(const Plan& plan, const Tile& tile);

 private:
  void reserve(int64_t rows, int64_t keys);
  void set_empty(const RowId* rows);
  void load_queries(const RowId* rows);
  void load_keys(int seq, int kv_head, int begin, int end);
  /// Width of the vectors whose product is a score.
  int score_dim() const { return problem_.head_dim + (problem_.qv ? problem_.value_dim() : 0); }
  void score(int seq, int kv_head, int64_t key_begin);
  void softmax(const RowId* rows, const KeyRange* visible, const KeyRange& keys);
  void accumulate(int seq, int kv_head, const KeyRange* visible, int64_t key_begin);
  void find_seen(const RowId* rows, const KeyRange* visible, const KeyRange& keys);
  /// Puts -inf in place of the scores that row r does not see. Returns the least score that it sees.
  double hide(int64_t r, const KeyRange& visible, const KeyRange& keys);
  double largest_key(int64_t r, const KeyRange& visible, const KeyRange& keys) const;
  void add_values(const KeyBlock& block, const KeyRange* visible, int64_t key_begin, double unit);
  void add_carried(const KeyBlock& block, double unit2);
  void finish();

  void set_unseen(int64_t r, double sink);

  using Scores = Eigen::Map<RowMajor<double>, Eigen::Unaligned, Eigen::OuterStride<>>;
  Scores scores() { return {strip_.data(), num_rows_, stride_, Eigen::OuterStride<>(stride_)}; }
  Scores seen() { return {seen_.data(), num_rows_, stride_, Eigen::OuterStride<>(stride_)}; }

  const Problem& problem_;
  const Inputs& inputs_;
  const ScoreTerms terms_;
  int64_t num_tilts() const { return (num_rows_ + kTiltStep - 1) / kTiltStep; }

  int64_t num_rows_ = 0;
  int64_t stride_ = 0;
  std::vector<KeyBlock> blocks_;
  Eigen::VectorXd strip_;         ///< (rows, stride): scores, then e = exp(score - largest score of the row)
  Eigen::VectorXd tilted_;        ///< (tilts, stride): derivatives of the weights by ln(softmax_scale)
  Eigen::VectorXd key_norm_;      ///< |k| of the tile's keys
  RowMajor<double> q_;            ///< (rows, D), times softmax_scale; with qv (rows, D + Dv)
  RowMajor<double> k_;            ///< (block, D); with qv (block, D + Dv), values behind keys
  RowMajor<double> part_;         ///< with qv: rows of one tensor, before they are put side by side
  RowMajor<double> v_;            ///< (block, Dv)
  RowMajor<float> v_v2_;          ///< (block, 2 Dv): values beside their squares
  RowMajor<double> prefix_;       ///< (block + 1, 2 Dv): running sums of v_v2_
  RowMajor<float> weight2_;       ///< (rows, block): e^2
  RowMajor<float> block_moment_;  ///< (rows, 2 Dv): a product with v_v2_
  // (rows, Dv): sums of e v, e^2 v^2, e^2 v, v^2 and v. finish() makes results of them, v2 of b_.
  RowMajor<double> o_, a2_, b_, vv_, mean_;
  RowMajor<double> tilt_;        ///< (tilts, Dv)
  Eigen::VectorXd tilt_lse_;     ///< (tilts)
  Eigen::VectorXd inv_;          ///< p / e
  Eigen::VectorXd p2_;           ///< sum p^2
  Eigen::VectorXd variance_;     ///< sum e^2 |v|^2
  Eigen::VectorXf value_norm2_;  ///< (block): |v|^2 of the block's scaled values
  Eigen::VectorXd w2_, w4_, p_max_, lse_, score_abs_, dot_norm_;
  std::vector<int64_t> keys_;
  /// (rows, stride), with Problem::sees: 1 for keys that the row sees, 0 for others of the tile.
  Eigen::VectorXd seen_;
  std::vector<double> probs_;  ///< (rows, keys of the tile)
};

}  // namespace attnbench::reference
