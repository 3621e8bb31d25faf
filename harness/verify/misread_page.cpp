#include "harness/verify/misread_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "harness/cases/visible_keys.h"

namespace attnbench {
namespace {

/// What is read from the page before.
struct Which {
  const char* text;
  bool k, v;
};
constexpr Which kBoth = {"K and V", true, true};
constexpr Which kEither[] = {{"K", true, false}, {"V", false, true}};

/// In which page.
struct Where {
  const char* text;
  bool of_query;  ///< the last page that the query sees, not that of its sequence
  bool not_full;  ///< only if that page is not full
};
constexpr Where kWhere[] = {
    {"the last page of a sequence", false, false},
    {"the last page of a sequence, if it is not full,", false, true},
    {"the last page that a query sees", true, false},
    {"the last page that a query sees, if it sees only a part of it,", true, true},
};

/// Inputs whose keys from `first` on are read a block_size too early.
class PageBefore : public reference::Inputs {
 public:
  PageBefore(const reference::Inputs& right, const CaseParams& p, const Which& which, int first)
      : right_(right), p_(p), which_(which), first_(first) {}

  void load_q(int seq, int head, int begin, int end, double* out) const override {
    right_.load_q(seq, head, begin, end, out);
  }
  void load_qv(int seq, int head, int begin, int end, double* out) const override {
    right_.load_qv(seq, head, begin, end, out);
  }
  void load_k(int seq, int head, int begin, int end, double* out) const override {
    right_.load_k(seq, head, begin, end, out);
    const int from = std::max(begin, first_);
    if (which_.k && from < end)
      right_.load_k(seq, head, from - p_.block_size, end - p_.block_size,
                    out + int64_t{from - begin} * p_.head_dim);
  }
  void load_v(int seq, int head, int begin, int end, double* out) const override {
    right_.load_v(seq, head, begin, end, out);
    const int from = std::max(begin, first_);
    if (which_.v && from < end)
      right_.load_v(seq, head, from - p_.block_size, end - p_.block_size,
                    out + int64_t{from - begin} * p_.dim_v());
  }

 private:
  const reference::Inputs& right_;
  const CaseParams& p_;
  Which which_;
  int first_;
};

/// The first key of the page that is misread for this row; the number of keys if none is.
int first_misread(const CaseParams& p, const Where& where, const reference::RowId& id) {
  const SeqLen s = p.seqs[static_cast<std::size_t>(id.seq)];
  const int64_t end = where.of_query ? visible_keys(mask_of(p), s.q, s.k, id.pos).end : s.k;
  const bool misread = end > p.block_size && !(where.not_full && end % p.block_size == 0);
  return static_cast<int>(misread ? (end - 1) / p.block_size * p.block_size : s.k);
}

}  // namespace

std::optional<Explanation> misread_page(const Launched& launched, const reference::Problem& right,
                                        const reference::Inputs& inputs,
                                        std::span<const reference::RowId> tried, int num_threads) {
  const CaseParams& p = launched.item.params;
  if (p.kv != KvSource::kPaged || p.leftpad > 0 || p.topk > 0) return std::nullopt;
  std::vector<Which> all = {kBoth};
  if (!p.v_is_k_view) all.insert(all.end(), std::begin(kEither), std::end(kEither));
  for (const Which& which : all) {
    for (const Where& where : kWhere) {
      bool lse_too = true;
      const auto is_right = [&](const reference::RowId& id) {
        const PageBefore wrong(inputs, p, which, first_misread(p, where, id));
        const RowFinding row = find_rows(launched, right, wrong, {&id, 1}, num_threads).front();
        lse_too = lse_too && !row.wrong_lse;
        return !row.wrong_o;
      };
      if (!std::all_of(tried.begin(), tried.end(), is_right)) continue;
      const char* rest = which.k == which.v ? "" : which.k ? "; V is right" : "; K is right";
      return Explanation{
          fmt::format("{} of {} {} read from the page before{}", p.v_is_k_view ? "K" : which.text, where.text,
                      which.k && which.v && !p.v_is_k_view ? "are" : "is", rest),
          lse_too};
    }
  }
  return std::nullopt;
}

}  // namespace attnbench
