// Inputs as a kernel with a mistake reads them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "harness/values/values.h"
#include "reference/reference.h"

namespace attnbench {

/// Inputs read through other heads, or from other places, or changed row by row.
class Misread : public reference::Inputs {
 public:
  struct How {
    /// KV head that a query head reads K and V from. Set both or none: with them the problem has as many KV heads as
    /// query heads.
    std::function<int(int)> k_head, v_head;
    Tensor k = Tensor::kK, v = Tensor::kV;  ///< what is read for K and for V
    /// The sequence and key whose row of K or V is read. Null: the right ones.
    std::function<std::pair<int, int>(Tensor tensor, int seq, int pos)> place;
    /// Changes a right row of q, qv, K or V to what is read. Null: it does not.
    std::function<void(Tensor tensor, int seq, int pos, int head, std::span<double> row)> change;
  };
  /// `inputs` are the right ones and must outlive this.
  Misread(const reference::Problem& right, const reference::Inputs& inputs, How how)
      : dim_(right.head_dim), dim_v_(right.value_dim()), right_(inputs), how_(std::move(how)) {}

  void load_q(int seq, int head, int begin, int end, double* out) const override {
    load(Tensor::kQ, seq, head, begin, end, out);
  }
  void load_qv(int seq, int head, int begin, int end, double* out) const override {
    load(Tensor::kQv, seq, head, begin, end, out);
  }
  void load_k(int seq, int head, int begin, int end, double* out) const override {
    load(Tensor::kK, seq, how_.k_head ? how_.k_head(head) : head, begin, end, out);
  }
  void load_v(int seq, int head, int begin, int end, double* out) const override {
    load(Tensor::kV, seq, how_.v_head ? how_.v_head(head) : head, begin, end, out);
  }

 private:
  void load_right(Tensor tensor, int seq, int head, int begin, int end, double* out) const {
    if (tensor == Tensor::kQ) return right_.load_q(seq, head, begin, end, out);
    if (tensor == Tensor::kQv) return right_.load_qv(seq, head, begin, end, out);
    if ((tensor == Tensor::kK ? how_.k : how_.v) == Tensor::kK)
      return right_.load_k(seq, head, begin, end, out);
    right_.load_v(seq, head, begin, end, out);
  }
  void load(Tensor tensor, int seq, int head, int begin, int end, double* out) const {
    const int64_t dim = tensor == Tensor::kQ || tensor == Tensor::kK ? dim_ : dim_v_;
    const bool elsewhere = how_.place && (tensor == Tensor::kK || tensor == Tensor::kV);
    for (int pos = begin, next = end; pos < end; pos = next) {
      std::pair<int, int> from(seq, pos);
      if (elsewhere) {
        from = how_.place(tensor, seq, pos);
        next = pos + 1;
        while (next < end && how_.place(tensor, seq, next) == std::pair(from.first, from.second + next - pos))
          ++next;
      }
      load_right(tensor, from.first, head, from.second, from.second + next - pos, out + (pos - begin) * dim);
    }
    for (int pos = begin; how_.change && pos < end; ++pos, out += dim)
      how_.change(tensor, seq, pos, head, {out, static_cast<std::size_t>(dim)});
  }

  int dim_, dim_v_;
  const reference::Inputs& right_;
  How how_;
};

}  // namespace attnbench
