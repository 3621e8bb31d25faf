// What tables of mistakes (mistakes.h) have in common: rows of changed problems, and rows of inputs read elsewhere.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "harness/judge/mistakes.h"

namespace attnbench {

using P = reference::Problem;
using Sees = std::function<bool(int seq, int pos, int head, int64_t key)>;

template <class Number>
auto with(Number P::*number, Number to) {
  return [number, to](P& x) { x.*number = to; };
}

inline auto see(Sees sees) {
  return [sees = std::move(sees)](P& x) { x.sees = sees; };
}

/// Hides the keys that kept(seq, pos, key) does not name.
template <class Kept>
auto keep(Kept kept) {
  return [kept](P& x) {
    x.sees = [kept, right = x.sees](int seq, int pos, int head, int64_t key) {
      return kept(seq, pos, key) && (!right || right(seq, pos, head, key));
    };
  };
}

/// Sequence b loses its keys from end(b, k_len) on. The diagonal stays where it is.
template <class End>
auto cut(End end) {
  return [end](P& x) {
    x.k_ends = x.k_lens;
    for (std::size_t b = 0; b < x.k_ends.size(); ++b) x.k_ends[b] = std::max(0, end(b, x.k_ends[b]));
  };
}

inline void shorter_by_one(P& x) {
  for (int& k : x.k_lens) k = std::max(0, k - 1);
}

class MistakeTable {
 public:
  MistakeTable(const P& right, const reference::Inputs& inputs) : p_(right), inputs_(inputs) {}

 protected:
  /// A changed problem. `change` outlives this object: it holds copies.
  struct Row {
    bool applies;
    std::string fault;
    std::string text;
    std::function<void(P&)> change;
    bool in_pairs = true;
    bool rare = false;
  };
  void rows(std::initializer_list<Row> table) {
    for (const Row& row : table) {
      if (!row.applies) continue;
      out_.push_back({row.text, row.change, p_,
                      std::shared_ptr<const reference::Inputs>(std::shared_ptr<void>(), &inputs_), false,
                      row.in_pairs, row.fault, row.rare});
      row.change(out_.back().problem);
    }
  }
  Mistake& misread(std::string fault, std::string text, Misread::How how) {
    return out_.emplace_back(misread_mistake(p_, inputs_, std::move(fault), std::move(text), std::move(how)));
  }

  const P& p_;  ///< the right problem
  const reference::Inputs& inputs_;
  std::vector<Mistake> out_;
};

}  // namespace attnbench
