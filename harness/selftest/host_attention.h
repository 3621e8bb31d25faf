// Attention on the host, row by row, from the tensors of a launch. It computes right results in double, wrong
// ones by a rule, or naive ones in the launch's own precision. Small cases only.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "harness/selftest/tamper.h"

namespace attnbench {

/// One row of O and the keys [lo, hi) that it sees.
struct HostRow {
  int seq = 0;
  int i = 0;
  int head = 0;
  int q_len = 0;
  int k_len = 0;
  int64_t token = 0;  ///< row of q and O
  int64_t diag = 0;
  int64_t lo = 0;
  int64_t hi = 0;
};

/// The tensors of a launch, copied to the host.
class HostView {
 public:
  HostView(Tamper& t, const AttentionParams& p);
  HostView(const HostView&) = delete;

  const AttentionParams& p() const { return p_; }
  /// All rows in (seq, i, head) order.
  std::vector<HostRow> rows() const;
  float slope(int seq, int head) const;
  float sink(int head) const { return sinks[static_cast<std::size_t>(head)]; }
  /// K or V of one sequence and KV head, (k_len, D), with descales applied; NaN in freed blocks.
  std::vector<double> load_kv(int seq, int kv_head, bool is_v) const;
  /// The query of a row, (D), with its descale applied.
  std::vector<double> load_q(const HostRow& row) const;
  /// The second query of a row, (D); zeros if the launch has none.
  std::vector<double> load_qv(const HostRow& row) const;
  int q_len(int seq) const;
  int k_len(int seq) const;
  /// Whether the block_table entry of key j is junk.
  bool freed(int seq, int64_t j) const;
  /// Place of key j in its row of the cache or its blocks, left padding included.
  int64_t padded(int seq, int64_t j) const;
  /// The block_table entry of key j.
  int64_t page(int seq, int64_t j) const;
  /// Element offset of a key's row in K or V.
  int64_t kv_offset(int seq, int64_t j, int kv_head, bool is_v) const;

  std::vector<unsigned char> q, qv, k, v;
  std::vector<int32_t> cu_q, cu_k, used_q, used, table, cache_rows, leftpad;
  std::vector<float> slopes, sinks, q_descale, k_descale, v_descale;

 private:
  AttentionParams p_;
};

/// Which parts of the arithmetic are wrong; empty members leave their part right.
struct HostRule {
  std::function<void(const HostView&, HostRow&)> keys;    ///< moves lo and hi
  std::function<bool(const HostRow&, int64_t j)> hidden;  ///< further keys that are left out
  std::function<int(const HostView&, int head)> kv_head;  ///< of K, and of V without v_head
  std::function<int(const HostView&, int head)> v_head;
  /// The final score of a key from q.k: scale, softcap and bias included.
  std::function<double(const HostView&, const HostRow&, int64_t j, double qk)> score;
  std::function<double(double p)> weight;  ///< p relative to the row's largest, as it enters P.V
  std::optional<double> masked_score;      ///< score of the sequence's other keys, instead of -inf
  /// Start of the running maximum, instead of -inf. Exponentials are then rounded to float32, and a row whose
  /// weights are all 0 gives the result of a row without keys.
  std::optional<double> first_maximum;
};

struct HostResult {
  std::vector<double> o;
  double lse = 0;
};

/// Computes rows of one view, and keeps the keys and values that it has loaded.
class HostAttention {
 public:
  explicit HostAttention(const HostView& view) : view_(&view) {}
  HostResult right(const HostRow& row) { return by_rule(row, {}); }
  HostResult by_rule(HostRow row, const HostRule& rule);
  /// O with scores, P and O each rounded to the output's type, like a chain of framework operations.
  std::vector<double> naive(const HostRow& row);

 private:
  struct Pair {
    std::vector<double> k, v;
  };
  const Pair& loaded(int seq, int kv_head);
  double score(const HostRow& row, int64_t j, double qk, bool naive) const;
  const HostView* view_;
  std::vector<std::vector<std::optional<Pair>>> cache_;
};

}  // namespace attnbench
