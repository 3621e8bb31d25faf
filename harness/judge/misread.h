// Inputs as a kernel with a mistake reads them.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "harness/judge/case_inputs.h"
#include "harness/workload/descales.h"

namespace attnbench {

/// The scales of the blocks of a stored row of K or V.
struct BlockScales {
  const Case& item;
  Tensor tensor;
  GivenBlocks::Row row;
  int head;

  /// Channels that have scales.
  int channels(int dim) const { return item.params.k_tail() > 0 ? item.params.dim_v() : dim; }
  double of_block(int block) const {
    return static_cast<double>(block_scale_at(item, tensor, row.seq, row.pos, head, block));
  }
};

/// Inputs read through other heads, or without a descale, or with keys and values exchanged, or keys as stored.
class Misread : public reference::Inputs {
 public:
  struct How {
    /// KV head that a query head reads K and V from. Set both or none: with them the problem has as many KV heads as
    /// query heads.
    std::function<int(int)> k_head, v_head;
    std::optional<Tensor> no_descale;  ///< the tensor whose descales are not applied
    bool exchanged = false;            ///< K is read for V and V for K
    /// Changes the right channels of a row of K or V with block scales to what is read. Null: it does not.
    std::function<void(const BlockScales& scales, int dim, double* row)> of_block;
    bool of_k = true, of_v = true;  ///< where of_block applies
    double qv_factor = 1;
    bool not_turned = false;  ///< rotary_cached: K is taken as it lies in the cache
    /// The sequence and key whose rows of K and V are read. Null: the right ones.
    std::function<std::pair<int, int>(int seq, int pos)> place;
  };
  Misread(const Case& c, const reference::Inputs& right, How how)
      : case_(c), right_(right), how_(std::move(how)) {
    if (!how_.not_turned) return;
    unturned_ = c;
    unturned_->params.rotary = Rotary::kNone;
    unturned_->params.rotary_cached = false;
    stored_ = std::make_unique<CaseInputs>(*unturned_, no_new_rows_);
  }

  void load_q(int seq, int head, int begin, int end, double* out) const override {
    right_.load_q(seq, head, begin, end, out);
    undo(Tensor::kQ, seq, head, begin, end, case_.params.head_dim, out);
  }
  void load_qv(int seq, int head, int begin, int end, double* out) const override {
    right_.load_qv(seq, head, begin, end, out);
    std::for_each_n(out, int64_t{end - begin} * case_.params.dim_v(),
                    [&](double& x) { x *= how_.qv_factor; });
  }
  void load_k(int seq, int head, int begin, int end, double* out) const override {
    const int h = how_.k_head ? how_.k_head(head) : head;
    if (how_.exchanged) return right_.load_v(seq, h, begin, end, out);
    if (how_.place) {
      return load_rows(seq, begin, end, case_.params.head_dim, out,
                       [&](int s, int pos, double* row) { right_.load_k(s, h, pos, pos + 1, row); });
    }
    if (stored_) return stored_->load_k(seq, h, begin, end, out);
    right_.load_k(seq, h, begin, end, out);
    undo(Tensor::kK, seq, h, begin, end, case_.params.head_dim, out);
    if (how_.of_k) change_rows(Tensor::kK, seq, h, begin, end, case_.params.head_dim, out);
  }
  void load_v(int seq, int head, int begin, int end, double* out) const override {
    const int h = how_.v_head ? how_.v_head(head) : head;
    if (how_.exchanged) return right_.load_k(seq, h, begin, end, out);
    if (how_.place) {
      return load_rows(seq, begin, end, case_.params.dim_v(), out,
                       [&](int s, int pos, double* row) { right_.load_v(s, h, pos, pos + 1, row); });
    }
    right_.load_v(seq, h, begin, end, out);
    undo(Tensor::kV, seq, h, begin, end, case_.params.dim_v(), out);
    const Tensor stored = case_.params.v_is_k_view ? Tensor::kK : Tensor::kV;
    if (how_.of_v) change_rows(stored, seq, h, begin, end, case_.params.dim_v(), out);
  }

 private:
  template <class Load>
  void load_rows(int seq, int begin, int end, int dim, double* out, Load load) const {
    for (int pos = begin; pos < end; ++pos, out += dim) {
      const auto [from, at] = how_.place(seq, pos);
      load(from, at, out);
    }
  }
  void change_rows(Tensor stored, int seq, int head, int begin, int end, int dim, double* out) const {
    if (!how_.of_block) return;
    for (int pos = begin; pos < end; ++pos, out += dim)
      how_.of_block({case_, stored, stored_row(case_.params, seq, pos), head}, dim, out);
  }
  void undo(Tensor tensor, int seq, int head, int begin, int end, int dim, double* out) const {
    if (how_.no_descale != tensor) return;
    for (int pos = begin; pos < end; ++pos, out += dim) {
      const int owner = tensor != Tensor::kQ && pos < case_.params.shared_tokens() ? 0 : seq;
      for (int c = 0; c < dim; ++c)
        out[c] /= static_cast<double>(descale_of(case_, tensor, owner, pos, head, c));
    }
  }

  const Case& case_;
  const reference::Inputs& right_;
  How how_;
  std::optional<Case> unturned_;
  std::vector<unsigned char> no_new_rows_;
  std::unique_ptr<CaseInputs> stored_;
};

}  // namespace attnbench
