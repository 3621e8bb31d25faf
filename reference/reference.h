// The float64 reference: textbook attention on logical inputs.
//
// It knows no memory layouts, pages, kernel tiles or devices, and shares only kernels/contract with the
// kernels that it judges. It loads inputs by coordinate and delivers results block by block, so that a
// verification needs memory for rows, never for the cache.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace attnbench::reference {

/// The logical problem. Query i of sequence b is at diag = i + k_lens[b] - q_lens[b] on the key axis, or at i with
/// top_left. Key j
/// is visible if (window_left < 0 or j >= diag - window_left) and (right < 0 or j <= diag + right), with
/// right = 0 if causal, else window_right, and, with attention_chunk C > 0, if floor(j / C) == floor(diag / C).
struct Problem {
  int head_dim = 0;    ///< width of queries and keys
  int head_dim_v = 0;  ///< width of values and outputs; 0: head_dim
  int num_heads_q = 0;
  int num_heads_kv = 0;  ///< divides num_heads_q; query head h reads KV head h / (num_heads_q / num_heads_kv)
  std::vector<int> q_lens;
  std::vector<int> k_lens;
  /// (B) or empty: keys k_ends[b] and later of sequence b are not visible, but still count for diag. This is
  /// the problem of a kernel that loses the last keys.
  std::vector<int> k_ends;
  bool causal = false;
  bool top_left = false;
  int window_left = -1;
  int window_right = -1;
  int attention_chunk = 0;  ///< tokens of a chunk; 0: none
  /// Whether query `pos` of query head `head` of sequence `seq` sees a key that the rules above show it; null: it does.
  /// Several threads call it at once. Not for gradients.
  std::function<bool(int seq, int pos, int head, int64_t key)> sees;
  double softmax_scale = 1.0;
  double softcap = 0.0;  ///< 0: none; else score = softcap * tanh(q.k * softmax_scale / softcap)
  /// ALiBi, after the softcap: score -= slope * |diag - j|, or slope * sqrt(|diag - j|) if alibi_sqrt is set.
  /// Empty: no ALiBi. (Hq): the same slopes for every sequence. (B * Hq): slope of sequence b, head h at
  /// b * Hq + h.
  std::vector<double> alibi_slopes;
  bool alibi_sqrt = false;
  /// (Hq) or empty: one logit per head, which adds a term exp(sink) without a value to the denominator. o
  /// shrinks, lse includes the term, and p is normalised with it. -inf: no sink for this head. A row without
  /// visible keys has o = 0 and lse = sink.
  std::vector<double> sinks;

  /// Dropout: kept weights are multiplied by dropout_scale, others by 0. kernels/contract/dropout.h defines
  /// which are kept, for packed row q_begins[b] + i. lse does not change. 0: no dropout.
  float p_dropout = 0.0f;
  uint64_t dropout_seed = 0;
  uint64_t dropout_offset = 0;
  /// (B) or empty: first packed row of each sequence. Empty: q_lens[0] + ... + q_lens[b - 1].
  std::vector<int64_t> q_begins;
  bool probs = false;  ///< whether RowBlock::probs is computed
  bool qv = false;     ///< a score is (q.k + qv.v) * softmax_scale, then softcap and so on

  int value_dim() const { return head_dim_v == 0 ? head_dim : head_dim_v; }
};

/// The source of input values, already rounded to the kernel's input type. Each call writes rows begin..end-1
/// of one head, row-major: (end - begin, head_dim) for q and K, (end - begin, value_dim()) for V. Several
/// threads call it at once.
class Inputs {
 public:
  virtual ~Inputs() = default;
  virtual void load_q(int seq, int head, int begin, int end, double* out) const = 0;
  virtual void load_k(int seq, int kv_head, int begin, int end, double* out) const = 0;
  virtual void load_v(int seq, int kv_head, int begin, int end, double* out) const = 0;
  /// (end - begin, value_dim()); for problems with Problem::qv. Throws std::logic_error.
  virtual void load_qv(int seq, int head, int begin, int end, double* out) const;
};

