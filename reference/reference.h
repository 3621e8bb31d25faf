// The float64 reference: attention by the textbook, from logical inputs.
//
// It knows nothing of memory layouts, pages, tiles or devices, and shares only kernels/contract with the
// kernels it judges. Inputs are asked for by coordinate; results are handed out block by block, so that a
// verification costs memory for rows, never for the cache.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace attnbench::reference {

/// The logical problem. Query i of sequence b stands at diag = i + k_lens[b] - q_lens[b] on the key axis; key
/// j is visible when (window_left < 0 or j >= diag - window_left) and (right < 0 or j <= diag + right), right
/// = 0 where causal, else window_right.
struct Problem {
  int head_dim = 0;    ///< of queries and keys
  int head_dim_v = 0;  ///< of values and outputs; 0: head_dim
  int num_heads_q = 0;
  int num_heads_kv = 0;  ///< divides num_heads_q; query head h reads KV head h / (num_heads_q / num_heads_kv)
  std::vector<int> q_lens;
  std::vector<int> k_lens;
  bool causal = false;
  int window_left = -1;
  int window_right = -1;
  double softmax_scale = 1.0;
  double softcap = 0.0;  ///< 0: none; else score = softcap * tanh(q.k * softmax_scale / softcap)
  /// ALiBi, after the softcap: score -= slope * |diag - j|, or slope * sqrt(|diag - j|) where alibi_sqrt is
  /// set. Empty: none; (Hq): the same slopes for every sequence; (B * Hq): slope of sequence b, head h at b *
  /// Hq + h.
  std::vector<double> alibi_slopes;
  bool alibi_sqrt = false;
  /// (Hq) or empty: one logit per head, a term exp(sink) in the denominator that has no value: o shrinks, lse
  /// includes it, p is normalised with it. -inf: none for this head. A row without visible keys has o = 0 and
  /// lse = sink.
  std::vector<double> sinks;

  /// Dropout: kept weights are multiplied by dropout_scale, others by 0, as contract/dropout.h defines it for
  /// packed row q_lens[0] + ... + q_lens[b - 1] + i; lse knows nothing of it. 0: none.
  float p_dropout = 0.0f;
  uint64_t dropout_seed = 0;
  uint64_t dropout_offset = 0;
  bool probs = false;  ///< whether RowBlock::probs are wanted

  int value_dim() const { return head_dim_v == 0 ? head_dim : head_dim_v; }
};

/// Where input values come from, already rounded to the kernel's input type. Each call writes rows
/// begin..end-1 of one head, row-major (end - begin, head_dim), values (end - begin, value_dim()). Called
/// from several threads at once.
class Inputs {
 public:
  virtual ~Inputs() = default;
  virtual void load_q(int seq, int head, int begin, int end, double* out) const = 0;
  virtual void load_k(int seq, int kv_head, int begin, int end, double* out) const = 0;
  virtual void load_v(int seq, int kv_head, int begin, int end, double* out) const = 0;
};

/// One output row: query `pos` of sequence `seq`, query head `head`.
struct RowId {
  int seq;
  int pos;
  int head;
};

/// Results of some rows. Per channel, row-major (rows, value_dim()):
///   o   the output,  a2  sum w^2 v^2,  v2  sum (w v - p o)^2
///   vv  sum v^2 over the visible keys
/// with p normalised by the whole denominator, so that with a sink they sum to less than 1, and w = p, under
/// dropout p * scale or 0; without it v2 = sum p^2 (v - o)^2. Per row:
///   lse        natural log of the denominator, sink included; -inf where it has no term (no key, no sink)
///   w2, p_max  sum w^2 / (sum w)^2, 0 where no weight is left: 1 over the number of keys that carry the row;
///              largest p
///   w4         sum (w^2 |v|^2)^2 / (sum w^2 |v|^2)^2, 0 where no weight is left: 1 over the number of keys
///              that carry what errors of the weights do to the row
///   score_abs  with m the largest and n the least score of a visible key: the larger of |m| and
///              |max(n, m - 28)|; it bounds |score| of every key whose weight is at least exp(-28) of the
///              row's largest. Of a sink not below m - 28 as well. Under dropout of keys whose weight is at
///              least exp(-28) of the largest that is kept.
///   dot_norm   softmax_scale * |q| * largest |k| of a visible key; it bounds every partial sum of q.k, hence
///              its rounding
///   keys       number of visible keys
/// Scores are the final ones, softcap and ALiBi included. Without visible keys all but lse is 0. a2 and v2
/// scale a tolerance and come from float32 products: a2, vv and w4 are good to 1e-5 relative, v2 to 1e-5 of
/// v2 + a2 (on values as random as real ones, 2e-6), and a2 up to 1e-30 vv times the largest w^2 too large,
/// for the weights that are too small for them. All else is float64.
struct RowBlock {
  std::span<const RowId> rows;
  std::span<const double> o, a2, v2, vv;
  std::span<const double> lse, w2, w4, p_max, score_abs, dot_norm;
  std::span<const int64_t> keys;
  /// p before dropout, where Problem::probs asks for it: of row r, key key_begin + j at r * key_count + j.
  /// Keys outside [key_begin, key_begin + key_count) have p = 0.
  std::span<const double> probs;
  int64_t key_begin = 0;
  int64_t key_count = 0;
};

/// Receives finished rows; calls come from several threads at once and in no particular order.
using RowSink = std::function<void(const RowBlock&)>;

/// Computes the given rows with `num_threads` threads (0: all). Each is delivered once; a row given twice,
/// which is not looked for, is delivered twice. Only keys that some given row sees are asked for. What
/// `inputs` or `sink` throw ends the work and is rethrown to the caller (the first, where several do). Equal
/// calls give equal bits; other rows beside them or another number of threads may change the last ones.
/// Throws std::invalid_argument where the problem contradicts itself: a row outside it, heads that do not
/// divide, a negative length, unequal numbers of q_lens and k_lens, a scale or softcap that is not finite,
/// slopes or sinks of another number than stated or not finite (a sink may be -inf), p_dropout outside [0,
/// 1).
void attend(const Problem& problem, const Inputs& inputs, std::span<const RowId> rows, int num_threads,
            const RowSink& sink);

/// All rows of the problem, in (seq, pos, head) order.
std::vector<RowId> all_rows(const Problem& problem);

}  // namespace attnbench::reference
