// The float64 reference of op attention_backward: gradients of attention with respect to q, K and V.
//
// With w = keep * p the weights of the values, and per query row i and visible key j:
//   dP = keep * dO.v      delta = o.dO      F = p (dP - delta)      dS = c F, c = 1 - tanh(t / softcap)^2 or 1
//   dq_i = scale * sum_j dS k_j      dk_j = scale * sum_i dS q_i      dv_j = sum_i w dO_i
// The LSE and delta are computed from the inputs; no output of a kernel is read.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "reference/reference.h"

namespace attnbench::reference {

/// The inputs of the forward pass and dO, of which load_d_out writes rows like the other functions:
/// (end - begin, value_dim()) of query head `head`.
class BackwardInputs : public Inputs {
 public:
  virtual void load_d_out(int seq, int head, int begin, int end, double* out) const = 0;
};

/// A row of dk and dv: key `pos` of sequence `seq`, KV head `kv_head`.
struct KeyId {
  int seq;
  int pos;
  int kv_head;
};

/// What of a query row decides how large the errors of its dS and w can be. All are 0 without visible keys, but
/// lse.
struct RowFacts {
  double lse = 0;           ///< -inf, or the sink, without visible keys
  double delta = 0;         ///< o.dO
  double out_terms = 0;     ///< sum over channels of o^2 dO^2: what roundings of o move delta by
  double weight_terms = 0;  ///< sum over keys of (w dO.v - p delta)^2: what errors of weights move delta by
  double score_abs = 0;     ///< as RowBlock::score_abs
  double score_most = 0;    ///< largest |score| of a visible key
  double dot_norm = 0;      ///< as RowBlock::dot_norm
  double dp_abs = 0;        ///< largest |dP| of a visible key
  double dp_norm = 0;       ///< |dO| * largest |v| of a visible key, times 1 / (1 - p_dropout)
  double d_out_norm = 0;    ///< |dO|
  int64_t keys = 0;         ///< visible keys
};

/// Variances of the errors of one dS and one w, relative to their squares and absolute. Errors of a row's own
/// sums and of its delta are common to its keys: rows of dq leave them out, for which QueryGrads::projection
/// is made; rows of dk and dv take one pair of each query row, so that there they count as the pair's own.
struct PairErrors {
  double dq_relative = 0;   ///< of dS in dq: adds dq_relative * dS^2
  double dq_absolute = 0;   ///< of dP - delta in dq: adds dq_absolute * (c p)^2
  double key_relative = 0;  ///< of dS in dk and of w in dv
  double key_absolute = 0;  ///< of dP - delta in dk
  double capped = 0;        ///< of c: adds capped * F^2
  double ds_spacing = 0;    ///< of every visible dS: what a type with a fixed spacing near 0 adds
  double w_spacing = 0;     ///< of every visible w
};
using PairErrorModel = std::function<PairErrors(const RowFacts&)>;

/// Rows of dq, row-major (rows, head_dim). Per row:
///   dq          the gradient
///   variance    sum over keys of the variance of dS, times (scale k)^2
///   projection  scale * sum over keys of c p k: an error e of delta moves dq by -e * projection
///   few         sum x^2 / (sum x)^2, x being a key's part of the variance: 1 over the keys that carry it
struct QueryGrads {
  std::span<const RowId> rows;
  std::span<const double> dq, variance, projection;
  std::span<const double> few;
  std::span<const RowFacts> facts;
};

/// Rows of dk, (keys, head_dim), and of dv, (keys, value_dim()), with variances as of dq. dk_heads and dv_heads:
/// sum over the query heads of the square of the head's own part, for kernels that round these parts.
struct KeyGrads {
  std::span<const KeyId> keys;
  std::span<const double> dk, dk_variance, dk_heads, dv, dv_variance, dv_heads;
  std::span<const double> dk_few, dv_few;
  std::span<const int64_t> rows;  ///< (query, head) pairs that see the key; 0: the gradients are 0
};

struct GradSinks {
  std::function<void(const QueryGrads&)> queries;
  std::function<void(const KeyGrads&)> keys;
  /// The facts of every query row that was computed, some of them for the keys alone.
  std::function<void(std::span<const RowId>, std::span<const RowFacts>)> facts;
};

/// Computes these rows of dq, and of dk and dv, and delivers each once, from several threads in no particular
/// order. Equal calls give equal bits. The keys of a sequence and KV head need the LSE and delta of all queries
/// between the first and the last that see one of them: unless these are in `rows`, they cost their forward pass. Threads,
/// exceptions and illegal problems: as for attend(). Problem::probs and k_ends are not used.
void differentiate(const Problem& problem, const BackwardInputs& inputs, std::span<const RowId> rows,
                   std::span<const KeyId> keys, const PairErrorModel& errors, int num_threads,
                   const GradSinks& sinks);

/// All keys of the problem, in (seq, pos, kv_head) order.
std::vector<KeyId> all_keys(const Problem& problem);

}  // namespace attnbench::reference
