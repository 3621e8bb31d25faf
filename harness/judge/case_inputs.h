// The values of a case in the form that the reference needs.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "harness/ops/kv_append/judge_rows.h"
#include "reference/backward.h"

namespace attnbench {

/// Gives the reference the values of a case by coordinate, without any memory layout: the stored numbers,
/// rounded to their type, times their descales.
///
/// Rows that the launch appends come from the new tensors. Rotated or quantised ones are taken as the kernel
/// stored them, if `stored_new_k` and `stored_new_v` have them. ops/kv_append/judge_cache.h judges them separately, because
/// near a rounding boundary both neighbours are right.
class CaseInputs : public reference::BackwardInputs {
 public:
  /// stored_new_k: HostOutputs::new_k, or empty. stored_new_v: new_v, or null. All arguments must outlive this.
  CaseInputs(const Case& c, const std::vector<unsigned char>& stored_new_k,
             const std::vector<unsigned char>* stored_new_v = nullptr);
  void load_q(int seq, int head, int begin, int end, double* out) const override;
  void load_k(int seq, int head, int begin, int end, double* out) const override;
  void load_v(int seq, int head, int begin, int end, double* out) const override;
  void load_qv(int seq, int head, int begin, int end, double* out) const override;
  void load_d_out(int seq, int head, int begin, int end, double* out) const override;

  /// RowMoments::q_error of a query: what float32 rotations may change in it and, with rotary_cached, in a key.
  double q_error(int seq, int head, int pos) const;

 private:
  void load(Tensor tensor, int seq, int head, int begin, int end, int dim, double* out) const;
  void load_new(bool is_v, int seq, int head, int pos, double* out) const;
  int position_of_query(int seq, int pos) const;
  /// The most that a float32 rotation may change a key of a sequence and KV head, relative to its length.
  double k_error(int seq, int kv_head) const;
  double measure_k_error(int seq, int kv_head) const;

  const Case* case_;
  const std::vector<unsigned char>*stored_new_k_, *stored_new_v_;
  AppendedRows appended_;
  std::vector<int64_t> new_begin_;  ///< first new token of each sequence
  struct KeyError {
    std::once_flag measured;
    double value = 0;
  };
  std::unique_ptr<KeyError[]> key_errors_;  ///< (sequence, KV head), with rotary_cached
};

}  // namespace attnbench
