// The tensors of a launch on the host, as a problem that the reference can solve. Small cases only.
#pragma once

#include <vector>

#include "harness/judge/answers.h"
#include "harness/judge/mistakes.h"
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
class HostView : public reference::Inputs {
 public:
  HostView(Tamper& t, const AttentionParams& p);
  HostView(const HostView&) = delete;

  const AttentionParams& p() const { return p_; }
  /// All rows in (seq, i, head) order.
  std::vector<HostRow> rows() const;
  float slope(int seq, int head) const;
  float sink(int head) const { return sinks[static_cast<std::size_t>(head)]; }
  int q_len(int seq) const;
  int k_len(int seq) const;
  /// Place of key j in its row of the cache or its blocks, left padding included.
  int64_t padded(int seq, int64_t j) const;
  /// The block_table entry of key j.
  int64_t page(int seq, int64_t j) const;
  /// Row of key j, packed or paged, as a list of keys names it.
  int64_t physical_row(int seq, int64_t j) const;
  /// Element offset of a key's row in K or V.
  int64_t kv_offset(int seq, int64_t j, int kv_head, bool is_v) const;

  reference::Problem problem() const;
  Layout layout() const;
  // Descales are applied. K and V in freed blocks are NaN.
  void load_q(int seq, int head, int begin, int end, double* out) const override;
  void load_k(int seq, int kv_head, int begin, int end, double* out) const override {
    load_kv(false, seq, kv_head, begin, end, out);
  }
  void load_v(int seq, int kv_head, int begin, int end, double* out) const override {
    load_kv(true, seq, kv_head, begin, end, out);
  }
  void load_qv(int seq, int head, int begin, int end, double* out) const override;

  std::vector<unsigned char> q, qv, k, v, mask_bytes;
  std::vector<int32_t> cu_q, cu_k, used_q, used, table, cache_rows, leftpad, mask_indptr, lists, list_lengths;
  std::vector<float> slopes, sinks, q_descale, k_descale, v_descale;

 private:
  void load_kv(bool is_v, int seq, int kv_head, int begin, int end, double* out) const;
  /// Whether a custom mask or a list of keys shows key j.
  bool sees(int seq, int i, int head, int64_t j) const;
  /// Whether the block_table entry of key j is junk.
  bool freed(int seq, int64_t j) const;
  AttentionParams p_;
};

/// O of each row with scores, P and O each rounded to the output's type, like a chain of framework operations.
std::vector<std::vector<double>> naive(const HostView& view);

}  // namespace attnbench