/// One output row: query `pos` of sequence `seq`, query head `head`.
struct RowId {
  int seq;
  int pos;
  int head;
  bool operator==(const RowId&) const = default;
};

/// Rows of a block between two of those whose derivatives are computed, which costs a product for each.
inline constexpr int64_t kTiltStep = 16;

/// Results of some rows. Per channel, row-major (rows, value_dim()):
///   o   the output,  a2  sum w^2 v^2,  v2  sum (w v - p o)^2
///   vv  sum v^2 over the visible keys,  mean  the mean of v over them
/// p is normalised by the whole denominator, so with a sink the p sum to less than 1. w = p; under dropout,
/// w = p * scale or 0. Without dropout, v2 = sum p^2 (v - o)^2. Per row:
///   lse        natural log of the denominator, sink included; -inf if it has no term (no key, no sink)
///   w2         sum w^2 / (sum w)^2, 0 if no weight is left: 1 over the number of keys that carry the row
///   p_max      largest p
///   w4         sum (w^2 |v|^2)^2 / (sum w^2 |v|^2)^2, 0 if no weight is left: 1 over the number of keys that
///              carry the effect of errors of the weights
///   score_abs  the larger of |m| and |max(n, m - 28)|, with m the largest and n the least score of a visible
///              key. It bounds |score| of every key whose weight is at least exp(-28) of the row's largest.
///              It also bounds |sink| if the sink is not below m - 28. Under dropout it also bounds |score|
///              of keys whose weight is at least exp(-28) of the largest kept weight.
///   dot_norm   softmax_scale * |q| * largest |k| of a visible key; it bounds every partial sum of q.k, and
///              so the rounding of each. With qv, |q| is the norm of q and qv together, |k| that of k and v
///   keys       number of visible keys
/// Scores are final: softcap and ALiBi are included. Without visible keys, all but lse is 0. The moments
/// scale a tolerance and come from float32 products, as the mean does. a2, vv and w4 have a relative error of 1e-5. v2 has an
/// error of 1e-5 of v2 + a2 (2e-6 on values as random as real ones). a2 may be too large by up to 1e-30 vv
/// times the largest w^2, an upper bound for weights that are too small for float32. All else is float64.
struct RowBlock {
  std::span<const RowId> rows;
  std::span<const double> o, a2, v2, vv, mean;
  std::span<const double> lse, w2, w4, p_max, score_abs, dot_norm;
  std::span<const int64_t> keys;
  /// p before dropout if Problem::probs is set: p of row r, key key_begin + j is at r * key_count + j. Keys
  /// outside [key_begin, key_begin + key_count) have p = 0.
  std::span<const double> probs;
  int64_t key_begin = 0;
  int64_t key_count = 0;
  /// Derivatives by ln(softmax_scale) of o, (value_dim()), and of lse. Entry i is of row rows.size() - 1 - i * kTiltStep.
  std::span<const double> tilt, tilt_lse;
};

/// Receives finished rows. Several threads call it at once, in no particular order.
using RowSink = std::function<void(const RowBlock&)>;

/// Computes the given rows with `num_threads` threads (0: all) and delivers each row once. A row that is
/// given twice is delivered twice. Only keys that some given row sees are loaded.
///
/// Equal calls give equal bits. Last bits may change with the number of threads or with the other rows. An
/// exception of `inputs` or `sink` ends the work and is rethrown to the caller; if there are several, the
/// first. Throws std::invalid_argument if the problem is not legal: a row outside of it, num_heads_q not a
/// multiple of num_heads_kv, a negative length, unequal numbers of q_lens, k_lens, k_ends and q_begins, a scale or softcap that
/// is not finite, a wrong number of slopes or sinks, slopes or sinks that are not finite (a sink may be
/// -inf), p_dropout outside [0, 1).
void attend(const Problem& problem, const Inputs& inputs, std::span<const RowId> rows, int num_threads,
            const RowSink& sink);

/// All rows of the problem, in (seq, pos, head) order.
std::vector<RowId> all_rows(const Problem& problem);

}  // namespace attnbench::reference
