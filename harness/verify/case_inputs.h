// The values of a case as the reference asks for them.
#pragma once

#include <vector>

#include "harness/verify/appended_rows.h"
#include "reference/reference.h"

namespace attnbench {

/// Hands the reference the values of a case, rounded to its dtype, by coordinate: no layout is involved.
///
/// Rows that the launch appends come from the new tensors. New keys that were rotated are those that the
/// kernel stored, where given: they are judged by themselves (check_cache.h), and one that lies near a
/// rounding boundary may rightly have gone either way.
class CaseInputs : public reference::Inputs {
 public:
  /// stored_new_k: HostOutputs::new_k, or empty. Both arguments must outlive this.
  CaseInputs(const Case& c, const std::vector<unsigned char>& stored_new_k);
  void load_q(int seq, int head, int begin, int end, double* out) const override;
  void load_k(int seq, int head, int begin, int end, double* out) const override;
  void load_v(int seq, int head, int begin, int end, double* out) const override;

  /// RowMoments::q_error of a query.
  double q_error(int seq, int head, int pos) const;

 private:
  void load(Tensor tensor, int seq, int head, int begin, int end, int dim, double* out) const;
  void load_new(bool is_v, int seq, int head, int pos, double* out) const;
  int position_of_query(int seq, int pos) const;

  const Case* case_;
  const std::vector<unsigned char>* stored_new_k_;
  AppendedRows appended_;
  std::vector<int64_t> new_begin_;  ///< first new token of each sequence
};

}  // namespace attnbench
